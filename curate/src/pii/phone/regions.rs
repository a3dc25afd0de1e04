//! Regions whose national numbers are looked for in a text of a language.

use super::plans::{self, Plan};

/// Regions whose national numbers are found.
#[derive(Clone, Default)]
pub(crate) struct Regions(Vec<&'static Plan>);

impl Regions {
    /// The plans of the regions, in order of preference; unknown regions are left out.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Regions {
        Regions(names.into_iter().filter_map(plans::of_region).collect())
    }

    pub(super) fn plans(&self) -> &[&'static Plan] {
        &self.0
    }
}

/// A language's codes in ISO 639-1 and 639-3, and up to three regions where most of its speakers live. One region of the
/// North American plan stands for all of it.
const REGIONS: &str = "\
    en eng US GB AU|de deu DE AT CH|fr fra FR BE CH|es spa ES MX AR|pt por BR PT|it ita IT CH|nl nld NL BE|pl pol PL|sv swe SE FI|da dan DK|\
    no nor NO|nb nob NO|nn nno NO|fi fin FI|is isl IS|et est EE|lv lav LV|lt lit LT|cs ces CZ|sk slk SK|hu hun HU|ro ron RO MD|bg bul BG|\
    el ell GR CY|hr hrv HR|sr srp RS|bs bos BA|sl slv SI|mk mkd MK|sq sqi AL XK|ru rus RU BY KZ|uk ukr UA|be bel BY|kk kaz KZ|ga gle IE|\
    mt mlt MT|cy cym GB|gd gla GB|lb ltz LU|ca cat ES|eu eus ES|gl glg ES|tr tur TR|az aze AZ|ka kat GE|hy hye AM|he heb IL|ar ara SA EG AE|\
    fa fas IR|ur urd PK IN|hi hin IN|bn ben BD IN|mr mar IN|ta tam IN LK|te tel IN|gu guj IN|kn kan IN|ml mal IN|pa pan IN PK|ne nep NP|si sin LK|\
    th tha TH|vi vie VN|id ind ID|ms msa MY|tl tgl PH|my mya MM|km khm KH|lo lao LA|zh zho CN TW HK|ja jpn JP|ko kor KR|mn mon MN|sw swa KE TZ|\
    am amh ET|ha hau NG|yo yor NG|ig ibo NG|zu zul ZA|xh xho ZA|af afr ZA|uz uzb UZ|ky kir KG|tg tgk TJ|tk tuk TM|so som SO";

/// Regions for texts without a language: numbers of the North American plan.
const WITHOUT_LANGUAGE: [&str; 1] = ["US"];

/// Code of texts whose language nobody knows, ISO 639-2.
const UNDETERMINED: &str = "und";

/// Regions of a language's numbers: none for a language that is not in the table. The code may have a script behind it.
pub(crate) fn of_language(language: &str) -> Regions {
    let code = language.split(['_', '-']).next().unwrap_or("");
    if code.is_empty() || code == UNDETERMINED {
        return Regions::new(WITHOUT_LANGUAGE);
    }
    let row = REGIONS.split('|').map(|row| row.trim_start().split(' '));
    let mut row = row.filter(|row| row.clone().take(2).any(|c| c == code));
    Regions::new(row.next().into_iter().flat_map(|row| row.skip(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_region_of_the_table_has_a_plan() {
        let rows: Vec<Vec<&str>> = REGIONS
            .split('|')
            .map(|row| row.trim_start().split(' ').collect())
            .collect();
        assert!(rows.len() > 80);
        for row in rows {
            assert_eq!((row[0].len(), row[1].len()), (2, 3), "{row:?}");
            let wanted = row.len() - 2;
            assert!((1..=3).contains(&wanted), "{row:?}");
            for code in [
                row[0].to_string(),
                row[1].to_string(),
                format!("{}_Latn", row[1]),
            ] {
                assert_eq!(of_language(&code).0.len(), wanted, "{code}");
            }
        }
        for unknown in ["", "und"] {
            assert_eq!(of_language(unknown).0[0].region, "US");
        }
        assert!(of_language("tlh").0.is_empty());
    }
}
