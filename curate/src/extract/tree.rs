//! A document tree in one vector, filled by html5ever.
//!
//! Nodes are numbers; children are linked by first child and next sibling. Comments, doctypes and
//! processing instructions keep no node data: nothing here looks at them.

use std::borrow::Cow;
use std::cell::RefCell;

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{Attribute, LocalName, Namespace, ParseOpts, QualName, parse_document};

/// Index of a node.
pub(super) type Id = u32;
const NONE: Id = Id::MAX;

/// What a node is.
pub(super) enum Kind {
    /// The document, a template's contents, a comment: no content of its own.
    Other,
    /// An element.
    Element {
        name: QualName,
        attrs: Vec<Attribute>,
        /// Contents of a `template`.
        template: Id,
    },
    /// Text.
    Text(StrTendril),
}

struct Node {
    kind: Kind,
    /// Levels below the document when it was placed.
    depth: u32,
    parent: Id,
    first: Id,
    last: Id,
    next: Id,
    previous: Id,
}

/// The tree.
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Greatest depth of a node so far.
    deepest: u32,
}

impl Tree {
    pub(super) fn kind(&self, id: Id) -> &Kind {
        &self.nodes[id as usize].kind
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Children in order.
    pub(super) fn children(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        let some = |id: Id| (id != NONE).then_some(id);
        std::iter::successors(some(self.nodes[id as usize].first), move |&c| {
            some(self.nodes[c as usize].next)
        })
    }

    pub(super) fn first_child(&self, id: Id) -> Option<Id> {
        let first = self.nodes[id as usize].first;
        (first != NONE).then_some(first)
    }

    pub(super) fn next_sibling(&self, id: Id) -> Option<Id> {
        let next = self.nodes[id as usize].next;
        (next != NONE).then_some(next)
    }

    pub(super) fn parent(&self, id: Id) -> Option<Id> {
        let parent = self.nodes[id as usize].parent;
        (parent != NONE).then_some(parent)
    }

    /// Tag name of an element, empty for other nodes.
    pub(super) fn tag(&self, id: Id) -> &str {
        match self.kind(id) {
            Kind::Element { name, .. } => &name.local,
            _ => "",
        }
    }

    /// An attribute's value.
    pub(super) fn attr(&self, id: Id, wanted: &str) -> Option<&str> {
        match self.kind(id) {
            Kind::Element { attrs, .. } => attrs
                .iter()
                .find(|a| &*a.name.local == wanted)
                .map(|a| &*a.value),
            _ => None,
        }
    }

    fn add(&mut self, kind: Kind) -> Id {
        let id = Id::try_from(self.nodes.len()).unwrap_or(NONE);
        let (parent, first, last) = (NONE, NONE, NONE);
        self.nodes.push(Node {
            kind,
            depth: 0,
            parent,
            first,
            last,
            next: NONE,
            previous: NONE,
        });
        id
    }

    fn detach(&mut self, id: Id) {
        let (parent, previous, next) = {
            let node = &mut self.nodes[id as usize];
            let links = (node.parent, node.previous, node.next);
            (node.parent, node.previous, node.next) = (NONE, NONE, NONE);
            links
        };
        if parent == NONE {
            return;
        }
        match previous {
            NONE => self.nodes[parent as usize].first = next,
            p => self.nodes[p as usize].next = next,
        }
        match next {
            NONE => self.nodes[parent as usize].last = previous,
            n => self.nodes[n as usize].previous = previous,
        }
    }

    fn append(&mut self, parent: Id, child: Id) {
        self.detach(child);
        let last = self.nodes[parent as usize].last;
        match last {
            NONE => self.nodes[parent as usize].first = child,
            l => self.nodes[l as usize].next = child,
        }
        self.nodes[parent as usize].last = child;
        let depth = self.nodes[parent as usize].depth + 1;
        self.deepest = self.deepest.max(depth);
        let node = &mut self.nodes[child as usize];
        (node.parent, node.previous, node.depth) = (parent, last, depth);
    }

    fn insert_before(&mut self, sibling: Id, child: Id) {
        self.detach(child);
        let (parent, previous) = {
            let s = &self.nodes[sibling as usize];
            (s.parent, s.previous)
        };
        match previous {
            NONE if parent != NONE => self.nodes[parent as usize].first = child,
            NONE => {}
            p => self.nodes[p as usize].next = child,
        }
        self.nodes[sibling as usize].previous = child;
        let node = &mut self.nodes[child as usize];
        (node.parent, node.previous, node.next) = (parent, previous, sibling);
    }

    /// Extends the text node `id`; false if it is none.
    fn extend_text(&mut self, id: Id, text: &StrTendril) -> bool {
        match self.nodes.get_mut(id as usize).map(|n| &mut n.kind) {
            Some(Kind::Text(have)) => {
                have.push_tendril(text);
                true
            }
            _ => false,
        }
    }
}

/// Each open element makes the parser's scope checks longer, so time is quadratic in depth. Browsers
/// stop nesting at 512; here a page that goes deeper than this is cut off.
const MAX_DEPTH: u32 = 2000;
/// Bytes given to the parser between looks at the depth.
const FEED: usize = 8 << 10;

/// Parses HTML; never fails.
pub(super) fn parse(html: &str) -> Tree {
    let nodes = Vec::with_capacity(html.len() / 24 + 16);
    let sink = Sink {
        tree: RefCell::new(Tree { nodes, deepest: 0 }),
    };
    sink.tree.borrow_mut().add(Kind::Other);
    let mut parser = parse_document(sink, ParseOpts::default());
    let mut rest = html;
    while !rest.is_empty() && parser.tokenizer.sink.sink.tree.borrow().deepest < MAX_DEPTH {
        let (head, tail) = rest.split_at(rest.floor_char_boundary(FEED));
        parser.process(StrTendril::from_slice(head));
        rest = tail;
    }
    parser.finish()
}

struct Sink {
    tree: RefCell<Tree>,
}

/// An element's name, cloned out of the tree (names are interned, so this is cheap).
#[derive(Debug)]
struct Name(QualName);

impl html5ever::interface::ElemName for Name {
    fn ns(&self) -> &Namespace {
        &self.0.ns
    }
    fn local_name(&self) -> &LocalName {
        &self.0.local
    }
}

impl Sink {
    fn place(&self, node: NodeOrText<Id>, before: Option<Id>, parent: Id) {
        let mut tree = self.tree.borrow_mut();
        let id = match node {
            NodeOrText::AppendNode(id) => id,
            NodeOrText::AppendText(text) => {
                let neighbour = match before {
                    Some(sibling) => tree.nodes[sibling as usize].previous,
                    None => tree.nodes[parent as usize].last,
                };
                if tree.extend_text(neighbour, &text) {
                    return;
                }
                tree.add(Kind::Text(text))
            }
        };
        match before {
            Some(sibling) => tree.insert_before(sibling, id),
            None => tree.append(parent, id),
        }
    }
}

impl TreeSink for Sink {
    type Handle = Id;
    type Output = Tree;
    type ElemName<'a> = Name;

