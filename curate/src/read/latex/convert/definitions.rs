//! Commands that define others: macros, names for them, and theorems.

use super::Converter;
use crate::read::latex::macros::Macro;

impl Converter {
    pub(super) fn define(&mut self, keeps: bool) {
        self.input.take('*');
        let name = self.input.argument();
        self.skip_blanks();
        let count = self.input.optional().and_then(|n| n.trim().parse().ok());
        let default = count.and_then(|_| self.input.optional());
        let body = self.input.argument();
        let new = Macro::new(count.unwrap_or(0), default, &body);
        self.macros
            .define(name.trim().trim_start_matches('\\'), new, keeps);
    }

    pub(super) fn define_plain(&mut self) {
        self.skip_blanks();
        if !self.input.take('\\') {
            return;
        }
        let name = self.input.name();
        let mut pattern = String::new();
        while let Some(c) = self.input.peek().filter(|c| *c != '{' && *c != '\n') {
            pattern.push(c);
            self.input.next();
        }
        let body = self.input.argument();
        let count = pattern.matches('#').count();
        let plain: String = (1..=count).map(|i| format!("#{i}")).collect();
        // arguments that end at other text are not understood
        if pattern.trim() == plain {
            let new = Macro::new(count, None, &body);
            self.macros.define(&name, new, false);
        }
    }

    pub(super) fn alias(&mut self) {
        let name = self.input.argument();
        self.skip_blanks();
        self.input.take('=');
        let of = self.input.argument();
        if let Some(known) = self.macros.get(of.trim_start_matches('\\')) {
            let name = name.trim_start_matches('\\');
            self.macros.define(name, Macro::clone(&known), false);
        }
    }

    pub(super) fn theorem(&mut self) {
        self.input.take('*');
        let name = self.input.argument();
        self.input.optional();
        let title = self.unmarked_argument();
        self.input.optional();
        self.theorems.insert(name, title);
    }
}
