//! Names of tags and attributes as small numbers.
//!
//! A name of up to 16 bytes is packed, lower-cased, into one integer and looked up in a table built
//! at compile time (multiplicative hash, linear probing). Names that mean nothing here are `Other`.
//! Properties of tags are those of the HTML standard (WHATWG, sections 13.1.2, 13.2.4.2, 13.2.6)
//! as of 2026, one flag per set.

/// Slots of a name table: about a third of them are used.
const SLOTS: usize = 512;

/// The name in lower case as one number; 0 for empty and for overlong names.
const fn pack(name: &[u8]) -> u128 {
    if name.len() > 16 {
        return 0;
    }
    let mut packed = 0u128;
    let mut i = 0;
    while i < name.len() {
        packed = packed << 8 | name[i].to_ascii_lowercase() as u128;
        i += 1;
    }
    packed
}

const fn slot(packed: u128) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "folds the halves")]
    let folded = (packed ^ (packed >> 64)) as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize
}

/// Slot to index into `texts`; 0 is empty, so `texts[0]` is the unknown name.
const fn table(texts: &[&str]) -> [u8; SLOTS] {
    assert!(texts.len() < 256);
    let mut slots = [0u8; SLOTS];
    let mut i = 1;
    while i < texts.len() {
        let mut at = slot(pack(texts[i].as_bytes()));
        while slots[at] != 0 {
            at = (at + 1) % SLOTS;
        }
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        let index = i as u8;
        slots[at] = index;
        i += 1;
    }
    slots
}

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub(crate) enum $name { Other, $($variant),* }

        impl $name {
            const TEXTS: &'static [&'static str] = &["", $($text),*];
            const ALL: &'static [$name] = &[$name::Other, $($name::$variant),*];

            /// The name written as `name`, in any case.
            #[inline]
            pub(crate) fn of(name: &[u8]) -> $name {
                static TABLE: [u8; SLOTS] = table($name::TEXTS);
                static PACKED: [u128; $name::TEXTS.len()] = {
                    let mut packed = [0; $name::TEXTS.len()];
                    let mut i = 0;
                    while i < packed.len() {
                        packed[i] = pack($name::TEXTS[i].as_bytes());
                        i += 1;
                    }
                    packed
                };
                let wanted = pack(name);
                let mut at = slot(wanted);
                loop {
                    let index = usize::from(TABLE[at]);
                    if index == 0 || PACKED[index] == wanted {
                        return $name::ALL[index];
                    }
                    at = (at + 1) % SLOTS;
                }
            }
        }
    };
}

names! {
    /// Attributes that extraction uses.
    Key {
        AriaHidden = "aria-hidden", Class = "class", Content = "content", Datetime = "datetime",
        Hidden = "hidden", Href = "href", HttpEquiv = "http-equiv", Hreflang = "hreflang", Id = "id",
        Itemprop = "itemprop", Itemtype = "itemtype", Lang = "lang", Name = "name",
        Property = "property", Pubdate = "pubdate", Rel = "rel", Role = "role", Style = "style",
        Title = "title", Type = "type", XmlLang = "xml:lang", Alttext = "alttext",
        Encoding = "encoding", Display = "display", Colspan = "colspan", Rowspan = "rowspan",
        Start = "start", Value = "value",
    }
}

