//! Pieces of a block's text that Markdown marks: code, references to footnotes, links, bold and italic type.
//!
//! Bold and italic type are no nodes of the tree (html/tree.rs): their tags are passed by between two nodes. Type that no end tag
//! closes ends with the element that it began in. Pieces are recorded block by block: one that goes on over the end
//! of a block is a piece of each, and of pieces that overlap the inner one is cut, so that they nest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::html::{Format, Id, Key, Node, Tag, Tree};
use super::notes::Notes;
use crate::text::narrow;

/// A piece of the text that Markdown marks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Piece {
    /// Place in the text of the page.
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) kind: PieceKind,
}

/// In the order in which pieces with the same text are inside each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PieceKind {
    /// Link to the target with this number.
    Link(u32),
    Bold,
    Italic,
    /// Code inside running text.
    Code,
    /// Reference to the footnote with this number.
    Note(u32),
    /// Link back from a footnote.
    Back,
}

impl PieceKind {
    /// Whether other pieces may be inside.
    fn is_open(self) -> bool {
        matches!(
            self,
            PieceKind::Link(_) | PieceKind::Bold | PieceKind::Italic
        )
    }

    /// Whether a piece without text says something.
    fn may_be_empty(self) -> bool {
        matches!(self, PieceKind::Note(_))
    }
}

/// Bold or italic tags inside each other that are followed.
const MAX_NESTED: usize = 32;
/// Bytes of a link's target: longer ones are data.
const MAX_TARGET: usize = 2000;
/// Schemes of targets that lead to a document or a person.
const SCHEMES: [&str; 4] = ["http", "https", "ftp", "mailto"];

/// An element that is a piece and has not ended.
struct Open {
    end: Id,
    start: usize,
    kind: PieceKind,
}

/// An open tag of bold or italic type, and where it ends at the latest.
struct Active {
    tag: Tag,
    end: Id,
}

/// Collects the pieces of the current block.
pub(super) struct Pieces<'t, 'a> {
    tree: &'t Tree<'a>,
    notes: &'t Notes,
    /// The next tag of bold or italic type.
    next: usize,
    active: Vec<Active>,
    /// Where the open bold and the open italic text started.
    bold: Option<usize>,
    italic: Option<usize>,
    open: Vec<Open>,
    done: Vec<Piece>,
    /// Targets of links.
    pub(super) targets: Vec<String>,
}

