//! Parser for dates in the forms that pages use, to `YYYY-MM-DD`.
//!
//! Accepted are ISO 8601 (its time is ignored), `YYYY/MM/DD`, `YYYYMMDD`, `DD.MM.YYYY`, `DD/MM/YYYY`
//! where the first number cannot be a month or the separator is a dot, and month names of
//! many languages with day and year in any order (RFC 2822 among them). Ambiguous forms are rejected.

/// Earliest and latest year taken for a date of a page.
const YEARS: std::ops::RangeInclusive<u32> = 1990..=2099;

/// Names and abbreviations of the months in languages of Europe: English, German, French, Spanish, Italian,
/// Portuguese, Dutch, Swedish, Danish, Norwegian, Finnish, Polish, Czech, Slovak, Romanian, Hungarian,
/// Turkish, Russian.
const MONTHS: [&str; 12] = [
    "jan january januar j\u{e4}nner janvier janv enero ene gennaio gen janeiro januari tammikuuta stycznia \
     ledna leden janu\u{e1}ra ianuarie janu\u{e1}r ocak \u{44f}\u{43d}\u{432}\u{430}\u{440}\u{44f}",
    "feb february februar f\u{e9}vrier f\u{e9}vr fevrier febrero febbraio fevereiro fev februari helmikuuta \
     lutego \u{fa}nora \u{fa}nor febru\u{e1}ra februarie febru\u{e1}r \u{15f}ubat \
     \u{444}\u{435}\u{432}\u{440}\u{430}\u{43b}\u{44f}",
    "mar march m\u{e4}rz m\u{e4}r mrz maerz mars marzo mar\u{e7}o maart mrt maaliskuuta marca b\u{159}ezna \
     b\u{159}ezen martie m\u{e1}rcius mart \u{43c}\u{430}\u{440}\u{442}\u{430}",
    "apr april avril avr abril abr aprile huhtikuuta kwietnia dubna duben apr\u{ed}la aprilie \
     \u{e1}prilis nisan \u{430}\u{43f}\u{440}\u{435}\u{43b}\u{44f}",
    "may mai mayo maggio mag maio mei maj toukokuuta maja kv\u{11b}tna kv\u{11b}ten m\u{e1}ja m\u{e1}jus \
     may\u{131}s \u{43c}\u{430}\u{44f}",
    "jun june juni juin junio giugno giu junho kes\u{e4}kuuta czerwca \u{10d}ervna \u{10d}erven j\u{fa}na \
     iunie j\u{fa}nius haziran \u{438}\u{44e}\u{43d}\u{44f}",
    "jul july juli juillet juil julio luglio lug julho hein\u{e4}kuuta lipca \u{10d}ervence \
     \u{10d}ervenec j\u{fa}la iulie j\u{fa}lius temmuz \u{438}\u{44e}\u{43b}\u{44f}",
    "aug august ao\u{fb}t aout agosto ago augustus augusti elokuuta sierpnia srpna srpen augusta \
     augusztus a\u{11f}ustos \u{430}\u{432}\u{433}\u{443}\u{441}\u{442}\u{430}",
    "sep sept september septembre septiembre settembre set setembro syyskuuta wrze\u{15b}nia \
     z\u{e1}\u{159}\u{ed} septembra septembrie szeptember eyl\u{fc}l \
     \u{441}\u{435}\u{43d}\u{442}\u{44f}\u{431}\u{440}\u{44f}",
    "oct october oktober okt octobre octubre ottobre ott outubro out lokakuuta pa\u{17a}dziernika \
     \u{159}\u{ed}jna \u{159}\u{ed}jen okt\u{f3}bra octombrie okt\u{f3}ber ekim \
     \u{43e}\u{43a}\u{442}\u{44f}\u{431}\u{440}\u{44f}",
    "nov november novembre noviembre novembro marraskuuta listopada listopadu listopad novembra \
     noiembrie kas\u{131}m \u{43d}\u{43e}\u{44f}\u{431}\u{440}\u{44f}",
    "dec december dezember dez d\u{e9}cembre d\u{e9}c decembre diciembre dic dicembre dezembro joulukuuta \
     grudnia prosince prosinec decembra decembrie aral\u{131}k \
     \u{434}\u{435}\u{43a}\u{430}\u{431}\u{440}\u{44f}",
];

/// The month that a word in lower case names, from 1.
fn month(word: &str) -> Option<u32> {
    let found = MONTHS
        .iter()
        .position(|names| names.split_ascii_whitespace().any(|name| name == word))?;
    u32::try_from(found + 1).ok()
}

/// True if a word in lower case names a month.
pub(super) fn is_month(word: &str) -> bool {
    month(word).is_some()
}

