//! HTML tree builder: a page as nodes in document order.
//!
//! Tree construction after the HTML standard (WHATWG, section 13.2.6), reduced to the rules that decide the
//! position of text: implied end tags, scopes, tables, one open link at a time. A node's descendants follow it up
//! to `end`, so a subtree is skipped by one jump and sums over subtrees are one backward loop.
//!
//! We differ from browsers where it moves no text between blocks: formatting elements (b, i, em ..) get no node;
//! text between table rows stays where it was written instead of moving before the table; `html`, `head`, `body`
//! and `tbody` are not made up; an end tag that closes a link with open blocks inside repeats those blocks after
//! the link, at most eight.
//!
//! Work is bounded by a count, never by a clock: nesting stops at 512 as in browsers, and searches of the stack of
//! open elements may take a limited number of steps per byte; a page that needs more is cut off there.

use super::names::{
    BLOCK, BREAKS_OUT, ENDS_P, FORMATTING, HEADING, IN_HEAD, Key, RAW, SCOPE, SPECIAL, TABLE_PART,
    Tag, VOID,
};
use super::token::{Span, Token, Tokenizer};
use crate::text::entity::push_decoded;
use crate::text::narrow;

/// Index of a node.
pub(crate) type Id = u32;
/// No node.
const NONE: Id = Id::MAX;

/// An element or a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) tag: Tag,
    /// `NONE` for node 0, the document.
    pub(crate) parent: Id,
    /// First node after the subtree.
    pub(crate) end: Id,
    /// Text: its position in the page. Element: its range of attributes.
    span: Span,
}

struct Attribute {
    key: Key,
    value: Span,
}

/// A tag of formatting, such as bold type, which is no node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// The node that follows.
    pub(crate) at: Id,
    /// The element that it is in.
    pub(crate) parent: Id,
    pub(crate) tag: Tag,
    /// A start tag, not an end tag.
    pub(crate) is_start: bool,
}

/// A parsed page.
pub(crate) struct Tree<'a> {
    html: &'a str,
    nodes: Vec<Node>,
    attributes: Vec<Attribute>,
    /// The page wanted more work than its length allows and was cut off.
    pub(crate) is_cut: bool,
    /// Parsed as by a browser without scripts: `noscript` holds elements, else one text.
    pub(crate) has_no_scripts: bool,
    /// The texts of `noscript` elements.
    noscripts: Vec<Span>,
    /// Tags of bold and italic type, in order; of a page with very many only the first.
    pub(crate) formats: Vec<Format>,
}

impl<'a> Tree<'a> {
    /// Number of nodes; ids are below it.
    pub(crate) fn len(&self) -> Id {
        narrow(self.nodes.len())
    }

    /// A node.
    #[inline]
    pub(crate) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    /// Text of a text node as written, references unresolved.
    #[inline]
    pub(crate) fn raw(&self, node: &Node) -> &'a str {
        self.slice(node.span)
    }

    fn slice(&self, span: Span) -> &'a str {
        &self.html[span.start as usize..span.end as usize]
    }

    /// Attributes of an element as written, references unresolved; the first of a name counts.
    #[inline]
    pub(crate) fn attributes(&self, node: &Node) -> impl Iterator<Item = (Key, &'a str)> + '_ {
        let range = if node.tag == Tag::Text {
            0..0
        } else {
            node.span.start as usize..node.span.end as usize
        };
        self.attributes[range]
            .iter()
            .map(|a| (a.key, self.slice(a.value)))
    }

    /// An attribute as written.
    pub(crate) fn attribute(&self, id: Id, key: Key) -> Option<&'a str> {
        self.attributes(self.node(id))
            .find(|a| a.0 == key)
            .map(|a| a.1)
    }

    /// An attribute with references resolved and without white space around it, unless empty.
    pub(crate) fn value(&self, id: Id, key: Key) -> Option<String> {
        let mut value = String::new();
        push_decoded(&mut value, self.attribute(id, key)?, true);
        let trimmed = value.trim();
        (!trimmed.is_empty()).then(|| trimmed.to_string())
    }

    /// Markup inside `noscript` elements.
    pub(crate) fn noscripts(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.noscripts.iter().map(|&span| self.slice(span))
    }

    /// Text below a node, as written, in order; of a node with very many below it only the first.
    pub(crate) fn texts_below(&self, id: Id) -> impl Iterator<Item = &'a str> + '_ {
        self.nodes[id as usize..self.node(id).end as usize]
            .iter()
            .take(MAX_BELOW)
            .filter(|n| n.tag == Tag::Text)
            .map(|n| self.raw(n))
    }
}

