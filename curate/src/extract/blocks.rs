//! A page cut into blocks of text.
//!
//! Text between two block boundaries is a block; each block records the element around it (its area), the distance
//! to each mark of its ancestors, and counts of its text. Only elements that never contain text (scripts, form
//! fields, players) are discarded here; boilerplate is detected later. Data tables give one block per row, layout
//! tables one per cell; two line breaks end a paragraph.

use rustc_hash::{FxHashMap, FxHashSet};

use super::buckets::class_words;
use super::code;
use super::counts::{Counts, count};
use super::forum::{self, Place};
use super::html::{BLOCK, HEADING, Id, Key, Node, SKIPPED, Tag, Tree};
use super::marks::{MARKS, Marked, Marker, mark, phrases};
use super::math;
use super::notes::Notes;
use super::pieces::{Piece, Pieces};
use super::rows::{Cells, Row, Span};
use crate::text::entity::push_decoded;
use crate::text::narrow;

/// Layout of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(super) enum Shape {
    #[default]
    Paragraph,
    Heading,
    Item,
    /// Row of a table; cells are separated by tabs.
    Row,
    Code,
}

/// A run of text between block boundaries.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Place in the text of the page.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Bytes inside links, and number of links.
    pub(super) linked: u32,
    pub(super) links: u32,
    pub(super) counts: Counts,
    /// Categories of phrases at its beginning.
    pub(super) phrases: u32,
    pub(super) shape: Shape,
    /// Level of a heading, or depth of an item's list.
    pub(super) level: u8,
    /// Number of an item in an ordered list, else 0.
    pub(super) number: u32,
    /// That list, else 0.
    pub(super) list: Id,
    /// The list item or table that the block belongs to, else 0.
    pub(super) group: Id,
    /// Innermost area.
    pub(super) area: u32,
    /// Depth of the area.
    pub(super) depth: u8,
    /// Depth of the nearest ancestor with each mark; 0: none.
    pub(super) near: [u8; MARKS],
    /// Place in a thread of a forum.
    pub(super) place: Place,
    /// Number of the footnote whose text this is, else 0.
    pub(super) note: u32,
    /// Its marked pieces among those of the page: the first, and the one behind the last.
    pieces: (u32, u32),
}

impl Block {
    pub(super) fn bytes(&self) -> u32 {
        self.end - self.start
    }

    /// Running text: sentences, not links.
    pub(super) fn is_prose(&self) -> bool {
        let c = &self.counts;
        c.words >= 10
            && self.linked * 3 <= self.bytes()
            && (c.ends > 0 || c.words >= 25)
            && matches!(self.shape, Shape::Paragraph | Shape::Item)
    }
}

/// A block-level element.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) tag: Tag,
    /// Area around it; the first area is its own parent.
    pub(super) parent: u32,
    /// Hash of tag and class.
    pub(super) look: u64,
    /// Its words among the class words of the page.
    words: (u32, u32),
}

/// The blocks of a page.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) blocks: Vec<Block>,
    pub(super) areas: Vec<Area>,
    /// Words of the areas' classes, see linear.rs.
    class_words: Vec<u16>,
    /// Languages of blocks of code, by their group.
    pub(super) languages: FxHashMap<Id, String>,
    /// Code of line numbers beside code, by its group.
    pub(super) numbers: FxHashSet<Id>,
    /// Marked pieces of the text, block by block.
    pieces: Vec<Piece>,
    /// Targets of links.
    pub(super) targets: Vec<String>,
    /// Cells of rows that the text does not show, by the number of the block.
    pub(super) cells: FxHashMap<usize, Cells>,
    /// Numbers of the blocks that are captions of tables.
    pub(super) captions: FxHashSet<usize>,
}

impl Page {
    /// Words of an area's class and id.
    pub(super) fn class_words_of(&self, area: u32) -> &[u16] {
        let (start, end) = self.areas[area as usize].words;
        &self.class_words[start as usize..end as usize]
    }

    /// Marked pieces of a block's text, in order, outer ones first.
    pub(super) fn pieces_of(&self, block: &Block) -> &[Piece] {
        &self.pieces[block.pieces.0 as usize..block.pieces.1 as usize]
    }

    /// Text of a block.
    pub(super) fn text_of(&self, block: &Block) -> &str {
        &self.text[block.start as usize..block.end as usize]
    }
}