names! {
    /// Elements.
    Tag {
        A = "a", Abbr = "abbr", Acronym = "acronym", Address = "address", Applet = "applet",
        Area = "area", Article = "article", Aside = "aside", Audio = "audio", B = "b",
        Base = "base", Basefont = "basefont", Bdi = "bdi", Bdo = "bdo", Bgsound = "bgsound",
        Big = "big", Blockquote = "blockquote", Body = "body", Br = "br", Button = "button",
        Canvas = "canvas", Caption = "caption", Center = "center", Cite = "cite", Code = "code",
        Col = "col", Colgroup = "colgroup", Datalist = "datalist", Dd = "dd", Del = "del", Desc = "desc",
        Details = "details", Dfn = "dfn", Dialog = "dialog", Dir = "dir", Div = "div", Dl = "dl",
        Dt = "dt", Em = "em", Embed = "embed", Fieldset = "fieldset", Figcaption = "figcaption",
        Figure = "figure", Font = "font", Footer = "footer", ForeignObject = "foreignobject",
        Form = "form", Frame = "frame", Frameset = "frameset", H1 = "h1", H2 = "h2", H3 = "h3",
        H4 = "h4", H5 = "h5", H6 = "h6", Head = "head", Header = "header", Hgroup = "hgroup",
        Hr = "hr", Html = "html", I = "i", Iframe = "iframe", Img = "img", Input = "input",
        Ins = "ins", Kbd = "kbd", Keygen = "keygen", Label = "label", Legend = "legend", Li = "li",
        Link = "link", Listing = "listing", Main = "main", Map = "map", Mark = "mark",
        Marquee = "marquee", Math = "math", Menu = "menu", Meta = "meta", Nav = "nav",
        Nobr = "nobr", Noembed = "noembed", Noframes = "noframes", Noscript = "noscript",
        Object = "object", Ol = "ol", Optgroup = "optgroup", Opt = "option", P = "p",
        Param = "param", Picture = "picture", Plaintext = "plaintext", Pre = "pre",
        Progress = "progress", Q = "q", Ruby = "ruby", Rp = "rp", Rt = "rt", S = "s",
        Samp = "samp", Script = "script", Search = "search", Section = "section",
        Select = "select", Slot = "slot", Small = "small", Source = "source", Span = "span",
        Strike = "strike", Strong = "strong", Style = "style", Sub = "sub", Summary = "summary",
        Sup = "sup", Svg = "svg", Table = "table", Tbody = "tbody", Td = "td",
        Template = "template", Textarea = "textarea", Tfoot = "tfoot", Th = "th", Thead = "thead",
        Time = "time", Title = "title", Tr = "tr", Track = "track", Tt = "tt", U = "u", Ul = "ul",
        Var = "var", Video = "video", Wbr = "wbr", Xmp = "xmp",
        // No tag: "#" cannot begin a name.
        Text = "#text",
        // MathML. The model knows tags by their numbers: new ones come last.
        Annotation = "annotation", Mfrac = "mfrac", Mi = "mi", Mn = "mn", Mo = "mo",
        Mover = "mover", Mroot = "mroot", Mspace = "mspace", Msqrt = "msqrt", Msub = "msub",
        Msubsup = "msubsup", Msup = "msup", Mtable = "mtable", Mtext = "mtext", Munder = "munder",
        Munderover = "munderover",
    }
}

/// Has no end tag.
pub(super) const VOID: u16 = 1;
/// Its start tag ends an open paragraph.
pub(super) const ENDS_P: u16 = 1 << 1;
/// "Special" in the standard: an end tag of an inline element does not reach over it.
pub(super) const SPECIAL: u16 = 1 << 2;
/// Ends the search for an element "in scope".
pub(super) const SCOPE: u16 = 1 << 3;
/// Formatting that does not help to classify text; gets no node.
pub(super) const FORMATTING: u16 = 1 << 4;
/// Its content is text up to its end tag.
pub(super) const RAW: u16 = 1 << 5;
/// Allowed in the head without opening the body.
pub(super) const IN_HEAD: u16 = 1 << 6;
/// Laid out as a block: text before and after it are apart.
pub(crate) const BLOCK: u16 = 1 << 7;
/// Its content is not text of the page.
pub(crate) const SKIPPED: u16 = 1 << 8;
/// Ends foreign content (SVG, MathML) that was left open.
pub(super) const BREAKS_OUT: u16 = 1 << 9;
/// Holds the rows or cells of a table.
pub(super) const TABLE_PART: u16 = 1 << 11;
/// A heading.
pub(crate) const HEADING: u16 = 1 << 10;