/// Maximum nodes visited for the text below a node: titles and names are short.
const MAX_BELOW: usize = 512;
/// Nesting stops here, as in browsers.
const MAX_DEPTH: usize = 512;
/// Steps along the stack of open elements that each byte of the page allows.
const STEPS_PER_BYTE: usize = 8;
/// A page may have this many nodes (20 bytes each), and as many attributes: memory stays bounded.
const MAX_NODES: usize = 4 << 20;
/// Tags of bold and italic type that are recorded (16 bytes each).
const MAX_FORMATS: usize = 1 << 20;
/// Blocks repeated after a link that ends inside them.
const MAX_REPEATED: usize = 8;
/// An attribute longer than this is left out; a page's data hides in them.
const MAX_ATTRIBUTE_BYTES: u32 = 16 << 10;

/// Parses a page of at most 4 GiB as a browser that runs scripts; never fails.
pub(crate) fn parse(html: &str) -> Tree<'_> {
    build(html, false)
}

/// Like [`parse`], as a browser without scripts.
pub(crate) fn parse_without_scripts(html: &str) -> Tree<'_> {
    build(html, true)
}

fn build(html: &str, has_no_scripts: bool) -> Tree<'_> {
    let mut builder = Builder {
        tree: Tree {
            html,
            nodes: Vec::with_capacity(html.len() / 40 + 16),
            attributes: Vec::with_capacity(html.len() / 100 + 16),
            is_cut: false,
            has_no_scripts,
            noscripts: Vec::new(),
            formats: Vec::new(),
        },
        tokens: Tokenizer::new(html),
        open: Vec::with_capacity(64),
        counts: [0; 256],
        excess: 0,
        steps: 0,
        has_body: false,
        body: NONE,
        root: NONE,
    };
    builder.run();
    builder.tree
}

/// An element whose end was not seen yet.
#[derive(Clone, Copy)]
struct Open {
    id: Id,
    tag: Tag,
    /// For a tag that has no number: hash of its name.
    name: u32,
}

struct Builder<'a> {
    tree: Tree<'a>,
    tokens: Tokenizer<'a>,
    open: Vec<Open>,
    /// Open elements of each tag: most searches need not begin.
    counts: [u16; 256],
    /// Open elements past the greatest depth.
    excess: usize,
    steps: usize,
    has_body: bool,
    body: Id,
    root: Id,
}