/// A page may have this many blocks; the rest is left out (features take some 200 bytes each).
const MAX_BLOCKS: usize = 1 << 17;
/// A page may have this many areas.
const MAX_AREAS: usize = 1 << 20;
/// Phrases are looked for in the first bytes of a block.
const MAX_PHRASE_BYTES: usize = 1000;
/// A cell with more text than this is layout, not data.
const MAX_CELL_BYTES: usize = 600;

/// Cuts a page; with its footnotes if the pieces of the text that Markdown marks are wanted.
pub(super) fn cut(tree: &Tree<'_>, notes: Option<&Notes>) -> Page {
    let none = Notes::default();
    let pieces = notes.map(|notes| Pieces::new(tree, notes));
    let mut walk = Walk::new(tree, notes.unwrap_or(&none), pieces);
    walk.run();
    walk.page
}

#[derive(Clone)]
struct Frame {
    end: Id,
    tag: Tag,
    is_block: bool,
    is_link: bool,
    /// Inside a table of data: blocks are not ended.
    in_row: bool,
    /// Inside the caption of one.
    in_caption: bool,
    shape: Shape,
    level: u8,
    lists: u8,
    group: Id,
    number: u32,
    list: Id,
    area: u32,
    depth: u8,
    near: [u8; MARKS],
    place: Place,
    note: u32,
}

struct Walk<'t, 'a> {
    tree: &'t Tree<'a>,
    notes: &'t Notes,
    page: Page,
    /// The marked pieces of the current block, if they are wanted.
    pieces: Option<Pieces<'t, 'a>>,
    /// The current row of a table.
    row: Row,
    marker: Marker,
    frames: Vec<Frame>,
    /// Number of the last item in each open ordered list.
    counters: Vec<(Id, u32)>,
    /// Start of the current block in the text.
    start: usize,
    /// White space was read and not yet written.
    gap: bool,
    linked: u32,
    links: u32,
    /// Open links.
    depth_linked: u32,
    /// The frame where the current block's text began.
    context: Option<Box<Frame>>,
    scratch: String,
}

impl<'t, 'a> Walk<'t, 'a> {
    fn new(tree: &'t Tree<'a>, notes: &'t Notes, pieces: Option<Pieces<'t, 'a>>) -> Walk<'t, 'a> {
        let root = Frame {
            end: tree.len(),
            tag: Tag::Other,
            is_block: true,
            is_link: false,
            in_row: false,
            in_caption: false,
            shape: Shape::Paragraph,
            level: 0,
            lists: 0,
            group: 0,
            number: 0,
            list: 0,
            area: 0,
            depth: 1,
            near: [0; MARKS],
            place: 0,
            note: 0,
        };
        let area = Area {
            tag: Tag::Other,
            parent: 0,
            look: 0,
            words: (0, 0),
        };
        Walk {
            tree,
            notes,
            pieces,
            row: Row::new(),
            page: Page {
                areas: vec![area],
                ..Page::default()
            },
            marker: Marker::default(),
            frames: vec![root],
            counters: Vec::new(),
            start: 0,
            gap: false,
            linked: 0,
            links: 0,
            depth_linked: 0,
            context: None,
            scratch: String::new(),
        }
    }

    fn run(&mut self) {
        let tree = self.tree;
        let mut id = 1;
        while id < tree.len() && self.page.blocks.len() < MAX_BLOCKS {
            if let Some(pieces) = &mut self.pieces {
                pieces.advance(id, self.page.text.len());
            }
            while self.frames.len() > 1 && self.frames.last().is_some_and(|f| f.end <= id) {
                self.leave();
            }
            let node = tree.node(id);
            self.begin_piece(id, node);
            id = match node.tag {
                Tag::Text => {
                    self.push_text(tree.raw(node));
                    id + 1
                }
                Tag::Br => {
                    self.push_break();
                    id + 1
                }
                Tag::Noscript if tree.has_no_scripts => id + 1,
                Tag::Math | Tag::Script => {
                    self.push_formula(id);
                    node.end
                }
                tag if tag.is(SKIPPED) => node.end,
                _ => self.enter(id, node),
            };
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.finish(self.page.text.len());
        }
        self.flush();
        if let Some(pieces) = &mut self.pieces {
            self.page.targets = std::mem::take(&mut pieces.targets);
        }
    }

    /// Begins a marked piece, if the element is one.
    fn begin_piece(&mut self, id: Id, node: &Node) {
        let Some(pieces) = &mut self.pieces else {
            return;
        };
        if self.frames.last().is_none_or(|f| f.shape != Shape::Code) {
            pieces.begin(id, node, self.page.text.len());
        }
    }

