//! Content of a page: the strings that it shows, placed, as lines of text.
//!
//! Facts: PDF 32000-1, 8.4 (graphics state), 8.10 (form XObjects), 9.3 and 9.4 (text state and operators), 14.6 (marked
//! content). Glyphs are taken in the order in which the page shows them, which is the order of reading in nearly all
//! documents; columns need no search then. Text that is marked as an artifact is left out, text that is not painted
//! is kept: scanned pages have it under the picture.

use std::collections::HashMap;
use std::rc::Rc;

use hayro_syntax::content::UntypedIter;
use hayro_syntax::object::{Array, Dict, Name, Object, ObjectIdentifier, Stream};
use hayro_syntax::page::{Page, Resources};

use super::font::Font;
use super::guard;
use super::layout::{Glyph, Lines, Point};

/// Forms inside each other.
const MAX_DEPTH: usize = 12;
/// Saved states.
const MAX_SAVED: usize = 512;
/// Bytes of fonts that are kept for later pages.
const MAX_FONTS: usize = 32 << 20;
/// Lines and characters of a document.
const MAX_LINES: usize = 500_000;
const MAX_CHARS: usize = 32 << 20;
/// Operations of one page, its forms included.
const MAX_OPERATIONS: u64 = 4_000_000;
/// Streams of one page.
const MAX_STREAMS: usize = 4096;

/// A transformation: a b c d e f.
#[derive(Clone, Copy)]
struct Matrix([f32; 6]);

impl Matrix {
    const IDENTITY: Matrix = Matrix([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

    /// First this one, then `next`.
    fn then(self, next: Matrix) -> Matrix {
        let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (self.0, next.0);
        Matrix([
            a * g + b * i,
            a * h + b * j,
            c * g + d * i,
            c * h + d * j,
            e * g + f * i + k,
            e * h + f * j + l,
        ])
    }

    fn apply(self, x: f32, y: f32) -> Point {
        let [a, b, c, d, e, f] = self.0;
        Point {
            x: a * x + c * y + e,
            y: b * x + d * y + f,
        }
    }
}

/// State that `q` saves.
#[derive(Clone)]
struct State {
    matrix: Matrix,
    font: Option<Rc<Font>>,
    size: f32,
    char_space: f32,
    word_space: f32,
    scale: f32,
    leading: f32,
    rise: f32,
}

/// Fonts and the work that is left, of a whole document.
#[derive(Default)]
pub(super) struct Shared {
    fonts: HashMap<ObjectIdentifier, Rc<Font>>,
    font_bytes: usize,
    lines: usize,
    chars: usize,
    /// Bytes of content that were decoded, pages that share it counted again.
    decoded: u64,
}

/// Bytes of content of a document.
const MAX_CONTENT: u64 = 256 << 20;

/// Text of a page.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) lines: Lines,
    /// Codes without known characters, and all codes.
    pub(super) unknown: u64,
    pub(super) codes: u64,
    /// Characters that were marked as artifacts.
    pub(super) artifacts: u64,
}

/// A pass over a page.
struct Pass<'s> {
    shared: &'s mut Shared,
    shown: Shown,
    state: State,
    saved: Vec<State>,
    text: Matrix,
    line: Matrix,
    operations: u64,
    /// Open marked content, with whether it is an artifact.
    marked: Vec<bool>,
}

/// Reads a page.
///
/// # Errors
/// Why its content cannot be read.
pub(super) fn read(page: &Page<'_>, shared: &mut Shared) -> Result<Shown, String> {
    let content = streams(page)?;
    let mut pass = Pass {
        shared,
        shown: Shown::default(),
        state: State {
            matrix: Matrix::IDENTITY,
            font: None,
            size: 0.0,
            char_space: 0.0,
            word_space: 0.0,
            scale: 1.0,
            leading: 0.0,
            rise: 0.0,
        },
        saved: Vec::new(),
        text: Matrix::IDENTITY,
        line: Matrix::IDENTITY,
        operations: 0,
        marked: Vec::new(),
    };
    // a string may end in the next stream, so they are one
    let mut bytes = Vec::new();
    for stream in content {
        let part = guard::content(&stream)?;
        pass.shared.decoded += part.len() as u64;
        if pass.shared.decoded > MAX_CONTENT {
            return Err(format!(
                "the pages' content expands past {MAX_CONTENT} bytes"
            ));
        }
        bytes.extend_from_slice(&part);
        bytes.push(b'\n');
        if bytes.len() as u64 > guard::MAX_STREAM {
            return Err("content streams that are too long together".to_string());
        }
    }
    pass.run(&bytes, page.resources(), 0)?;
    let Pass { shared, shown, .. } = pass;
    shared.lines += shown.lines.count();
    shared.chars += shown.lines.chars();
    if shared.lines > MAX_LINES || shared.chars > MAX_CHARS {
        let limits = format!("{MAX_LINES} lines or {MAX_CHARS} bytes of text");
        return Err(format!("the document has more than {limits}"));
    }
    Ok(shown)
}

