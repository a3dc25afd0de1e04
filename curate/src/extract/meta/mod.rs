//! Page metadata: title, author, dates, canonical address, language, robots, licence.
//!
//! Read from `title`, `meta`, `link`, JSON-LD (json_ld.rs), `time`, and `rel` and `itemprop` attributes;
//! vocabularies: HTML, Open Graph, Dublin Core, schema.org, and the names that news systems use (parsely,
//! sailthru); where these are absent, or name the site as the author, from the visible text (byline.rs). The more
//! explicit source wins; dates become `YYYY-MM-DD` (date.rs).

mod byline;
mod date;
mod json_ld;
mod text;

use serde::Serialize;

use super::html::{Id, Key, Tag, Tree};
use text::{Best, squeeze, text_of};

/// Metadata of a page; absent where the page does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageMeta {
    /// Title of the text, without the site's name where the page separates them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Names of the authors, separated by "; ".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Day of publication, `YYYY-MM-DD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// Day of the last change, `YYYY-MM-DD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// Canonical address declared by the page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    /// Language the page declares, as written (BCP 47 where the page is right).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared_language: Option<String>,
    /// Name of the site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Description for search engines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Directives to robots that limit use (`noindex`, `noarchive`, `noai` ..), of the page and of
    /// its `X-Robots-Tag` header, in the alphabet's order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub robots: Vec<String>,
    /// Addresses or words of licences that the page names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub licence: Vec<String>,
}

/// Other facts from the head that extraction uses.
#[derive(Default)]
pub(super) struct Hints {
    /// Text of the article in JSON-LD.
    pub(super) article_body: Option<String>,
    /// The page declares itself an article.
    pub(super) is_article: bool,
    /// Its metadata or its address has a date.
    pub(super) is_dated: bool,
}

/// Directives that restrict the use of a page.
const DIRECTIVES: [&str; 10] = [
    "noai",
    "noarchive",
    "nocache",
    "nofollow",
    "noimageai",
    "noimageindex",
    "noindex",
    "none",
    "nosnippet",
    "notranslate",
];
/// Licences recorded at most.
const MAX_LICENCES: usize = 8;

#[derive(Default)]
struct Found {
    title: Best,
    author: Best,
    published: Best,
    modified: Best,
    canonical: Best,
    language: Best,
    site: Best,
    description: Best,
    robots: Vec<String>,
    licence: Vec<String>,
    hints: Hints,
}

/// Reads a page's metadata; `url` is where it came from, `robots` the `X-Robots-Tag` header.
pub(super) fn read(tree: &Tree<'_>, url: Option<&str>, robots: Option<&str>) -> (PageMeta, Hints) {
    let mut found = Found::default();
    for id in 1..tree.len() {
        match tree.node(id).tag {
            Tag::Html => {
                let value = tree
                    .value(id, Key::Lang)
                    .or_else(|| tree.value(id, Key::XmlLang));
                found.language.offer(9, value);
            }
            Tag::Title => found.title.offer(2, text_of(tree, id)),
            Tag::Meta => found.meta(tree, id),
            Tag::Link => found.link(tree, id),
            Tag::Script => found.script(tree, id),
            Tag::A => found.anchor(tree, id),
            Tag::H1 => found.title.offer(1, text_of(tree, id)),
            Tag::Time => found.time(tree, id),
            Tag::Text => {}
            _ => found.property(tree, id),
        }
    }
    if let Some(header) = robots {
        found.robots(header);
    }
    // the model knows dates of the metadata, not those that texts show
    found.hints.is_dated = !found.published.is_empty();
    found.visible(tree, url);
    found.finish(url)
}

impl Found {
    fn meta(&mut self, tree: &Tree<'_>, id: Id) {
        let Some(content) = tree.value(id, Key::Content) else {
            return;
        };
        for key in [Key::Property, Key::Name, Key::Itemprop, Key::HttpEquiv] {
            if let Some(name) = tree.attribute(id, key) {
                self.named(&name.trim().to_ascii_lowercase(), &content);
            }
        }
    }