fn written(year: u32, month: u32, day: u32) -> Option<String> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (YEARS.contains(&year) && (1..=days).contains(&day))
        .then(|| format!("{year:04}-{month:02}-{day:02}"))
}

/// The day that `text` names.
pub(super) fn day(text: &str) -> Option<String> {
    let text = text.trim();
    let text = &text[..text.floor_char_boundary(64)];
    // Runs of digits and of letters, with the character before each.
    let mut numbers: Vec<(usize, u32, char)> = Vec::new();
    let mut named = None;
    let mut before = ' ';
    for piece in pieces(text) {
        let kept = piece.trim_matches(|c: char| !c.is_alphanumeric());
        if let Ok(value) = kept.parse::<u32>() {
            numbers.push((kept.len(), value, before));
        } else if named.is_none() && kept.len() >= 3 {
            named = month(&kept.to_lowercase());
        }
        before = piece.chars().next_back().unwrap_or(' ');
    }
    if let Some(month) = named
        && let Some(year) = numbers.iter().find(|n| n.0 == 4)
        && let Some(day) = numbers.iter().find(|n| n.0 <= 2)
    {
        return written(year.1, month, day.1);
    }
    match numbers[..] {
        [(4, y, _), (..=2, m, _), (..=2, d, _), ..] => written(y, m, d),
        [(8, n, _), ..] => written(n / 10_000, n / 100 % 100, n % 100),
        [(14, ..), ..] => None,
        [(..=2, d, _), (..=2, m, sep), (4, y, _), ..] if sep == '.' || d > 12 => written(y, m, d),
        [(..=2, m, _), (..=2, d, _), (4, y, _), ..] if d > 12 => written(y, m, d),
        _ => None,
    }
}

/// Runs of digits or of letters, each with the separator after it.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let digits = first.is_ascii_digit();
        let end = rest
            .find(|c: char| !c.is_alphanumeric() || c.is_ascii_digit() != digits)
            .unwrap_or(rest.len());
        let between = rest[end..]
            .find(char::is_alphanumeric)
            .map_or(rest.len(), |i| end + i);
        let (piece, tail) = rest.split_at(between.max(first.len_utf8()));
        rest = tail;
        Some(piece)
    })
}

/// The day in an address such as `/2021/03/04/` or `/2021-03-04-`.
pub(super) fn in_address(address: &str) -> Option<String> {
    let path = address.split_once("://").map_or(address, |p| p.1);
    let bytes = path.as_bytes();
    let number = |from: usize, len: usize| -> Option<u32> {
        let digits = bytes.get(from..from + len)?;
        digits.iter().all(u8::is_ascii_digit).then_some(())?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    };
    let is_separator = |at: usize| {
        bytes
            .get(at)
            .is_none_or(|b| matches!(b, b'/' | b'-' | b'_' | b'.' | b'?'))
    };
    (0..bytes.len())
        .filter(|&at| at > 0 && matches!(bytes[at - 1], b'/' | b'-' | b'_'))
        .find_map(|at| {
            let (year, month, day) = (number(at, 4)?, number(at + 5, 2)?, number(at + 8, 2)?);
            let fits = is_separator(at + 4) && is_separator(at + 7) && is_separator(at + 10);
            fits.then(|| written(year, month, day))?
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_read_in_the_usual_notations_and_ambiguous_ones_are_not() {
        for (text, want) in [
            ("2021-03-04T05:06:07+01:00", Some("2021-03-04")),
            ("2021-03-04", Some("2021-03-04")),
            ("2021/3/4 10:00", Some("2021-03-04")),
            ("20210304", Some("2021-03-04")),
            ("04.03.2021", Some("2021-03-04")),
            ("25/12/2021", Some("2021-12-25")),
            ("12/25/2021", Some("2021-12-25")),
            ("04/03/2021", None),
            ("Thu, 04 Mar 2021 05:06:07 GMT", Some("2021-03-04")),
            ("March 4th, 2021", Some("2021-03-04")),
            ("4 sept. 2021", Some("2021-09-04")),
            ("4. M\u{e4}rz 2021", Some("2021-03-04")),
            ("le 4 d\u{e9}cembre 2021 \u{e0} 10h", Some("2021-12-04")),
            ("4 de mayo de 2021", Some("2021-05-04")),
            ("Mayor 4, 2021", None),
            ("2021-02-30", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(day(text).as_deref(), want, "{text}");
        }
        assert_eq!(
            in_address("https://x.org/2021/03/04/a").as_deref(),
            Some("2021-03-04")
        );
        assert_eq!(
            in_address("https://x.org/a-2021-03-04").as_deref(),
            Some("2021-03-04")
        );
        assert_eq!(in_address("https://x.org/a/123456789"), None);
    }
}
