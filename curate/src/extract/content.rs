//! Main content: which blocks of a page are its text.
//!
//! Our own rules, after the ideas of boilerpipe (Kohlschuetter et al. 2010: text and link density per
//! block) and readability (text speaks for its container). One walk cuts the page into blocks and
//! leaves out what tags, roles and class names mark as furniture. Each block of running text adds its
//! length to all elements around it; from the body we descend as long as one child holds nearly all
//! of it. Inside that element, blocks stay unless they are mostly links; headings and short lines
//! stay only when text follows.

use super::ExtractConfig;
use super::tree::{Id, Kind, Tree};

/// What the walk gives.
#[derive(Default)]
pub(super) struct Page {
    pub(super) text: String,
    pub(super) title: Option<String>,
    pub(super) lang: Option<String>,
}

/// How a block is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    Paragraph,
    Heading,
    Item,
    Row,
    Preformatted,
}

/// A run of text between block boundaries.
struct Block {
    text: String,
    /// Characters inside links.
    linked: usize,
    chars: usize,
    shape: Shape,
    /// Innermost block element.
    element: Id,
}

impl Block {
    fn link_density(&self) -> f64 {
        self.linked as f64 / self.chars.max(1) as f64
    }
}

/// Elements whose contents are never text.
const SKIPPED: [&str; 24] = [
    "script", "style", "noscript", "template", "iframe", "svg", "math", "canvas", "object",
    "embed", "button", "select", "option", "textarea", "input", "dialog", "nav", "footer", "aside",
    "menu", "audio", "video", "map", "head",
];

/// Roles that are never text.
const SKIPPED_ROLES: [&str; 10] = [
    "navigation",
    "banner",
    "contentinfo",
    "complementary",
    "search",
    "dialog",
    "alertdialog",
    "menu",
    "menubar",
    "toolbar",
];

/// Words in class and id that mark furniture, compared with whole parts between `-`, `_`, spaces
/// and camel-case borders.
const FURNITURE: [&str; 66] = [
    "nav",
    "navbar",
    "navigation",
    "menu",
    "submenu",
    "sidebar",
    "sidenav",
    "footer",
    "breadcrumb",
    "breadcrumbs",
    "share",
    "sharing",
    "social",
    "related",
    "recommended",
    "recommendations",
    "comments",
    "comment",
    "respond",
    "disqus",
    "cookie",
    "cookies",
    "consent",
    "gdpr",
    "banner",
    "promo",
    "promotion",
    "advert",
    "advertisement",
    "ads",
    "adsense",
    "sponsor",
    "sponsored",
    "newsletter",
    "subscribe",
    "subscription",
    "signup",
    "login",
    "popup",
    "modal",
    "overlay",
    "widget",
    "widgets",
    "pagination",
    "pager",
    "toolbar",
    "masthead",
    "skip",
    "teaser",
    "teasers",
    "tags",
    "taglist",
    "byline",
    "meta",
    "metadata",
    "print",
    "copyright",
    "disclaimer",
    "rating",
    "ratings",
    "outbrain",
    "taboola",
    "trending",
    "carousel",
    "slider",
    "hidden",
];

const BLOCKS: [&str; 38] = [
    "p",
    "div",
    "section",
    "article",
    "main",
    "header",
    "body",
    "html",
    "blockquote",
    "pre",
    "ul",
    "ol",
    "li",
    "dl",
    "dt",
    "dd",
    "table",
    "tbody",
    "thead",
    "tfoot",
    "tr",
    "caption",
    "figure",
    "figcaption",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "fieldset",
    "legend",
    "details",
    "summary",
    "address",
    "form",
    "center",
];

/// Cuts, chooses, joins.
pub(super) fn main_text(tree: &Tree, config: &ExtractConfig) -> Page {
    let mut walk = Walk::new(tree);
    walk.run();
    drop_furniture(tree, &mut walk, config);
    let root = container(tree, &walk, config);
    let text = choose(tree, &walk.blocks, root, config);
    Page {
        text,
        title: walk.title,
        lang: walk.lang,
    }
}

