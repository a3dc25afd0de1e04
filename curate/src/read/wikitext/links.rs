//! Text of wiki links.

/// Namespaces whose links show a file or sort the page, in the words of the larger wikis
/// (MediaWiki languages/messages).
const HIDDEN: [&str; 37] = [
    "file",
    "image",
    "media",
    "category",
    "datei",
    "bild",
    "kategorie",
    "fichier",
    "cat\u{e9}gorie",
    "archivo",
    "imagen",
    "categor\u{ed}a",
    "immagine",
    "categoria",
    "ficheiro",
    "imagem",
    "arquivo",
    "bestand",
    "afbeelding",
    "categorie",
    "fil",
    "kategori",
    "plik",
    "grafika",
    "kategoria",
    "\u{444}\u{430}\u{439}\u{43b}",
    "\u{438}\u{437}\u{43e}\u{431}\u{440}\u{430}\u{436}\u{435}\u{43d}\u{438}\u{435}",
    "\u{43a}\u{430}\u{442}\u{435}\u{433}\u{43e}\u{440}\u{438}\u{44f}",
    "\u{43a}\u{430}\u{442}\u{435}\u{433}\u{43e}\u{440}\u{456}\u{44f}",
    "\u{30d5}\u{30a1}\u{30a4}\u{30eb}",
    "\u{753b}\u{50cf}",
    "\u{6587}\u{4ef6}",
    "\u{5206}\u{7c7b}",
    "\u{5206}\u{985e}",
    "\u{5200}\u{5206}\u{985e}",
    "\u{645}\u{644}\u{641}",
    "\u{62a}\u{635}\u{646}\u{64a}\u{641}",
];

/// The text of `[[target|label]]`, its arguments given.
pub(super) fn internal(args: &[String]) -> String {
    let target = args.first().map_or("", |t| t.trim());
    if let Some(shown) = target.strip_prefix(':') {
        // `[[:Category:X]]` is a link like any other
        return label(args).unwrap_or_else(|| shown.to_string());
    }
    if let Some((space, _)) = target.split_once(':') {
        let space = space.trim().to_lowercase();
        if HIDDEN.contains(&space.as_str()) || is_language(&space) && args.len() == 1 {
            return String::new();
        }
    }
    match label(args) {
        Some(label) if label.is_empty() => piped(target).to_string(),
        Some(label) => label,
        None => target.trim_start_matches('/').replace('_', " "),
    }
}

/// The last argument, if there is more than the target.
fn label(args: &[String]) -> Option<String> {
    // a stray bar belongs to the label
    (args.len() > 1).then(|| args[1..].join("|").trim().to_string())
}

/// `[[Mercury (planet)|]]` and `[[Help:Links|]]` show the target without namespace and brackets.
fn piped(target: &str) -> &str {
    let name = target.split_once(':').map_or(target, |(_, name)| name);
    name.split(" (").next().unwrap_or(name).trim()
}

/// A language's prefix: links to the same article elsewhere.
fn is_language(prefix: &str) -> bool {
    let main = prefix.split('-').next().unwrap_or_default();
    let plain = prefix.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    plain && (main.len() == 2 || main.len() == 3) || prefix == "simple"
}

/// An external link is no longer than this.
const MAX_LABEL: usize = 4096;

/// Start of the label of `[http://host/ label]`; its end if there is none. None if it is not an external link.
pub(super) fn external(text: &str) -> Option<usize> {
    let inner = &text[1..];
    let scheme = ["http://", "https://", "//", "ftp://", "mailto:", "news:"];
    if !scheme.iter().any(|s| inner.starts_with(s)) {
        return None;
    }
    let near = &inner[..inner.floor_char_boundary(MAX_LABEL)];
    let line = &near[..near.find('\n').unwrap_or(near.len())];
    // the label may contain a link: [http://x a [[b]] c]
    let mut depth = 0;
    let end = line.bytes().position(|b| match b {
        b'[' => {
            depth += 1;
            false
        }
        b']' if depth == 0 => true,
        b']' => {
            depth -= 1;
            false
        }
        _ => false,
    })?;
    Some(line[..end].find(' ').map_or(end, |space| space + 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(text: &str) -> String {
        let args: Vec<String> = text.split('|').map(str::to_string).collect();
        internal(&args)
    }

    #[test]
    fn links_become_their_text() {
        for (source, want) in [
            ("Target", "Target"),
            ("Target|label", "label"),
            ("Snake_case", "Snake case"),
            ("Mercury (planet)|", "Mercury"),
            ("File:a.jpg|thumb|A caption", ""),
            (":Category:Birds", "Category:Birds"),
            ("Category:Birds", ""),
            ("de:Vogel", ""),
            ("wikt:bird|bird", "bird"),
            ("Star Trek: First Contact", "Star Trek: First Contact"),
        ] {
            assert_eq!(link(source), want, "{source}");
        }
        assert_eq!(external("[http://x.y/ a [[b]] c] d"), Some(13));
        assert_eq!(external("[http://x.y/]"), Some(12));
        assert_eq!(external("[sic]"), None);
        assert_eq!(external("[http://never closed"), None);
    }
}