    /// Enters an element; returns the next node.
    fn enter(&mut self, id: Id, node: &Node) -> Id {
        let tag = node.tag;
        let is_block = tag.is(BLOCK) || tag == Tag::Button;
        if !is_block && !matches!(tag, Tag::A | Tag::Other | Tag::Label | Tag::Span | Tag::Sup) {
            return id + 1;
        }
        let Marked { marks, look, words } = self.marker.marks(self.tree, node);
        if !is_block {
            if marks & (1 << mark::HIDDEN) != 0 {
                // MediaWiki shows a picture of the formula that it hides
                let inside = (id + 1 < node.end).then_some(id + 1);
                if let Some(math) = inside.filter(|&i| self.tree.node(i).tag == Tag::Math) {
                    self.push_formula(math);
                }
                return node.end;
            }
            let is_note = marks & (1 << (mark::CLASSES + FOOTNOTE)) != 0;
            // the text of a note is called like a reference to it
            let in_note = tag == Tag::Span && self.frames.last().is_some_and(|f| f.note > 0);
            if is_note && matches!(tag, Tag::Sup | Tag::Span) && !in_note {
                return node.end;
            }
            if marks == 0 && words == 0 {
                return id + 1;
            }
        }
        let Some(mut frame) = self.frames.last().cloned() else {
            return node.end;
        };
        frame.end = node.end;
        frame.tag = tag;
        if is_block && !self.notes.is_empty() {
            frame.note = self.notes.definition(id).unwrap_or(frame.note);
        }
        let around = frame.place;
        frame.place = forum::enter(around, words, tag);
        if forum::begins_text(around, frame.place) {
            // a list of posts is no list in the text
            frame.shape = Shape::Paragraph;
            frame.lists = 0;
        }
        frame.is_link = tag == Tag::A;
        self.depth_linked += u32::from(frame.is_link);
        self.links += u32::from(frame.is_link);
        frame.is_block = is_block && !frame.in_row;
        if frame.is_block {
            self.flush();
            self.open_area(&mut frame, node, look);
            self.shape(&mut frame, id, tag);
        } else if frame.in_row && is_block {
            match tag {
                Tag::Tr => {
                    self.flush();
                    self.row.begin();
                    frame.is_block = true;
                }
                Tag::Caption => {
                    self.flush();
                    frame.is_block = true;
                    frame.in_caption = true;
                }
                Tag::Thead | Tag::Tbody | Tag::Tfoot => {
                    self.row.begin_group();
                    self.gap = true;
                }
                Tag::Td | Tag::Th => self.push_cell(id),
                _ => self.gap = true,
            }
        }
        if !frame.is_block && !frame.in_row && forum::begins_text(around, frame.place) {
            // the text of a post may be inline, and a name follows it
            self.flush();
            frame.is_block = true;
        }
        let mut rest = marks;
        while rest != 0 {
            let one = rest.trailing_zeros() as usize;
            frame.near[one] = frame.depth;
            rest &= rest - 1;
        }
        self.frames.push(frame);
        id + 1
    }

    fn open_area(&mut self, frame: &mut Frame, node: &Node, look: u64) {
        frame.depth = frame.depth.saturating_add(1);
        if self.page.areas.len() < MAX_AREAS {
            let area = narrow(self.page.areas.len());
            let parent = frame.area;
            let start = narrow(self.page.class_words.len());
            class_words(self.tree, node, &mut self.page.class_words);
            self.page.areas.push(Area {
                tag: node.tag,
                parent,
                look,
                words: (start, narrow(self.page.class_words.len())),
            });
            frame.area = area;
        }
    }

    /// The number that an ordered list or an item of one gives; none that Markdown cannot (CommonMark 0.31.2, 5.2: 9 digits), and
    /// none below 1.
    fn item_number(&self, id: Id, key: Key) -> Option<u32> {
        let number = self.tree.attribute(id, key)?.trim().parse().ok()?;
        (1..=999_999_999).contains(&number).then_some(number)
    }