const SETS: [(u16, &[Tag]); 12] = {
    use Tag::*;
    [
        (
            VOID,
            &[
                Area, Base, Basefont, Bgsound, Br, Col, Embed, Frame, Hr, Img, Input, Keygen, Link,
                Meta, Param, Source, Track, Wbr,
            ],
        ),
        (
            ENDS_P,
            &[
                Address, Article, Aside, Blockquote, Center, Details, Dialog, Dir, Div, Dl, Dd, Dt,
                Fieldset, Figcaption, Figure, Footer, Form, H1, H2, H3, H4, H5, H6, Header, Hgroup,
                Hr, Li, Listing, Main, Menu, Nav, Ol, P, Plaintext, Pre, Search, Section, Summary,
                Table, Ul, Xmp,
            ],
        ),
        (
            SPECIAL,
            &[
                Address,
                Applet,
                Area,
                Article,
                Aside,
                Base,
                Basefont,
                Bgsound,
                Blockquote,
                Body,
                Br,
                Button,
                Caption,
                Center,
                Col,
                Colgroup,
                Dd,
                Details,
                Dir,
                Div,
                Dl,
                Dt,
                Embed,
                Fieldset,
                Figcaption,
                Figure,
                Footer,
                Form,
                Frame,
                Frameset,
                H1,
                H2,
                H3,
                H4,
                H5,
                H6,
                Head,
                Header,
                Hgroup,
                Hr,
                Html,
                Iframe,
                Img,
                Input,
                Keygen,
                Li,
                Link,
                Listing,
                Main,
                Marquee,
                Menu,
                Meta,
                Nav,
                Noembed,
                Noframes,
                Noscript,
                Object,
                Ol,
                P,
                Param,
                Plaintext,
                Pre,
                Script,
                Search,
                Section,
                Select,
                Source,
                Style,
                Summary,
                Table,
                Tbody,
                Td,
                Template,
                Textarea,
                Tfoot,
                Th,
                Thead,
                Title,
                Tr,
                Track,
                Ul,
                Wbr,
                Xmp,
                ForeignObject,
                Desc,
            ],
        ),
        (
            SCOPE,
            &[
                Applet,
                Caption,
                Html,
                Table,
                Td,
                Th,
                Marquee,
                Object,
                Template,
                ForeignObject,
                Desc,
            ],
        ),
        (
            FORMATTING,
            &[
                Abbr, Acronym, B, Bdi, Bdo, Big, Cite, Del, Dfn, Em, Font, I, Ins, Kbd, Mark, Nobr,
                Q, S, Samp, Small, Strike, Strong, Tt, U, Var,
            ],
        ),
        (
            RAW,
            &[
                Iframe, Noembed, Noframes, Noscript, Plaintext, Script, Style, Textarea, Title, Xmp,
            ],
        ),
        (
            IN_HEAD,
            &[
                Base, Basefont, Bgsound, Head, Html, Link, Meta, Noframes, Noscript, Script, Style,
                Template, Title,
            ],
        ),
        (
            BLOCK,
            &[
                Address, Article, Aside, Blockquote, Body, Caption, Center, Dd, Details, Dialog,
                Dir, Div, Dl, Dt, Fieldset, Figcaption, Figure, Footer, Form, H1, H2, H3, H4, H5,
                H6, Header, Hgroup, Hr, Html, Legend, Li, Listing, Main, Menu, Nav, Ol, Opt, P,
                Plaintext, Pre, Search, Section, Summary, Table, Tbody, Td, Tfoot, Th, Thead, Tr,
                Ul, Xmp,
            ],
        ),
        (
            SKIPPED,
            &[
                Applet, Audio, Canvas, Datalist, Embed, Head, Iframe, Input, Map, Math, Noembed,
                Noframes, Noscript, Object, Progress, Rp, Rt, Script, Select, Style, Svg, Template,
                Textarea, Title, Video,
            ],
        ),
        (
            BREAKS_OUT,
            &[
                Big, Blockquote, Body, Br, Center, Code, Dd, Div, Dl, Dt, Em, Embed, H1, H2, H3,
                H4, H5, H6, Head, Hr, I, Img, Li, Listing, Menu, Meta, Nobr, Ol, P, Pre, Ruby, S,
                Small, Span, Strong, Strike, Sub, Sup, Table, Tt, U, Ul, Var, B, Article, Section,
                Main, Footer, Header, Nav, Aside, Form, Button,
            ],
        ),
        (TABLE_PART, &[Table, Tbody, Thead, Tfoot, Tr]),
        (HEADING, &[H1, H2, H3, H4, H5, H6]),
    ]
};

const PROPERTIES: [u16; 256] = {
    let mut properties = [0u16; 256];
    let mut set = 0;
    while set < SETS.len() {
        let (flag, tags) = SETS[set];
        let mut i = 0;
        while i < tags.len() {
            properties[tags[i] as usize] |= flag;
            i += 1;
        }
        set += 1;
    }
    properties
};

impl Tag {
    /// Has all the properties in `flags`.
    #[inline]
    pub(crate) fn is(self, flags: u16) -> bool {
        PROPERTIES[self as usize] & flags == flags
    }

    /// 1 to 6 for headings, 0 for the rest.
    pub(crate) fn heading_level(self) -> u8 {
        if self.is(HEADING) {
            self as u8 - Tag::H1 as u8 + 1
        } else {
            0
        }
    }

    /// The name in lower case; empty for elements without one here.
    pub(super) fn text(self) -> &'static str {
        Tag::TEXTS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_itself_in_any_case_and_others_find_nothing() {
        for (&tag, text) in Tag::ALL.iter().zip(Tag::TEXTS).skip(1) {
            assert_eq!(Tag::of(text.as_bytes()), tag);
            assert_eq!(Tag::of(text.to_uppercase().as_bytes()), tag);
        }
        for (&key, text) in Key::ALL.iter().zip(Key::TEXTS).skip(1) {
            assert_eq!(Key::of(text.as_bytes()), key);
        }
        for other in ["", "x", "my-element", "divv", "blockquoteblockquote"] {
            assert_eq!(Tag::of(other.as_bytes()), Tag::Other);
        }
        assert_eq!(Tag::H3.heading_level(), 3);
        assert_eq!(Tag::Div.heading_level(), 0);
    }
}
