//! Days written in the ways pages write them, as `YYYY-MM-DD`.
//!
//! Read are ISO 8601 (its time is ignored), `YYYY/MM/DD`, `YYYYMMDD`, `DD.MM.YYYY`, `DD/MM/YYYY`
//! where the first number cannot be a month or the separator is a dot, and English month names
//! with day and year in any order (RFC 2822 among them). What is ambiguous is no date.

/// Earliest and latest year taken for a date of a page.
const YEARS: std::ops::RangeInclusive<u32> = 1990..=2099;

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

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
    let mut month = None;
    let mut before = ' ';
    for piece in pieces(text) {
        let kept = piece.trim_matches(|c: char| !c.is_alphanumeric());
        if let Ok(value) = kept.parse::<u32>() {
            numbers.push((kept.len(), value, before));
        } else if month.is_none() && kept.len() >= 3 {
            let lower = kept.to_ascii_lowercase();
            let found = MONTHS.iter().position(|m| lower.starts_with(m));
            month = found.and_then(|m| u32::try_from(m + 1).ok());
        }
        before = piece.chars().next_back().unwrap_or(' ');
    }
    if let Some(month) = month
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

/// Runs of digits or of letters, each with what stands between it and the next.
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