impl Builder<'_> {
    fn run(&mut self) {
        self.push_node(Tag::Other, NONE, Span::default());
        let document = Open {
            id: 0,
            tag: Tag::Other,
            name: 0,
        };
        self.open.push(document);
        let html = self.tree.html;
        loop {
            let first = narrow(self.tree.attributes.len());
            let attributes = &mut self.tree.attributes;
            let token = self.tokens.next(&mut |name, value| {
                let key = Key::of(&html.as_bytes()[name.start as usize..name.end as usize]);
                let short = value.end - value.start <= MAX_ATTRIBUTE_BYTES || key == Key::Content;
                if key != Key::Other && short {
                    attributes.push(Attribute { key, value });
                }
            });
            match token {
                None => break,
                Some(Token::Text(span)) => self.text(span),
                Some(Token::Start(name)) => {
                    let end = narrow(self.tree.attributes.len());
                    self.start(name, Span { start: first, end });
                }
                Some(Token::End(name)) => self.end(name),
            }
            let is_costly = self.steps > STEPS_PER_BYTE * self.tokens.position() + 10_000;
            if is_costly || self.tree.nodes.len().max(self.tree.attributes.len()) > MAX_NODES {
                self.tree.is_cut = true;
                break;
            }
        }
        self.close_to(0);
    }

    fn push_node(&mut self, tag: Tag, parent: Id, span: Span) -> Id {
        let id = narrow(self.tree.nodes.len());
        let end = id + 1;
        self.tree.nodes.push(Node {
            tag,
            parent,
            end,
            span,
        });
        id
    }

    /// Whether the content of an element is text up to its end tag.
    fn is_raw(&self, tag: Tag) -> bool {
        tag.is(RAW) && !(tag == Tag::Noscript && self.tree.has_no_scripts)
    }

    fn current(&self) -> Open {
        self.open.last().copied().unwrap_or(Open {
            id: 0,
            tag: Tag::Other,
            name: 0,
        })
    }

    /// Opens an element.
    fn push(&mut self, tag: Tag, name: u32, attributes: Span) {
        let parent = self.current().id;
        // Raw text needs a separate element; it has no children.
        if self.open.len() >= MAX_DEPTH && !self.is_raw(tag) {
            self.excess += 1;
            // Too deep to nest, but text on both sides of a block stays apart.
            if tag.is(BLOCK) {
                self.push_node(tag, parent, attributes);
            }
            return;
        }
        let id = self.push_node(tag, parent, attributes);
        self.counts[tag as usize] += 1;
        self.open.push(Open { id, tag, name });
    }

    /// Closes open elements until `depth` of them are left.
    fn close_to(&mut self, depth: usize) {
        let end = narrow(self.tree.nodes.len());
        for open in self.open.drain(depth..) {
            self.tree.nodes[open.id as usize].end = end;
            self.counts[open.tag as usize] = self.counts[open.tag as usize].saturating_sub(1);
        }
    }

    /// Depth of the innermost open element that `is_it`, unless one that `stops` is further in.
    fn find(
        &mut self,
        is_it: impl Fn(&Open) -> bool,
        stops: impl Fn(Tag) -> bool,
    ) -> Option<usize> {
        for (depth, open) in self.open.iter().enumerate().skip(1).rev() {
            self.steps += 1;
            if is_it(open) {
                return Some(depth);
            }
            if stops(open.tag) {
                return None;
            }
        }
        None
    }

    /// Depth of the innermost open `tag` in scope.
    fn find_tag(&mut self, tag: Tag, stops: impl Fn(Tag) -> bool) -> Option<usize> {
        if self.counts[tag as usize] == 0 {
            return None;
        }
        self.find(|o| o.tag == tag, stops)
    }

    fn close_p(&mut self) {
        if let Some(depth) = self.find_tag(Tag::P, |t| t.is(SCOPE) || t == Tag::Button) {
            self.close_to(depth);
        }
    }

    fn text(&mut self, span: Span) {
        let current = self.current();
        if current.tag == Tag::Head || current.tag == Tag::Html || current.id == 0 {
            let blank = self.tree.html[span.start as usize..span.end as usize]
                .bytes()
                .all(|b| b.is_ascii_whitespace());
            if blank {
                return;
            }
            self.leave_head();
        }
        let current = self.current();
        if current.tag == Tag::Noscript && !self.tree.has_no_scripts {
            self.tree.noscripts.push(span);
        }
        self.push_node(Tag::Text, current.id, span);
    }

    fn leave_head(&mut self) {
        if self.current().tag == Tag::Head {
            let depth = self.open.len() - 1;
            self.close_to(depth);
        }
        self.has_body = true;
    }

    fn start(&mut self, name: Span, attributes: Span) {
        let written = &self.tree.html.as_bytes()[name.start as usize..name.end as usize];
        let tag = Tag::of(written);
        if self.tokens.foreign && !self.stays_foreign(tag) {
            let depth = self.find(|o| matches!(o.tag, Tag::Svg | Tag::Math), |_| false);
            self.close_to(depth.unwrap_or(1));
            self.tokens.foreign = false;
        }
        let name = if tag == Tag::Other { hash(written) } else { 0 };
        if self.tokens.foreign {
            if self.tokens.is_self_closing {
                self.push_node(tag, self.current().id, attributes);
            } else {
                self.push(tag, name, attributes);
            }
            return;
        }
        if tag.is(FORMATTING) {
            self.leave_head();
            self.tree.attributes.truncate(attributes.start as usize);
            self.format(tag, true);
            return;
        }
        if !self.place(tag) {
            self.merge_or_drop(tag, attributes);
            return;
        }
        if tag.is(VOID) {
            let parent = self.current().id;
            self.push_node(tag, parent, attributes);
            return;
        }
        self.push(tag, name, attributes);
        if self.is_raw(tag) {
            self.tokens.enter_raw(tag);
        } else if matches!(tag, Tag::Svg | Tag::Math) && self.excess == 0 {
            self.tokens.foreign = true;
        }
        match tag {
            Tag::Body => self.body = self.current().id,
            Tag::Html => self.root = self.current().id,
            _ => {}
        }
    }

    /// Records a tag of bold or italic type.
    fn format(&mut self, tag: Tag, is_start: bool) {
        let is_type = matches!(tag, Tag::B | Tag::Strong | Tag::I | Tag::Em);
        if is_type && self.tree.formats.len() < MAX_FORMATS {
            let parent = self.current().id;
            self.tree.formats.push(Format {
                at: narrow(self.tree.nodes.len()),
                parent,
                tag,
                is_start,
            });
        }
    }

    /// Inside SVG or MathML, and `tag` does not end it.
    fn stays_foreign(&mut self, tag: Tag) -> bool {
        !tag.is(BREAKS_OUT)
            || self.counts[Tag::ForeignObject as usize] > 0
            || self.counts[Tag::Desc as usize] > 0
            || self.counts[Tag::Title as usize] > 0
    }

    /// Closes the elements that the start of `tag` closes; false if such an element is not allowed here.
    fn place(&mut self, tag: Tag) -> bool {
        match tag {
            Tag::Html => return self.root == NONE && self.open.len() == 1,
            Tag::Head => {
                let is_first = !self.has_body && self.counts[Tag::Head as usize] == 0;
                return is_first && self.tree.nodes.len() <= 2;
            }
            Tag::Body => {
                let is_first = self.body == NONE && !self.has_body;
                self.leave_head();
                return is_first;
            }
            Tag::Frameset | Tag::Frame => return false,
            // Between the parts of a table it holds nothing.
            Tag::Form if self.current().tag.is(TABLE_PART) => return false,
            _ => {}
        }
        if !tag.is(IN_HEAD) && !self.has_body {
            self.leave_head();
        }
        if tag.is(ENDS_P) {
            self.close_p();
        }
        match tag {
            Tag::A => self.end_link(),
            Tag::Li => self.close_item(|t| t == Tag::Li),
            Tag::Dd | Tag::Dt => self.close_item(|t| matches!(t, Tag::Dd | Tag::Dt)),
            Tag::Button => {
                if let Some(depth) = self.find_tag(Tag::Button, |t| t.is(SCOPE)) {
                    self.close_to(depth);
                }
            }
            Tag::Opt | Tag::Optgroup if self.current().tag == Tag::Opt => {
                self.close_to(self.open.len() - 1);
            }
            Tag::Select | Tag::Input | Tag::Textarea => {
                if let Some(depth) = self.find_tag(Tag::Select, |t| t.is(SCOPE)) {
                    self.close_to(depth);
                }
            }
            Tag::Caption
            | Tag::Colgroup
            | Tag::Tbody
            | Tag::Thead
            | Tag::Tfoot
            | Tag::Tr
            | Tag::Td
            | Tag::Th => self.close_cells(tag),
            _ if tag.is(HEADING) && self.current().tag.is(HEADING) => {
                self.close_to(self.open.len() - 1);
            }
            _ => {}
        }
        true
    }

    /// Closes the list item that a sibling follows.
    fn close_item(&mut self, is_item: impl Fn(Tag) -> bool) {
        let is_item = &is_item;
        let stops =
            |t: Tag| t.is(SPECIAL) && !matches!(t, Tag::Address | Tag::Div | Tag::P) && !is_item(t);
        if let Some(depth) = self.find(|o| is_item(o.tag), stops) {
            self.close_to(depth);
        }
        self.close_p();
    }

    /// Closes the parts of a table that cannot hold `tag`.
    fn close_cells(&mut self, tag: Tag) {
        let holds = |t: Tag| match tag {
            Tag::Td | Tag::Th => matches!(t, Tag::Tr | Tag::Tbody | Tag::Thead | Tag::Tfoot),
            Tag::Tr => matches!(t, Tag::Tbody | Tag::Thead | Tag::Tfoot),
            _ => false,
        };
        let ends = |t: Tag| matches!(t, Tag::Table | Tag::Template | Tag::Html);
        if self.counts[Tag::Table as usize] == 0 {
            return;
        }
        if let Some(depth) = self.find(|o| holds(o.tag) || ends(o.tag), |_| false) {
            self.close_to(depth + 1);
        }
    }

    /// A second `html` or `body` only adds attributes, and only those of `html` are used.
    fn merge_or_drop(&mut self, tag: Tag, attributes: Span) {
        let target = if tag == Tag::Html { self.root } else { NONE };
        match self.tree.nodes.get_mut(target as usize) {
            Some(node) if node.span.start == node.span.end => node.span = attributes,
            _ => self.tree.attributes.truncate(attributes.start as usize),
        }
    }

    fn end(&mut self, name: Span) {
        let written = &self.tree.html.as_bytes()[name.start as usize..name.end as usize];
        let tag = Tag::of(written);
        if tag.is(FORMATTING) && !self.tokens.foreign {
            self.format(tag, false);
            return;
        }
        if self.excess > 0 && tag != Tag::Br && !self.is_raw(tag) {
            self.excess -= 1;
            return;
        }
        let found = match tag {
            Tag::Br => {
                let parent = self.current().id;
                self.push_node(Tag::Br, parent, Span::default());
                return;
            }
            // The content after them still belongs to the page.
            Tag::Html | Tag::Body => return,
            Tag::Head => {
                self.leave_head_at_end_tag();
                return;
            }
            Tag::A => return self.end_link(),
            Tag::P => self.find_tag(tag, |t| t.is(SCOPE) || t == Tag::Button),
            Tag::Li => self.find_tag(tag, |t| t.is(SCOPE) || matches!(t, Tag::Ul | Tag::Ol)),
            Tag::H1 | Tag::H2 | Tag::H3 | Tag::H4 | Tag::H5 | Tag::H6 => {
                self.find(|o| o.tag.is(HEADING), |t| t.is(SCOPE))
            }
            Tag::Table
            | Tag::Tbody
            | Tag::Thead
            | Tag::Tfoot
            | Tag::Tr
            | Tag::Td
            | Tag::Th
            | Tag::Caption => self.find_tag(tag, |t| matches!(t, Tag::Table | Tag::Template)),
            // Its end is often misplaced, and it does not affect the display of its content anyway.
            Tag::Form if self.current().tag != Tag::Form => None,
            Tag::Svg | Tag::Math => {
                let depth = self.find_tag(tag, |_| false);
                self.tokens.foreign &= depth.is_none();
                depth
            }
            Tag::Other => {
                let name = hash(written);
                if self.counts[Tag::Other as usize] == 0 {
                    return;
                }
                self.find(|o| o.tag == Tag::Other && o.name == name, |t| t.is(SPECIAL))
            }
            _ if tag.is(BLOCK) || tag.is(SCOPE) || tag == Tag::Button => {
                self.find_tag(tag, |t| t.is(SCOPE))
            }
            _ if self.is_raw(tag) => self.find_tag(tag, |_| false),
            _ => self.find_tag(tag, |t| t.is(SPECIAL)),
        };
        if let Some(depth) = found {
            self.close_to(depth);
        }
    }

    fn leave_head_at_end_tag(&mut self) {
        if let Some(depth) = self.find_tag(Tag::Head, |_| false) {
            self.close_to(depth);
        }
    }

    /// Ends the open link, if there is one, and reopens the blocks inside it.
    fn end_link(&mut self) {
        let Some(depth) = self.find_tag(Tag::A, |t| t.is(SCOPE)) else {
            return;
        };
        let inside: Vec<Open> = self.open[depth + 1..]
            .iter()
            .filter(|o| o.tag.is(BLOCK))
            .take(MAX_REPEATED)
            .copied()
            .collect();
        self.close_to(depth);
        for open in inside {
            let attributes = self.tree.node(open.id).span;
            self.push(open.tag, open.name, attributes);
        }
    }
}