    /// Records an element's effect on the layout of its blocks.
    fn shape(&mut self, frame: &mut Frame, id: Id, tag: Tag) {
        match tag {
            _ if tag.is(HEADING) => {
                frame.shape = Shape::Heading;
                frame.level = tag.heading_level();
            }
            Tag::Ul | Tag::Ol | Tag::Dir | Tag::Menu | Tag::Dl => {
                frame.lists = frame.lists.saturating_add(1);
                frame.shape = Shape::Paragraph;
                if tag == Tag::Ol {
                    while self
                        .counters
                        .last()
                        .is_some_and(|c| self.tree.node(c.0).end <= id)
                    {
                        self.counters.pop();
                    }
                    let first = self.item_number(id, Key::Start);
                    self.counters.push((id, first.map_or(0, |first| first - 1)));
                }
            }
            Tag::Li | Tag::Dd | Tag::Dt => {
                frame.shape = Shape::Item;
                frame.level = frame.lists;
                frame.group = id;
                (frame.number, frame.list) = (0, 0);
                let parent = self.tree.node(id).parent;
                let told = self.item_number(id, Key::Value);
                if let Some(counter) = self.counters.last_mut().filter(|c| c.0 == parent) {
                    counter.1 = told.unwrap_or(counter.1 + 1);
                    frame.number = counter.1;
                    frame.list = parent;
                }
            }
            Tag::Pre | Tag::Listing | Tag::Xmp | Tag::Plaintext => {
                frame.shape = Shape::Code;
                frame.group = id;
                if let Some(language) = code::language(self.tree, id) {
                    self.page.languages.insert(id, language);
                }
                if code::is_line_numbers(self.tree, id) {
                    self.page.numbers.insert(id);
                }
            }
            // Hacker News lays a submission out as a table of short cells
            Tag::Table
                if frame.place & forum::NEWS == 0
                    && let Some(cells) = self.cells_of_data(id) =>
            {
                self.row.begin_table(cells);
                frame.shape = Shape::Row;
                frame.in_row = true;
                frame.group = id;
            }
            Tag::Td | Tag::Th | Tag::Blockquote => frame.shape = Shape::Paragraph,
            _ => {}
        }
    }

    /// Cells of the longest row of a table whose cells hold short text: several rows, no tables, headings or lists inside.
    fn cells_of_data(&self, table: Id) -> Option<usize> {
        let (mut rows, mut cells, mut bytes) = (0, 0, 0);
        let (mut in_row, mut most) = (0, 0);
        for id in table + 1..self.tree.node(table).end {
            let node = self.tree.node(id);
            match node.tag {
                Tag::Table | Tag::Ul | Tag::Ol | Tag::Form | Tag::Pre | Tag::Article => {
                    return None;
                }
                tag if tag.is(HEADING) => return None,
                Tag::Tr => (rows, in_row) = (rows + 1, 0),
                Tag::Td | Tag::Th => {
                    cells += 1;
                    in_row += 1;
                    most = most.max(in_row);
                    bytes = 0;
                }
                Tag::Text => {
                    bytes += self.tree.raw(node).trim().len();
                    if bytes > MAX_CELL_BYTES {
                        return None;
                    }
                }
                _ => {}
            }
        }
        (rows >= 2 && cells > rows).then_some(most)
    }

    fn leave(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        self.depth_linked -= u32::from(frame.is_link);
        if frame.is_block {
            self.flush();
        } else if frame.in_row {
            self.gap = true;
        }
    }

    fn push_text(&mut self, raw: &str) {
        if memchr::memchr2(b'&', 0, raw.as_bytes()).is_none() {
            return self.push_plain(raw);
        }
        let mut decoded = std::mem::take(&mut self.scratch);
        decoded.clear();
        push_decoded(&mut decoded, raw, false);
        self.push_plain(&decoded);
        self.scratch = decoded;
    }

    /// Appends the TeX of an element, if it is a formula.
    fn push_formula(&mut self, id: Id) {
        if let Some(source) = math::formula(self.tree, id) {
            self.push_plain(&source);
        }
    }

    fn push_plain(&mut self, text: &str) {
        let before = self.page.text.len();
        let is_code = self.frames.last().is_some_and(|f| f.shape == Shape::Code);
        if is_code {
            self.page.text.extend(text.split('\r'));
        } else {
            self.push_squeezed(text);
        }
        let added = self.page.text.len() - before;
        if added > 0 && self.context.is_none() {
            self.context = self.frames.last().cloned().map(Box::new);
        }
        if self.depth_linked > 0 {
            self.linked += narrow(added);
        }
    }

    /// Appends with runs of white space as one space, without soft hyphens and zero-width spaces.
    fn push_squeezed(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut word = 0;
        let mut at = 0;
        while let Some(&b) = bytes.get(at) {
            // words with one space between them are copied together
            if b == b' ' && at > word && bytes.get(at + 1).is_some_and(|next| is_plain(*next)) {
                at += 2;
                continue;
            }
            // Length of the separator here, and whether it is white space.
            let (length, is_space) = match b {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0c => (1, true),
                0xc2 if bytes[at + 1] == 0xa0 => (2, true),
                0xc2 if bytes[at + 1] == 0xad => (2, false),
                0xe2 if bytes[at + 1..].starts_with(&[0x80, 0x8b]) => (3, false),
                0xef if bytes[at + 1..].starts_with(&[0xbb, 0xbf]) => (3, false),
                0..0x20 => (1, false),
                _ => {
                    at += 1;
                    continue;
                }
            };
            self.push_word(&text[word..at]);
            self.gap |= is_space;
            at += length;
            word = at;
        }
        self.push_word(&text[word..]);
    }