struct Walk<'t> {
    tree: &'t Tree,
    blocks: Vec<Block>,
    body: Id,
    title: Option<String>,
    lang: Option<String>,
    text: String,
    linked: usize,
    links: usize,
    preformatted: usize,
    stack: Vec<(Id, Shape)>,
    /// Elements whose class or id names furniture.
    suspects: Vec<Id>,
}

impl<'t> Walk<'t> {
    fn new(tree: &'t Tree) -> Walk<'t> {
        Walk {
            tree,
            blocks: Vec::new(),
            body: 0,
            title: None,
            lang: None,
            text: String::new(),
            linked: 0,
            links: 0,
            preformatted: 0,
            stack: vec![(0, Shape::Paragraph)],
            suspects: Vec::new(),
        }
    }

    /// Depth first without recursion: pages nest arbitrarily deep.
    fn run(&mut self) {
        let mut at = self.tree.first_child(0);
        while let Some(id) = at {
            let inside = self.enter(id);
            if inside && let Some(child) = self.tree.first_child(id) {
                at = Some(child);
                continue;
            }
            if inside {
                self.leave(id);
            }
            let mut up = id;
            at = loop {
                if let Some(next) = self.tree.next_sibling(up) {
                    break Some(next);
                }
                match self.tree.parent(up) {
                    Some(0) | None => break None,
                    Some(parent) => {
                        self.leave(parent);
                        up = parent;
                    }
                }
            };
        }
        self.flush();
    }

    /// True if the node's children count.
    fn enter(&mut self, id: Id) -> bool {
        match self.tree.kind(id) {
            Kind::Other => false,
            Kind::Text(text) => {
                self.push_text(text);
                false
            }
            Kind::Element { .. } => self.enter_element(id),
        }
    }

    fn enter_element(&mut self, id: Id) -> bool {
        let tag = self.tree.tag(id);
        match tag {
            "head" => {
                self.head(id);
                return false;
            }
            "html" => self.lang = self.tree.attr(id, "lang").map(str::to_string),
            "body" => self.body = id,
            "br" => {
                self.push_break();
                return false;
            }
            "a" => self.links += 1,
            "pre" => self.preformatted += 1,
            "td" | "th" => self.push_cell(),
            _ => {}
        }
        if SKIPPED.contains(&tag) || (tag != "body" && tag != "html" && self.is_furniture(id, tag))
        {
            if matches!(tag, "a") {
                self.links -= 1;
            } else if tag == "pre" {
                self.preformatted -= 1;
            }
            return false;
        }
        if BLOCKS.contains(&tag) {
            self.flush();
            let shape = match tag {
                "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => Shape::Heading,
                "li" | "dd" | "dt" => Shape::Item,
                "tr" => Shape::Row,
                "pre" => Shape::Preformatted,
                // A paragraph inside a list item belongs to the list.
                "p" | "div" if self.stack.last().is_some_and(|s| s.1 == Shape::Item) => Shape::Item,
                _ => Shape::Paragraph,
            };
            self.stack.push((id, shape));
        }
        true
    }

    fn leave(&mut self, id: Id) {
        match self.tree.tag(id) {
            "a" => self.links = self.links.saturating_sub(1),
            "pre" => {
                self.flush();
                self.preformatted = self.preformatted.saturating_sub(1);
                self.stack.pop();
                return;
            }
            _ => {}
        }
        if self.stack.last().is_some_and(|s| s.0 == id) {
            self.flush();
            self.stack.pop();
        }
    }

    fn head(&mut self, head: Id) {
        for child in self.tree.children(head) {
            if self.tree.tag(child) == "title" {
                let mut title = String::new();
                for text in self.tree.children(child) {
                    if let Kind::Text(t) = self.tree.kind(text) {
                        push_squeezed(&mut title, t);
                    }
                }
                let title = title.trim().to_string();
                if !title.is_empty() {
                    self.title = Some(title);
                }
            }
        }
    }

    fn is_furniture(&mut self, id: Id, tag: &str) -> bool {
        let Kind::Element { attrs, .. } = self.tree.kind(id) else {
            return false;
        };
        for attr in attrs {
            let value: &str = &attr.value;
            let hit = match &*attr.name.local {
                "hidden" => true,
                "aria-hidden" => value == "true",
                "role" => SKIPPED_ROLES.contains(&value),
                "style" => is_invisible(value),
                "class" | "id" => {
                    if !matches!(tag, "article" | "main") && has_furniture(value) {
                        self.suspects.push(id);
                    }
                    false
                }
                _ => false,
            };
            if hit {
                return true;
            }
        }
        false
    }

    fn push_text(&mut self, text: &str) {
        let before = self.text.len();
        if self.preformatted > 0 {
            self.text.push_str(text);
        } else {
            push_squeezed(&mut self.text, text);
        }
        if self.links > 0 {
            self.linked += crate::text::chars(&self.text[before..]);
        }
    }

    fn push_break(&mut self) {
        while self.text.ends_with(' ') {
            self.text.pop();
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn push_cell(&mut self) {
        if !self.text.trim_end().is_empty() {
            while self.text.ends_with(' ') {
                self.text.pop();
            }
            self.text.push_str(" | ");
        }
    }

    /// Ends the current block.
    fn flush(&mut self) {
        let linked = std::mem::take(&mut self.linked);
        let text = self
            .text
            .trim_matches(|c: char| c.is_whitespace() || c == '|');
        if !text.is_empty() {
            let (element, shape) = self.stack.last().copied().unwrap_or((0, Shape::Paragraph));
            let chars = crate::text::chars(text);
            let text = text.to_string();
            self.blocks.push(Block {
                text,
                linked: linked.min(chars),
                chars,
                shape,
                element,
            });
        }
        self.text.clear();
    }
}

/// Appends with runs of white space as one space.
fn push_squeezed(out: &mut String, text: &str) {
    let mut gap = false;
    for piece in text.split(|c: char| c.is_whitespace()) {
        if gap && !out.is_empty() && !out.ends_with([' ', '\n']) {
            out.push(' ');
        }
        out.push_str(piece);
        gap = true;
    }
}

fn is_invisible(style: &str) -> bool {
    let plain: String = style
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    plain.contains("display:none") || plain.contains("visibility:hidden")
}

/// One of the parts of a class or id is in the list.
fn has_furniture(value: &str) -> bool {
    let mut part = String::new();
    let mut lower = false;
    for c in value.chars().chain([' ']) {
        let border = !c.is_ascii_alphanumeric() || (lower && c.is_ascii_uppercase());
        if border && !part.is_empty() {
            if FURNITURE.contains(&part.as_str()) {
                return true;
            }
            part.clear();
        }
        if c.is_ascii_alphanumeric() {
            part.push(c.to_ascii_lowercase());
        }
        lower = c.is_ascii_lowercase();
    }
    false
}

/// Running text: long enough and not links.
fn is_text(block: &Block, config: &ExtractConfig) -> bool {
    block.chars >= config.min_paragraph_chars && block.link_density() <= 0.33
}

/// Characters of running text inside each element.
fn weights(tree: &Tree, blocks: &[Block], config: &ExtractConfig) -> Vec<usize> {
    let mut weight = vec![0usize; tree.len()];
    for block in blocks.iter().filter(|b| is_text(b, config)) {
        let mut at = Some(block.element);
        while let Some(id) = at {
            weight[id as usize] += block.chars;
            at = tree.parent(id);
        }
    }
    weight
}

/// Drops what class and id call furniture, unless it holds much of the page's running text: site
/// builders call everything a widget.
fn drop_furniture(tree: &Tree, walk: &mut Walk<'_>, config: &ExtractConfig) {
    if walk.suspects.is_empty() {
        return;
    }
    let weight = weights(tree, &walk.blocks, config);
    let total = weight[0];
    let mut furniture = vec![false; tree.len()];
    for &id in &walk.suspects {
        furniture[id as usize] = weight[id as usize] * 10 < total * 3 || total == 0;
    }
    walk.blocks.retain(|block| {
        let mut at = Some(block.element);
        while let Some(id) = at {
            if furniture[id as usize] {
                return false;
            }
            at = tree.parent(id);
        }
        true
    });
}

/// The smallest element around nearly all running text.
fn container(tree: &Tree, walk: &Walk<'_>, config: &ExtractConfig) -> Id {
    let weight = weights(tree, &walk.blocks, config);
    let mut root = walk.body;
    loop {
        let here = weight[root as usize];
        let heaviest = tree.children(root).max_by_key(|&c| weight[c as usize]);
        match heaviest {
            Some(child) if here > 0 && weight[child as usize] * 10 >= here * 8 => {
                // A paragraph that holds everything is not a container.
                if matches!(
                    tree.tag(child),
                    "p" | "li" | "td" | "blockquote" | "pre" | "ul" | "ol"
                ) {
                    return root;
                }
                root = child;
            }
            _ => return root,
        }
    }
}

fn is_inside(tree: &Tree, mut id: Id, root: Id) -> bool {
    loop {
        if id == root {
            return true;
        }
        match tree.parent(id) {
            Some(parent) => id = parent,
            None => return false,
        }
    }
}

/// Joins the blocks inside `root` that are text.
fn choose(tree: &Tree, blocks: &[Block], root: Id, config: &ExtractConfig) -> String {
    let mut kept: Vec<&Block> = blocks
        .iter()
        .filter(|b| is_inside(tree, b.element, root))
        .filter(|b| b.link_density() <= config.max_link_density)
        .collect();
    // What trails behind the last running text is furniture: headings, captions, labels.
    let last = kept
        .iter()
        .rposition(|b| is_text(b, config) || b.shape == Shape::Item);
    kept.truncate(last.map_or(kept.len(), |i| i + 1));
    let mut out = String::new();
    let mut previous: Option<Shape> = None;
    for (i, block) in kept.iter().enumerate() {
        let next = kept.get(i + 1);
        // A heading right before another heading of nothing is dropped.
        if block.shape == Shape::Heading && next.is_none() {
            continue;
        }
        if let Some(before) = previous {
            let tight = before == block.shape && matches!(before, Shape::Item | Shape::Row);
            out.push_str(if tight { "\n" } else { "\n\n" });
        }
        out.push_str(&block.text);
        previous = Some(block.shape);
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::extract::extract_html;

    #[test]
    fn furniture_goes_and_text_stays() {
        let page = "<html lang=en><head><title> A  page </title></head><body><nav><a href=/>Home</a></nav>\
            <div class='content'><h1>Title</h1><p>The first paragraph of this page has quite some words in it.</p>\
            <ul><li>One</li><li>Two</li></ul><p>The second paragraph has some <a href=x>linked</a> words as well.</p></div>\
            <div id=site-footer>Copyright</div><script>var x = 1;</script></body></html>";
        let got = extract_html(page.as_bytes(), None);
        assert_eq!(
            got.text,
            "Title\n\nThe first paragraph of this page has quite some words in it.\n\nOne\nTwo\n\n\
             The second paragraph has some linked words as well."
        );
        assert_eq!(got.title.as_deref(), Some("A page"));
        assert_eq!(got.lang.as_deref(), Some("en"));
    }

    #[test]
    fn deep_nesting_does_not_overflow_the_stack() {
        let page = "<div>".repeat(200_000) + "x";
        let _ = extract_html(page.as_bytes(), None);
    }
}