fn streams<'a>(page: &Page<'a>) -> Result<Vec<Stream<'a>>, String> {
    let raw = page.raw();
    if let Some(stream) = raw.get::<Stream<'a>>("Contents") {
        return Ok(vec![stream]);
    }
    let Some(array) = raw.get::<Array<'a>>("Contents") else {
        return match raw.contains_key("Contents") {
            true => Err("a content stream that is missing".to_string()),
            // an empty page
            false => Ok(Vec::new()),
        };
    };
    let mut all = Vec::new();
    for object in array.iter::<Object<'a>>() {
        match object {
            Object::Stream(stream) => all.push(stream),
            Object::Null(_) => {}
            _ => return Err("a content stream that is no stream".to_string()),
        }
        if all.len() > MAX_STREAMS {
            return Err(format!("more than {MAX_STREAMS} content streams"));
        }
    }
    let wanted = array.raw_iter().count();
    if all.len() < wanted {
        return Err(format!(
            "{} of {wanted} content streams are missing",
            wanted - all.len()
        ));
    }
    Ok(all)
}

/// Numbers of an instruction, the missing ones 0.
fn numbers<const N: usize>(operands: &[&Object<'_>]) -> [f32; N] {
    let mut out = [0.0; N];
    let numbers = operands.iter().filter_map(|object| match object {
        Object::Number(number) => Some(number.as_f32()),
        _ => None,
    });
    for (place, number) in out.iter_mut().zip(numbers) {
        *place = if number.is_finite() { number } else { 0.0 };
    }
    out
}

impl Pass<'_> {
    fn run(&mut self, bytes: &[u8], resources: &Resources<'_>, depth: usize) -> Result<(), String> {
        let mut all = UntypedIter::new(bytes);
        while let Some(instruction) = all.next() {
            self.operations += 1;
            if self.operations > MAX_OPERATIONS {
                return Err(format!("more than {MAX_OPERATIONS} operations"));
            }
            let operands: Vec<&Object<'_>> = instruction.operands().collect();
            let operator: &[u8] = instruction.operator;
            if operator == b"Do" {
                if let Some(Object::Name(name)) = operands.first()
                    && let Some(form) = resources.get_x_object(name)
                {
                    self.form(&form, resources, depth)?;
                }
                continue;
            }
            self.operate(operator, &operands, resources);
        }
        Ok(())
    }

    fn operate(&mut self, operator: &[u8], operands: &[&Object<'_>], resources: &Resources<'_>) {
        match operator {
            b"q" if self.saved.len() < MAX_SAVED => self.saved.push(self.state.clone()),
            b"Q" => {
                if let Some(state) = self.saved.pop() {
                    self.state = state;
                }
            }
            b"cm" => self.state.matrix = Matrix(numbers(operands)).then(self.state.matrix),
            b"BT" => (self.text, self.line) = (Matrix::IDENTITY, Matrix::IDENTITY),
            b"Tc" => self.state.char_space = numbers::<1>(operands)[0],
            b"Tw" => self.state.word_space = numbers::<1>(operands)[0],
            b"Tz" => self.state.scale = numbers::<1>(operands)[0] / 100.0,
            b"TL" => self.state.leading = numbers::<1>(operands)[0],
            b"Ts" => self.state.rise = numbers::<1>(operands)[0],
            b"Tf" => {
                if let Some(Object::Name(name)) = operands.first() {
                    self.state.font = self.font(name, resources);
                }
                self.state.size = numbers::<1>(operands)[0];
            }
            b"Td" => self.next_line(numbers(operands)),
            b"TD" => {
                let [x, y] = numbers(operands);
                self.state.leading = -y;
                self.next_line([x, y]);
            }
            b"Tm" => {
                self.line = Matrix(numbers(operands));
                self.text = self.line;
            }
            b"T*" => self.next_line([0.0, -self.state.leading]),
            b"Tj" => self.show_first(operands),
            b"'" => {
                self.next_line([0.0, -self.state.leading]);
                self.show_first(operands);
            }
            b"\"" => {
                [self.state.word_space, self.state.char_space] = numbers(operands);
                self.next_line([0.0, -self.state.leading]);
                self.show_first(operands);
            }
            b"TJ" => self.show_all(operands),
            b"BMC" | b"BDC" if self.marked.len() < MAX_SAVED => {
                let is_artifact = matches!(operands.first(), Some(Object::Name(name)) if name.as_str() == "Artifact");
                let around = self.marked.last().copied().unwrap_or(false);
                self.marked.push(around || is_artifact);
            }
            b"EMC" => drop(self.marked.pop()),
            _ => {}
        }
    }

    fn form(
        &mut self,
        form: &Stream<'_>,
        around: &Resources<'_>,
        depth: usize,
    ) -> Result<(), String> {
        let dict = form.dict();
        let kind = dict.get::<Name<'_>>("Subtype");
        if kind.is_none_or(|kind| &*kind != b"Form") {
            return Ok(());
        }
        if depth >= MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} forms inside each other"));
        }
        let content = guard::content(form)?;
        self.shared.decoded += content.len() as u64;
        if self.shared.decoded > MAX_CONTENT {
            return Err(format!(
                "the pages' content expands past {MAX_CONTENT} bytes"
            ));
        }
        let resources = dict.get::<Dict<'_>>("Resources");
        let own = resources.map(Resources::new);
        let (state, saved) = (self.state.clone(), std::mem::take(&mut self.saved));
        let (text, line) = (self.text, self.line);
        if let Some(matrix) = dict.get::<Array<'_>>("Matrix") {
            let objects: Vec<Object<'_>> = matrix.iter::<Object<'_>>().take(6).collect();
            let matrix = Matrix(numbers(&objects.iter().collect::<Vec<_>>()));
            self.state.matrix = matrix.then(self.state.matrix);
        }
        self.run(&content, own.as_ref().unwrap_or(around), depth + 1)?;
        (self.state, self.saved) = (state, saved);
        (self.text, self.line) = (text, line);
        Ok(())
    }

    /// A font of the resources; those with a number of their own are kept.
    fn font(&mut self, name: &Name<'_>, resources: &Resources<'_>) -> Option<Rc<Font>> {
        let id: Option<ObjectIdentifier> = resources.fonts.get_ref(name).map(Into::into);
        if let Some(known) = id.and_then(|id| self.shared.fonts.get(&id)) {
            return Some(known.clone());
        }
        let font = Rc::new(Font::read(&resources.get_font(name)?));
        if let Some(id) = id
            && self.shared.font_bytes + font.bytes() <= MAX_FONTS
        {
            self.shared.font_bytes += font.bytes();
            self.shared.fonts.insert(id, font.clone());
        }
        Some(font)
    }

    fn next_line(&mut self, [x, y]: [f32; 2]) {
        self.line = Matrix([1.0, 0.0, 0.0, 1.0, x, y]).then(self.line);
        self.text = self.line;
    }

    fn show_first(&mut self, operands: &[&Object<'_>]) {
        if let Some(Object::String(text)) = operands.iter().find(|o| matches!(o, Object::String(_)))
        {
            self.show(text.as_bytes());
        }
    }

    fn show_all(&mut self, operands: &[&Object<'_>]) {
        let Some(Object::Array(array)) = operands.first() else {
            return;
        };
        for object in array.iter::<Object<'_>>() {
            match object {
                Object::String(text) => self.show(text.as_bytes()),
                Object::Number(number) => {
                    let by = -number.as_f32() / 1000.0 * self.state.size * self.state.scale;
                    self.advance(if by.is_finite() { by } else { 0.0 });
                }
                _ => {}
            }
        }
    }

    fn advance(&mut self, x: f32) {
        self.text = Matrix([1.0, 0.0, 0.0, 1.0, x, 0.0]).then(self.text);
    }

    fn show(&mut self, bytes: &[u8]) {
        let Some(font) = self.state.font.clone() else {
            return;
        };
        let is_artifact = self.marked.last().copied().unwrap_or(false);
        font.each(bytes, &mut |code| {
            let state = &self.state;
            let whole = self.text.then(state.matrix);
            let width = code.width / 1000.0 * state.size * state.scale;
            let start = whole.apply(0.0, state.rise);
            let end = whole.apply(width, state.rise);
            let [_, _, c, d, ..] = whole.0;
            let glyph = Glyph {
                start,
                end,
                size: (c.hypot(d) * state.size).abs(),
                baseline: whole.apply(0.0, 0.0),
            };
            let space = if code.is_space { state.word_space } else { 0.0 };
            let step = width + (state.char_space + space) * state.scale;
            if is_artifact {
                self.shown.artifacts += 1;
            } else {
                self.shown.codes += 1;
                match code.text {
                    Some(text) => self.shown.lines.add(&glyph, text),
                    None => self.shown.unknown += 1,
                }
            }
            self.advance(step);
        });
    }
}
