//! Lists of LaTeX and the numbers of their items.
//!
//! Facts: LaTeX2e, `enumerate` and the optional argument of `\item`, which takes the place of a number; the package enumitem 3.11, keys
//! `start` and `resume`.

use crate::read::flow::Number;

/// Environments that number their items.
const ORDERED: [&str; 2] = ["enumerate", "compactenum"];

/// An open list.
struct List {
    is_ordered: bool,
    /// The next paragraph is an item, with a number or without.
    item: Option<bool>,
    /// Number of the last item that has one; one less than that of the first before it.
    number: u32,
    /// Differs between lists.
    id: u32,
}

/// An item, of which the first paragraph follows.
pub(super) struct Item {
    /// From 1.
    pub(super) level: usize,
    pub(super) is_ordered: bool,
    /// None of an item with a label.
    pub(super) number: Option<Number>,
}

/// The open lists.
#[derive(Default)]
pub(super) struct Lists {
    open: Vec<List>,
    /// Lists so far.
    count: u32,
    /// Last number of the last ordered list of each level that has ended.
    ended: Vec<u32>,
}

impl Lists {
    /// Begins a list of an environment with its optional argument.
    pub(super) fn begin(&mut self, name: &str, option: &str) {
        let level = self.open.len();
        let keys = option
            .split(',')
            .map(|key| key.split_once('=').unwrap_or((key, "")));
        let mut number = 0;
        for (key, value) in keys {
            match (key.trim(), value.trim().parse::<u32>()) {
                ("start", Ok(first)) => number = first.saturating_sub(1),
                ("resume" | "resume*", _) => {
                    number = self.ended.get(level).copied().unwrap_or(0);
                }
                (_, Ok(_) | Err(_)) => {}
            }
        }
        self.count += 1;
        self.open.push(List {
            is_ordered: ORDERED.contains(&name),
            item: None,
            number,
            id: self.count,
        });
    }

    pub(super) fn end(&mut self) {
        let Some(list) = self.open.pop() else {
            return;
        };
        if list.is_ordered {
            let level = self.open.len();
            self.ended.resize(self.ended.len().max(level + 1), 0);
            self.ended[level] = list.number;
        }
    }

    /// Begins an item; one with a label has no number.
    pub(super) fn item(&mut self, has_label: bool) {
        if let Some(list) = self.open.last_mut() {
            list.item = Some(!has_label);
            if list.is_ordered && !has_label {
                list.number = list.number.saturating_add(1);
            }
        }
    }

    /// The item that a paragraph begins, if it begins one.
    pub(super) fn take_item(&mut self) -> Option<Item> {
        let level = self.open.len();
        let list = self.open.last_mut()?;
        let has_number = list.item.take()?;
        Some(Item {
            level,
            is_ordered: list.is_ordered,
            number: (list.is_ordered && has_number).then_some(Number {
                number: list.number,
                list: list.id,
            }),
        })
    }
}