    fn push_word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        let out = &mut self.page.text;
        if self.gap && out.len() > self.start && !out.ends_with(['\n', '\t']) {
            out.push(' ');
        }
        self.gap = false;
        out.push_str(word);
    }

    fn push_break(&mut self) {
        let Some((in_row, is_code)) = self
            .frames
            .last()
            .map(|f| (f.in_row, f.shape == Shape::Code))
        else {
            return;
        };
        self.gap = false;
        if is_code {
            self.page.text.push('\n');
        } else if in_row {
            self.gap = true;
        } else if self.page.text.len() > self.start {
            if self.page.text.ends_with('\n') {
                self.flush();
            } else {
                self.page.text.push('\n');
            }
        }
    }

    fn push_cell(&mut self, id: Id) {
        let is_blank = self.page.text.len() <= self.start;
        let span = Span {
            columns: self.tree.attribute(id, Key::Colspan),
            rows: self.tree.attribute(id, Key::Rowspan),
        };
        self.row.cell(span, is_blank);
        if !is_blank {
            self.page.text.push('\t');
        }
        self.gap = false;
    }

    /// Ends the current block.
    fn flush(&mut self) {
        let (linked, links) = (
            std::mem::take(&mut self.linked),
            std::mem::replace(&mut self.links, self.depth_linked),
        );
        self.gap = false;
        let start = self.start;
        let written = &self.page.text[start..];
        if written.is_empty() {
            return self.drop_block();
        }
        let context = self.context.take();
        let is_code = context.as_ref().is_some_and(|f| f.shape == Shape::Code);
        let lead = if is_code {
            // The line feed right after the tag is not part of the text.
            written.len() - written.trim_start_matches('\n').len()
        } else {
            written.len() - written.trim_start().len()
        };
        let text = &written[lead..];
        let text = text.trim_end();
        let (from, to) = (start + lead, start + lead + text.len());
        let Some(frame) = context.filter(|_| !text.trim().is_empty()) else {
            self.page.text.truncate(start);
            return self.drop_block();
        };
        let head = &text[..text.floor_char_boundary(MAX_PHRASE_BYTES)];
        let (counts, phrases) = (count(text), phrases(head));
        let first = narrow(self.page.pieces.len());
        if let Some(pieces) = &mut self.pieces {
            pieces.end_block(from, to, &mut self.page.pieces);
        }
        if frame.in_row {
            // a cell of white space that is no HTML's was trimmed off
            let trimmed = written[..lead].matches('\t').count();
            let cells = text.matches('\t').count() + 1;
            if let Some(cells) = self.row.end(trimmed, cells) {
                self.page.cells.insert(self.page.blocks.len(), cells);
            }
            if frame.in_caption {
                self.page.captions.insert(self.page.blocks.len());
            }
        }
        self.page.blocks.push(Block {
            start: narrow(from),
            end: narrow(to),
            linked: linked.min(narrow(to - from)),
            links,
            counts,
            phrases,
            shape: frame.shape,
            level: frame.level,
            number: frame.number,
            list: frame.list,
            group: frame.group,
            area: frame.area,
            depth: frame.depth,
            near: frame.near,
            place: frame.place,
            note: frame.note,
            pieces: (first, narrow(self.page.pieces.len())),
        });
        self.page.text.truncate(to);
        self.start = to;
    }

    /// Ends a block without text.
    fn drop_block(&mut self) {
        self.row.end(0, 0);
        let Some(pieces) = &mut self.pieces else {
            return;
        };
        pieces.drop_block(self.start, &mut self.page.pieces);
        if let Some(last) = self.page.blocks.last_mut() {
            last.pieces.1 = narrow(self.page.pieces.len());
        }
    }
}

/// Index of the class category of footnote marks among the categories.
const FOOTNOTE: usize = 30;

/// Whether a byte is that of a character which the text has as it is, whatever follows.
fn is_plain(byte: u8) -> bool {
    byte > b' ' && !matches!(byte, 0xc2 | 0xe2 | 0xef)
}