    fn finish(self) -> Tree {
        self.tree.into_inner()
    }

    fn parse_error(&self, _message: Cow<'static, str>) {}

    fn get_document(&self) -> Id {
        0
    }

    fn elem_name<'a>(&'a self, target: &'a Id) -> Name {
        match self.tree.borrow().kind(*target) {
            Kind::Element { name, .. } => Name(name.clone()),
            // Never asked for by the parser; an empty name matches nothing.
            _ => Name(QualName::new(
                None,
                Namespace::default(),
                LocalName::default(),
            )),
        }
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Id {
        let mut tree = self.tree.borrow_mut();
        let template = if flags.template {
            tree.add(Kind::Other)
        } else {
            NONE
        };
        tree.add(Kind::Element {
            name,
            attrs,
            template,
        })
    }

    fn create_comment(&self, _text: StrTendril) -> Id {
        self.tree.borrow_mut().add(Kind::Other)
    }

    fn create_pi(&self, _target: StrTendril, _data: StrTendril) -> Id {
        self.tree.borrow_mut().add(Kind::Other)
    }

    fn append(&self, parent: &Id, child: NodeOrText<Id>) {
        self.place(child, None, *parent);
    }

    fn append_based_on_parent_node(&self, element: &Id, previous: &Id, child: NodeOrText<Id>) {
        if self.tree.borrow().parent(*element).is_some() {
            self.place(child, Some(*element), 0);
        } else {
            self.place(child, None, *previous);
        }
    }

    fn append_doctype_to_document(&self, _n: StrTendril, _p: StrTendril, _s: StrTendril) {}

    fn get_template_contents(&self, target: &Id) -> Id {
        match self.tree.borrow().kind(*target) {
            Kind::Element { template, .. } if *template != NONE => *template,
            _ => *target,
        }
    }

    fn same_node(&self, x: &Id, y: &Id) -> bool {
        x == y
    }

    fn set_quirks_mode(&self, _mode: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Id, new_node: NodeOrText<Id>) {
        self.place(new_node, Some(*sibling), 0);
    }

    fn add_attrs_if_missing(&self, target: &Id, new: Vec<Attribute>) {
        if let Some(Kind::Element { attrs, .. }) = self
            .tree
            .borrow_mut()
            .nodes
            .get_mut(*target as usize)
            .map(|n| &mut n.kind)
        {
            for attr in new {
                if !attrs.iter().any(|a| a.name == attr.name) {
                    attrs.push(attr);
                }
            }
        }
    }

    fn remove_from_parent(&self, target: &Id) {
        self.tree.borrow_mut().detach(*target);
    }

    fn reparent_children(&self, node: &Id, new_parent: &Id) {
        let mut tree = self.tree.borrow_mut();
        while let Some(child) = tree.first_child(*node) {
            tree.append(*new_parent, child);
        }
    }
}