/// FNV-1a of a name in lower case.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |h, b| {
        (h ^ u32::from(b.to_ascii_lowercase())).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree as brackets: `tag(children)`, text in quotes.
    fn shape(html: &str) -> String {
        let tree = parse(html);
        let mut out = String::new();
        let mut ends = Vec::new();
        for id in 1..tree.len() {
            while ends.last().is_some_and(|&e| e <= id) {
                ends.pop();
                out.push(')');
            }
            let node = tree.node(id);
            if node.tag == Tag::Text {
                out.push_str(&format!("'{}'", tree.raw(node)));
            } else {
                out.push_str(&format!(" {}(", node.tag.text()));
                ends.push(node.end);
            }
        }
        out + &")".repeat(ends.len())
    }

    #[test]
    fn implied_ends_are_those_of_the_standard() {
        for (html, want) in [
            ("<p>a<p>b<div>c</div>d", " p('a') p('b') div('c')'d'"),
            (
                "<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e",
                " ul( li('a') li('b' ul( li('c'))) li('d'))'e'",
            ),
            ("<dl><dt>a<dd>b<dt>c</dl>", " dl( dt('a') dd('b') dt('c'))"),
            (
                "<table><tr><td>a<td>b<tr><td>c</table>d",
                " table( tr( td('a') td('b')) tr( td('c')))'d'",
            ),
            (
                "<table><tr><td><table><tr><td>a</table>b</table>c",
                " table( tr( td( table( tr( td('a')))'b')))'c'",
            ),
            ("<p>a<b>b<i>c</b>d</i>e", " p('a''b''c''d''e')"),
            ("<h1>a<h2>b</h3>c", " h1('a') h2('b')'c'"),
            ("<div><p>a</div>b", " div( p('a'))'b'"),
            ("<div><span>a</div>b</span>c", " div( span('a'))'b''c'"),
            ("<a>x<a>y</a>z", " a('x') a('y')'z'"),
            ("<a>x<div>y</a>z</div>w", " a('x' div('y')) div('z')'w'"),
            (
                "<svg><path/><title>t</title><p>a</p>",
                " svg( path() title('t')) p('a')",
            ),
            ("a</p>b<br>c</br>d", "'a''b' br()'c' br()'d'"),
            (
                "<select><option>a<option>b</select>c",
                " select( option('a') option('b'))'c'",
            ),
            ("<script>a<p></script>b", " script('a<p>')'b'"),
        ] {
            // SVG shapes have no number here, and so no name.
            let want = want.replace("path", "");
            assert_eq!(shape(html), want, "{html}");
        }
    }

    #[test]
    fn head_and_body_hold_what_browsers_put_there() {
        assert_eq!(
            shape(
                "<!doctype html><html><head><title>t</title><meta name=a></head> <body>x</body>y</html>z"
            ),
            " html( head( title('t') meta()) body('x''y''z'))"
        );
        assert_eq!(
            shape("<html><title>t</title><p>x"),
            " html( title('t') p('x'))"
        );
        assert_eq!(shape("<head><meta name=a><p>x"), " head( meta()) p('x')");
    }

    #[test]
    fn nesting_and_work_are_bounded() {
        let html = "<div>x".repeat(100_000);
        let deep = parse(&html);
        assert!(!deep.is_cut);
        let mut depth = vec![0usize; deep.len() as usize];
        for id in 1..deep.len() {
            depth[id as usize] = depth[deep.node(id).parent as usize] + 1;
        }
        assert!(depth.iter().all(|&d| d <= MAX_DEPTH + 1));
        // Each end tag searches the whole stack in vain.
        let costly = "<span>".repeat(500) + &"</u-x>".repeat(200_000);
        let _ = parse(&costly);
        // Scripts past the greatest depth are still scripts.
        let html = "<div>".repeat(600) + "<script>hidden</script>shown";
        let tree = parse(&html);
        let texts: Vec<_> = (0..tree.len())
            .map(|i| tree.node(i))
            .filter(|n| n.tag == Tag::Text)
            .collect();
        assert_eq!(tree.node(texts[0].parent).tag, Tag::Script);
        assert_eq!(tree.raw(texts[1]), "shown");
    }

    #[test]
    fn attributes_are_kept_in_their_first_form_and_unresolved() {
        let tree = parse("<p class=a class=b id='x&amp;y' data-z=1 role=main>");
        assert_eq!(tree.attribute(1, Key::Class), Some("a"));
        assert_eq!(tree.attribute(1, Key::Id), Some("x&amp;y"));
        assert_eq!(tree.value(1, Key::Id).as_deref(), Some("x&y"));
    }
}