    fn named(&mut self, name: &str, content: &str) {
        let value = || Some(content.to_string());
        match name {
            "og:title" => self.title.offer(6, value()),
            "twitter:title" | "dc.title" | "dcterms.title" | "citation_title" => {
                self.title.offer(4, value());
            }
            "headline" | "parsely-title" | "sailthru.title" => self.title.offer(5, value()),
            "author"
            | "parsely-author"
            | "sailthru.author"
            | "dc.creator"
            | "dcterms.creator"
            | "citation_author"
            | "byl"
            | "article:author_name"
            | "cxenseparse:author" => {
                self.author.offer(6, author(content));
            }
            "article:author" | "og:article:author" | "twitter:creator" | "book:author" => {
                self.author.offer(4, author(content));
            }
            "article:published_time"
            | "og:article:published_time"
            | "og:published_time"
            | "datepublished"
            | "citation_publication_date"
            | "publication_date" => {
                self.published.offer(8, date::day(content));
            }
            "date"
            | "pubdate"
            | "publishdate"
            | "publish-date"
            | "publish_date"
            | "dc.date"
            | "dc.date.issued"
            | "dcterms.date"
            | "dcterms.created"
            | "dc.date.created"
            | "parsely-pub-date"
            | "sailthru.date"
            | "article.published"
            | "published-date"
            | "rnews:datepublished"
            | "cxenseparse:recs:publishtime"
            | "created"
            | "datecreated"
            | "article_date_original"
            | "originalpublicationdate"
            | "citation_date"
            | "cxenseparse:publishtime"
            | "ptime"
            | "displaydate" => {
                self.published.offer(6, date::day(content));
            }
            "article:modified_time"
            | "og:updated_time"
            | "datemodified"
            | "last-modified"
            | "dcterms.modified"
            | "dc.date.modified"
            | "lastmod"
            | "revised" => {
                self.modified.offer(6, date::day(content));
            }
            "og:url" => self.canonical.offer(4, value()),
            "og:site_name" | "application-name" => self.site.offer(6, value()),
            "og:locale" | "content-language" | "dc.language" | "dcterms.language" | "language" => {
                self.language.offer(4, value());
            }
            "og:description" | "twitter:description" => self.description.offer(4, value()),
            "description" => self.description.offer(6, value()),
            "og:type" => {
                let kind = content.to_ascii_lowercase();
                self.hints.is_article |= kind.contains("article") || kind.contains("blog");
            }
            "robots" | "googlebot" | "bingbot" | "ccbot" | "x-robots-tag" => self.robots(content),
            "dcterms.license" | "dc.rights" | "dcterms.rights" | "dc.rights.license"
            | "license" | "licence" | "rights" => self.licence(content),
            _ => {}
        }
    }

    fn link(&mut self, tree: &Tree<'_>, id: Id) {
        let (Some(rel), Some(href)) = (tree.attribute(id, Key::Rel), tree.value(id, Key::Href))
        else {
            return;
        };
        for word in rel.split_ascii_whitespace() {
            if word.eq_ignore_ascii_case("canonical") {
                self.canonical.offer(6, Some(href.clone()));
            } else if word.eq_ignore_ascii_case("license") {
                self.licence(&href);
            }
        }
    }

    fn anchor(&mut self, tree: &Tree<'_>, id: Id) {
        let rel = tree.attribute(id, Key::Rel).unwrap_or_default();
        let has = |name: &str| {
            rel.split_ascii_whitespace()
                .any(|r| r.eq_ignore_ascii_case(name))
        };
        if has("author") {
            self.author
                .offer(3, text_of(tree, id).as_deref().and_then(author));
        }
        let Some(href) = tree.attribute(id, Key::Href) else {
            return;
        };
        if has("license") || is_creative_commons(href) {
            self.licence(href);
        }
    }

    fn script(&mut self, tree: &Tree<'_>, id: Id) {
        let is_data = tree
            .attribute(id, Key::Type)
            .is_some_and(|t| t.trim().eq_ignore_ascii_case("application/ld+json"));
        if !is_data {
            return;
        }
        for text in tree.texts_below(id) {
            for thing in json_ld::things(text) {
                self.thing(thing);
            }
        }
    }

    fn thing(&mut self, thing: json_ld::Thing) {
        let rank = 3 + 4 * u8::from(thing.is_article);
        self.hints.is_article |= thing.is_article;
        self.title.offer(rank, thing.headline);
        self.author
            .offer(rank, thing.author.as_deref().and_then(author));
        self.published
            .offer(rank, thing.published.as_deref().and_then(date::day));
        self.modified
            .offer(rank, thing.modified.as_deref().and_then(date::day));
        if let Some(licence) = thing.licence {
            self.licence(&licence);
        }
        let longer = |body: &String| {
            let have = self.hints.article_body.as_ref().map_or(0, String::len);
            body.len() > have
        };
        if let Some(body) = thing.body.filter(longer) {
            self.hints.article_body = Some(body);
        }
    }