impl<'t, 'a> Pieces<'t, 'a> {
    pub(super) fn new(tree: &'t Tree<'a>, notes: &'t Notes) -> Pieces<'t, 'a> {
        Pieces {
            tree,
            notes,
            next: 0,
            active: Vec::new(),
            bold: None,
            italic: None,
            open: Vec::new(),
            done: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// Ends and begins pieces in front of a node; the text ends at `at` so far.
    pub(super) fn advance(&mut self, id: Id, at: usize) {
        while self.open.last().is_some_and(|open| open.end <= id) {
            if let Some(open) = self.open.pop() {
                self.push(open.start, at, open.kind);
            }
        }
        let formats = &self.tree.formats[self.next..];
        if self.active.is_empty() && formats.first().is_none_or(|format| format.at > id) {
            return;
        }
        self.active.retain(|active| active.end > id);
        let passed = formats.iter().take_while(|format| format.at <= id);
        for format in passed {
            self.next += 1;
            follow(self.tree, &mut self.active, format);
        }
        let is_on = |tags: [Tag; 2]| self.active.iter().any(|active| tags.contains(&active.tag));
        let (bold, italic) = (is_on([Tag::B, Tag::Strong]), is_on([Tag::I, Tag::Em]));
        self.bold = self.turned(self.bold, bold, at, PieceKind::Bold);
        self.italic = self.turned(self.italic, italic, at, PieceKind::Italic);
    }

    /// Where type that `is_on` started, which may begin or end at `at`.
    fn turned(
        &mut self,
        started: Option<usize>,
        is_on: bool,
        at: usize,
        kind: PieceKind,
    ) -> Option<usize> {
        match (started, is_on) {
            (Some(start), false) => {
                self.push(start, at, kind);
                None
            }
            (None, true) => {
                // type that goes on where it has just ended is one piece
                let last = self.done.iter().rposition(|piece| piece.kind == kind);
                let joined = last.filter(|&last| self.done[last].end as usize == at);
                let start = joined.map(|last| self.done.remove(last).start as usize);
                Some(start.unwrap_or(at))
            }
            (started, _) => started,
        }
    }

    /// Begins a piece at an element that is one, unless it is inside code or another piece without pieces.
    pub(super) fn begin(&mut self, id: Id, node: &Node, at: usize) {
        let kind = match node.tag {
            Tag::Code => Some(PieceKind::Code),
            Tag::A | Tag::Sup => match self.notes.reference(id) {
                Some(number) => Some(PieceKind::Note(number)),
                None if self.notes.is_backlink(id) => Some(PieceKind::Back),
                None if node.tag == Tag::A => self.link(id),
                None => None,
            },
            _ => None,
        };
        let Some(kind) = kind else { return };
        let is_link = matches!(kind, PieceKind::Link(_));
        let takes = |open: &Open| open.kind.is_open() && !(is_link && open.kind.is_open());
        if self.open.iter().all(takes) {
            self.open.push(Open {
                end: node.end,
                start: at,
                kind,
            });
        }
    }

    /// A link, if it leads somewhere.
    fn link(&mut self, id: Id) -> Option<PieceKind> {
        let target = target(self.tree, id)?;
        self.targets.push(target);
        Some(PieceKind::Link(narrow(self.targets.len() - 1)))
    }

    fn push(&mut self, start: usize, end: usize, kind: PieceKind) {
        // the text may have become shorter
        let start = start.min(end);
        if start < end || kind.may_be_empty() {
            self.done.push(Piece {
                start: narrow(start),
                end: narrow(end),
                kind,
            });
        }
    }

    /// Ends all pieces, at the end of the page.
    pub(super) fn finish(&mut self, at: usize) {
        self.advance(self.tree.len(), at);
        self.bold = self.turned(self.bold, false, at, PieceKind::Bold);
        self.italic = self.turned(self.italic, false, at, PieceKind::Italic);
    }

    /// Appends the pieces of the block that has this part of the text, nested and in order.
    pub(super) fn end_block(&mut self, from: usize, to: usize, into: &mut Vec<Piece>) {
        let still_open = self
            .open
            .iter_mut()
            .filter(|open| !open.kind.may_be_empty());
        for open in still_open {
            self.done.push(Piece {
                start: narrow(open.start.min(to)),
                end: narrow(to),
                kind: open.kind,
            });
            open.start = to;
        }
        for (start, kind) in [
            (&mut self.bold, PieceKind::Bold),
            (&mut self.italic, PieceKind::Italic),
        ] {
            if let Some(start) = start {
                self.done.push(Piece {
                    start: narrow((*start).min(to)),
                    end: narrow(to),
                    kind,
                });
                *start = to;
            }
        }
        let (from, to) = (narrow(from), narrow(to));
        let clipped = self.done.drain(..).map(|piece| Piece {
            start: piece.start.clamp(from, to),
            end: piece.end.clamp(from, to),
            ..piece
        });
        nest(clipped, into);
    }

    /// Drops the pieces of a block without text, whose place is `at`, but for references to notes: those belong to the text in
    /// front of them.
    pub(super) fn drop_block(&mut self, at: usize, into: &mut Vec<Piece>) {
        let place = narrow(at);
        let notes = self
            .done
            .drain(..)
            .filter(|piece| piece.kind.may_be_empty());
        into.extend(notes.map(|piece| Piece {
            start: place,
            end: place,
            ..piece
        }));
        let starts = self.open.iter_mut().map(|open| &mut open.start);
        for start in starts.chain(&mut self.bold).chain(&mut self.italic) {
            *start = (*start).min(at);
        }
    }
}

/// Follows a tag of bold or italic type.
fn follow(tree: &Tree<'_>, active: &mut Vec<Active>, format: &Format) {
    if !matches!(format.tag, Tag::B | Tag::Strong | Tag::I | Tag::Em) {
        return;
    }
    if !format.is_start {
        let last = active.iter().rposition(|active| active.tag == format.tag);
        last.map(|last| active.remove(last));
    } else if active.len() < MAX_NESTED {
        active.push(Active {
            tag: format.tag,
            end: tree.node(format.parent).end,
        });
    }
}

/// Appends pieces in the order of their text, outer ones first; one that reaches out of another is cut at its end.
fn nest(pieces: impl Iterator<Item = Piece>, into: &mut Vec<Piece>) {
    let is_said = |piece: &Piece| piece.start < piece.end || piece.kind.may_be_empty();
    let in_order = |piece: Piece| Reverse((piece.start, Reverse(piece.end), piece.kind));
    let mut left: BinaryHeap<_> = pieces.filter(is_said).map(in_order).collect();
    let mut around: Vec<Piece> = Vec::new();
    while let Some(Reverse((start, Reverse(end), kind))) = left.pop() {
        let mut piece = Piece { start, end, kind };
        while around.last().is_some_and(|outer| outer.end <= piece.start) {
            around.pop();
        }
        if let Some(outer) = around.last() {
            if piece.end > outer.end {
                let rest = Piece {
                    start: outer.end,
                    ..piece
                };
                piece.end = outer.end;
                if kind.is_open() {
                    left.push(in_order(rest));
                }
            }
            if !outer.kind.is_open() {
                continue;
            }
        }
        into.push(piece);
        around.push(piece);
    }
}

/// Target of a link as it is written; None for one inside the page or to no document.
fn target(tree: &Tree<'_>, id: Id) -> Option<String> {
    let target = tree.value(id, Key::Href)?;
    if target.starts_with('#') || target.len() > MAX_TARGET {
        return None;
    }
    let scheme = target
        .split(['/', '?', '#'])
        .next()
        .and_then(|start| start.split_once(':'));
    let is_known = scheme.is_none_or(|(scheme, _)| {
        SCHEMES
            .iter()
            .any(|known| scheme.eq_ignore_ascii_case(known))
    });
    is_known.then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_that_overlap_are_cut_to_nest() {
        let piece = |start, end, kind| Piece { start, end, kind };
        let nested = |pieces: &[Piece]| {
            let mut into = Vec::new();
            nest(pieces.iter().copied(), &mut into);
            into
        };
        use PieceKind::{Bold, Code, Italic, Link, Note};
        assert_eq!(
            nested(&[piece(3, 9, Italic), piece(0, 5, Bold)]),
            [piece(0, 5, Bold), piece(3, 5, Italic), piece(5, 9, Italic)]
        );
        assert_eq!(
            nested(&[
                piece(0, 5, Code),
                piece(0, 5, Italic),
                piece(0, 5, Link(0)),
                piece(2, 2, Bold)
            ]),
            [piece(0, 5, Link(0)), piece(0, 5, Italic), piece(0, 5, Code)]
        );
        // code holds no pieces
        assert_eq!(
            nested(&[piece(0, 5, Code), piece(3, 9, Bold), piece(5, 5, Note(1))]),
            [piece(0, 5, Code), piece(5, 9, Bold), piece(5, 5, Note(1))]
        );
    }
}