    fn time(&mut self, tree: &Tree<'_>, id: Id) {
        let value = tree.value(id, Key::Datetime).or_else(|| text_of(tree, id));
        let Some(day) = value.as_deref().and_then(date::day) else {
            return;
        };
        let property = tree.attribute(id, Key::Itemprop).unwrap_or_default();
        if property.contains("dateModified") {
            self.modified.offer(5, Some(day));
        } else if property.contains("datePublished") || tree.attribute(id, Key::Pubdate).is_some() {
            self.published.offer(5, Some(day));
        } else {
            self.published.offer(3, Some(day));
        }
    }

    /// Microdata on any other element.
    fn property(&mut self, tree: &Tree<'_>, id: Id) {
        let Some(property) = tree.attribute(id, Key::Itemprop) else {
            return;
        };
        let value = || tree.value(id, Key::Content).or_else(|| text_of(tree, id));
        for name in property.split_ascii_whitespace() {
            match name {
                "datePublished" => self
                    .published
                    .offer(5, value().as_deref().and_then(date::day)),
                "dateModified" => self
                    .modified
                    .offer(5, value().as_deref().and_then(date::day)),
                "author" => {
                    let name = name_below(tree, id).or_else(value);
                    self.author.offer(3, name.as_deref().and_then(author));
                }
                "license" => {
                    if let Some(licence) = value() {
                        self.licence(&licence);
                    }
                }
                _ => {}
            }
        }
    }

    fn robots(&mut self, content: &str) {
        add_directives(&mut self.robots, content);
    }

    fn licence(&mut self, text: &str) {
        let text = squeeze(text);
        let fits = !text.is_empty() && text.len() <= 300;
        if fits && self.licence.len() < MAX_LICENCES && !self.licence.contains(&text) {
            self.licence.push(text);
        }
    }

    /// Fills missing fields from the visible text.
    fn visible(&mut self, tree: &Tree<'_>, url: Option<&str>) {
        let same = |a: &str, b: &str| squeeze(a).eq_ignore_ascii_case(&squeeze(b));
        let is_site = match (&self.author.0, &self.site.0) {
            (Some((_, author)), Some((_, site))) => same(author, site),
            _ => false,
        };
        let wants_author = self.author.is_empty() || is_site;
        let in_address = url.and_then(date::in_address).is_some();
        let wants_date = self.published.is_empty() && !in_address;
        if !wants_author && !wants_date {
            return;
        }
        let byline = byline::read(tree, wants_author, wants_date);
        if byline.author.is_some() {
            self.author = Best::default();
        }
        self.author.offer(1, byline.author);
        self.published.offer(1, byline.published);
    }

    fn finish(mut self, url: Option<&str>) -> (PageMeta, Hints) {
        let base = url.and_then(|u| url::Url::parse(u).ok());
        let canonical = self.canonical.take().and_then(|c| match &base {
            Some(base) => base.join(&c).ok().map(String::from),
            None => url::Url::parse(&c).ok().map(String::from),
        });
        let mut published = self.published;
        for address in [canonical.as_deref(), url].into_iter().flatten() {
            let date = date::in_address(address);
            self.hints.is_dated |= date.is_some();
            published.offer(4, date);
        }
        let site = self.site.take();
        let title = self.title.take().map(|t| without_site(t, site.as_deref()));
        let meta = PageMeta {
            title,
            author: self.author.take(),
            published: published.take(),
            modified: self.modified.take(),
            canonical,
            declared_language: self.language.take().filter(|l| l.len() <= 35),
            site,
            description: self.description.take(),
            robots: self.robots,
            licence: self.licence,
        };
        (meta, self.hints)
    }
}

/// Directives of an `X-Robots-Tag` header that limit use, in the alphabet's order.
pub(crate) fn robots_directives(header: &str) -> Vec<String> {
    let mut found = Vec::new();
    add_directives(&mut found, header);
    found
}

fn add_directives(found: &mut Vec<String>, content: &str) {
    for word in content.split([',', ' ', ';', ':']) {
        let word = word.trim().to_ascii_lowercase();
        if DIRECTIVES.contains(&word.as_str()) && !found.contains(&word) {
            found.push(word);
        }
    }
    found.sort_unstable();
}

/// Text of the first element below that names the described object.
fn name_below(tree: &Tree<'_>, id: Id) -> Option<String> {
    let names = |id: &Id| tree.attribute(*id, Key::Itemprop) == Some("name");
    // near: a page that is one large author must not cost its square
    let below = id + 1..tree.node(id).end.min(id + 40);
    let name = below.into_iter().find(names)?;
    tree.value(name, Key::Content)
        .or_else(|| text_of(tree, name))
}

fn is_creative_commons(href: &str) -> bool {
    href.contains("creativecommons.org/licenses/")
        || href.contains("creativecommons.org/publicdomain/")
}

/// "Title - Site" without the site, if the page names its site so.
fn without_site(title: String, site: Option<&str>) -> String {
    let Some(site) = site else { return title };
    let cut = title
        .strip_suffix(site)
        .map(str::trim_end)
        .and_then(|rest| {
            let rest = rest.strip_suffix(['-', '|', '\u{2013}', '\u{2014}', '\u{b7}', ':'])?;
            Some(rest.trim_end().to_string())
        });
    cut.filter(|c| !c.is_empty()).unwrap_or(title)
}

/// A name of authors: not an address, not a sentence, without "by".
fn author(text: &str) -> Option<String> {
    let text = squeeze(text);
    let name = byline::without_by(&text).unwrap_or(&text).trim();
    let is_name = !name.is_empty()
        && name.len() <= 150
        && !name.contains("://")
        && !name.starts_with(['@', '/'])
        && name.chars().any(char::is_alphabetic);
    is_name.then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::html::parse;

    fn meta(html: &str) -> PageMeta {
        read(&parse(html), Some("https://example.org/a/b"), None).0
    }

    #[test]
    fn the_more_explicit_source_wins() {
        let page = meta(
            "<html lang=de-AT><head><title>Ein Titel | Die Zeitung</title>\
             <meta property='og:site_name' content='Die Zeitung'>\
             <meta name=author content='Von Anna &amp; Otto'>\
             <meta property='article:published_time' content='2021-03-04T05:06:07+01:00'>\
             <meta name=date content='2020-01-01'><link rel=canonical href='/c?x=1&amp;y=2'>\
             </head><body><time datetime='2019-12-31'>gestern</time>",
        );
        assert_eq!(page.title.as_deref(), Some("Ein Titel"));
        assert_eq!(page.author.as_deref(), Some("Anna & Otto"));
        assert_eq!(page.published.as_deref(), Some("2021-03-04"));
        assert_eq!(
            page.canonical.as_deref(),
            Some("https://example.org/c?x=1&y=2")
        );
        assert_eq!(page.declared_language.as_deref(), Some("de-AT"));
    }

    #[test]
    fn json_ld_speaks_for_articles_even_when_it_is_sloppy() {
        let page = meta(
            "<script type='application/ld+json'>\n{\"@graph\":[{\"@type\":\"WebSite\",\"name\":\"S\"},\
             {\"@type\":[\"NewsArticle\"],\"headline\":\"H &amp; M\",\"author\":[{\"name\":\"A\"},\"B\"],\
             \"datePublished\":\"2022-05-06\",\"license\":\"https://x.org/l\"}]}\n</script>\
             <script type='application/ld+json'>{broken</script>",
        );
        assert_eq!(page.title.as_deref(), Some("H & M"));
        assert_eq!(page.author.as_deref(), Some("A; B"));
        assert_eq!(page.published.as_deref(), Some("2022-05-06"));
        assert_eq!(page.licence, ["https://x.org/l"]);
    }

    #[test]
    fn robots_come_from_page_and_header_and_licences_from_links() {
        let html = "<meta name=robots content='noindex, FOLLOW'><a rel='license nofollow' href='/l'>x</a>\
            <a href='https://creativecommons.org/licenses/by/4.0/'>CC</a>";
        let (page, _) = read(
            &parse(html),
            None,
            Some("googlebot: noarchive, max-snippet: 20"),
        );
        assert_eq!(page.robots, ["noarchive", "noindex"]);
        assert_eq!(
            page.licence,
            ["/l", "https://creativecommons.org/licenses/by/4.0/"]
        );
    }
}
