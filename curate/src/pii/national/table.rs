//! Forms of national identity numbers, and words that stand near them.

use super::checks;

/// Whether a form needs one of the number's words near it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// The form is the number's own.
    Nothing,
    /// Other numbers have the form.
    Word,
}

/// A kind of number.
pub(super) struct Kind {
    /// Name of its counter and of the rule that drops.
    pub(super) rule: &'static str,
    /// Replacement; Presidio's name of the entity where it has one.
    pub(super) tag: &'static str,
    /// Countries, ISO 3166.
    pub(super) countries: &'static [&'static str],
    /// Templates: `9` a digit, `A` a capital letter, `?` either, `N` X, Y or Z, `s` + or -, `c` a sign of a Finnish century; all
    /// else is itself. A blank may be a no-break space.
    pub(super) forms: &'static [(&'static str, Needs)],
    /// Words in lower case, whole; several between blanks stand for a phrase.
    pub(super) words: &'static [&'static str],
    /// Structure and check digits of the characters without separators.
    pub(super) check: fn(&[u8]) -> bool,
    /// What a number without a word must meet beyond that.
    pub(super) plausible: fn(&[u8]) -> bool,
}

use Needs::{Nothing, Word};

const fn always(_: &[u8]) -> bool {
    true
}

/// Longest template, in characters.
pub(super) const LONGEST: usize = 24;

/// In order of precedence among numbers that fit the same text.
pub(super) static KINDS: [Kind; 31] = [
    Kind {
        rule: "pii.national_id.us_ssn",
        tag: "<US_SSN>",
        countries: &["US"],
        forms: &[("999-99-9999", Nothing), ("999 99 9999", Word), ("999999999", Word)],
        words: &["ssn", "ssns", "ss#", "social security", "soc sec"],
        check: checks::us_ssn,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.us_itin",
        tag: "<US_ITIN>",
        countries: &["US"],
        forms: &[("999-99-9999", Nothing), ("999 99 9999", Word), ("999999999", Word)],
        words: &["itin", "itins", "taxpayer identification", "taxpayer id", "tax id"],
        check: checks::us_itin,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.uk_nino",
        tag: "<UK_NINO>",
        countries: &["GB"],
        forms: &[("AA999999A", Nothing), ("AA 99 99 99 A", Nothing), ("AA-99-99-99-A", Nothing), ("AA 999999 A", Nothing)],
        words: &["nino", "national insurance", "ni number", "ni no"],
        check: checks::gb_nino,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.uk_nhs",
        tag: "<UK_NHS>",
        countries: &["GB"],
        forms: &[("999 999 9999", Word), ("999-999-9999", Word), ("9999999999", Word)],
        words: &["nhs", "national health service"],
        check: checks::gb_nhs,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.de_steuer_id",
        tag: "<DE_TAX_ID>",
        countries: &["DE"],
        forms: &[("99 999 999 999", Word), ("99999999999", Word)],
        words: &["steuer", "steuerid", "steuer id", "idnr", "steueridentifikationsnummer", "identifikationsnummer", "steueridentnummer", "steuernummer", "steuerliche", "tin", "tax id"],
        check: checks::de_steuer_id,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.fr_nir",
        tag: "<FR_NIR>",
        countries: &["FR"],
        forms: &[("9 99 99 9? 999 999 99", Nothing), ("99999 9? 999 999 99", Nothing), ("999999?99999999", Nothing), ("999999?999999 99", Nothing)],
        words: &["nir", "s\u{e9}curit\u{e9} sociale", "securite sociale", "num\u{e9}ro de s\u{e9}cu", "insee"],
        check: checks::fr_nir,
        plausible: checks::fr_nir_of_a_person,
    },
    Kind {
        rule: "pii.national_id.es_dni",
        tag: "<ES_NIF>",
        countries: &["ES"],
        forms: &[("99999999A", Nothing), ("99999999-A", Nothing), ("99.999.999-A", Nothing), ("99.999.999A", Nothing), ("99999999 A", Word), ("99.999.999 A", Word)],
        words: &["dni", "nif", "documento nacional", "d.n.i", "n.i.f"],
        check: checks::es_dni,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.es_nie",
        tag: "<ES_NIE>",
        countries: &["ES"],
        forms: &[("N9999999A", Nothing), ("N-9999999-A", Nothing), ("N9999999-A", Nothing), ("N-9999999A", Nothing)],
        words: &["nie", "n.i.e", "identidad de extranjero"],
        check: checks::es_nie,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.it_codice_fiscale",
        tag: "<IT_FISCAL_CODE>",
        countries: &["IT"],
        forms: &[("AAAAAA??A??A???A", Nothing), ("AAA AAA ??A?? A???A", Nothing)],
        words: &["codice fiscale", "cod fisc", "c.f"],
        check: checks::it_codice_fiscale,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.be_nn",
        tag: "<BE_NATIONAL_NUMBER>",
        countries: &["BE"],
        forms: &[("99.99.99-999.99", Nothing), ("99999999999", Word), ("999999 999 99", Word), ("999999-999-99", Word), ("99 99 99 999 99", Word)],
        words: &["rijksregisternummer", "rijksregister", "insz", "registre national", "niss", "num\u{e9}ro national", "numero national", "nationalregisternummer", "bisnummer"],
        check: checks::be_nn,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.se_personnummer",
        tag: "<SE_PERSONNUMMER>",
        countries: &["SE"],
        forms: &[("999999s9999", Nothing), ("99999999s9999", Nothing), ("9999999999", Word), ("999999999999", Word)],
        words: &["personnummer", "personnumret", "personnr", "person nr", "pnr", "personal identity number"],
        check: checks::se_personnummer,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.fi_hetu",
        tag: "<FI_PERSONAL_IDENTITY_CODE>",
        countries: &["FI"],
        forms: &[("999999c999?", Nothing)],
        words: &["henkil\u{f6}tunnus", "henkil\u{f6}tunnuksen", "hetu", "personbeteckning", "personal identity code"],
        check: checks::fi_hetu,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.cz_rodne_cislo",
        tag: "<CZ_BIRTH_NUMBER>",
        countries: &["CZ", "SK"],
        forms: &[("999999/9999", Nothing), ("999999/999", Word), ("9999999999", Word), ("999999999", Word)],
        words: &["rodn\u{e9} \u{10d}\u{ed}slo", "rodn\u{e9}ho \u{10d}\u{ed}sla", "rodne cislo", "r.\u{10d}", "r\u{10d}"],
        check: checks::cz_rodne_cislo,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.ie_pps",
        tag: "<IE_PPS>",
        countries: &["IE"],
        forms: &[("9999999AA", Nothing), ("9999999A", Word), ("9999999 A", Word), ("9999999 AA", Word)],
        words: &["pps", "ppsn", "pps number", "personal public service"],
        check: checks::ie_pps,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.ch_ahv",
        tag: "<CH_AHV>",
        countries: &["CH"],
        forms: &[("999.9999.9999.99", Nothing), ("9999999999999", Word), ("999 9999 9999 99", Word)],
        words: &["ahv", "avs", "oasi", "sozialversicherungsnummer", "versichertennummer"],
        check: checks::ch_ahv,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.lv_personas_kods",
        tag: "<LV_PERSONAL_CODE>",
        countries: &["LV"],
        forms: &[("999999-99999", Nothing), ("99999999999", Word)],
        words: &["personas kods", "personas kodu", "personas koda", "p.k"],
        check: checks::lv_personas_kods,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.nl_bsn",
        tag: "<NL_BSN>",
        countries: &["NL"],
        forms: &[("999999999", Word), ("9999.99.999", Word), ("9999 99 999", Word), ("999 999 999", Word)],
        words: &["bsn", "bsnr", "burgerservicenummer", "sofinummer", "sofi nummer"],
        check: checks::nl_bsn,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.pl_pesel",
        tag: "<PL_PESEL>",
        countries: &["PL"],
        forms: &[("99999999999", Word)],
        words: &["pesel", "peselu", "pesela"],
        check: checks::pl_pesel,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.pt_nif",
        tag: "<PT_NIF>",
        countries: &["PT"],
        forms: &[("999999999", Word), ("999 999 999", Word), ("999.999.999", Word)],
        words: &["nif", "contribuinte", "n.i.f", "identifica\u{e7}\u{e3}o fiscal"],
        check: checks::pt_nif,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.dk_cpr",
        tag: "<DK_CPR>",
        countries: &["DK"],
        forms: &[("999999-9999", Word), ("9999999999", Word), ("999999 9999", Word)],
        words: &["cpr", "cprnr", "cpr nr", "cprnummer", "personnummer"],
        check: checks::dk_cpr,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.no_fodselsnummer",
        tag: "<NO_BIRTH_NUMBER>",
        countries: &["NO"],
        forms: &[("99999999999", Word), ("999999 99999", Word), ("999999-99999", Word)],
        words: &["f\u{f8}dselsnummer", "fodselsnummer", "f\u{f8}dselsnr", "personnummer", "fnr", "d nummer"],
        check: checks::no_fodselsnummer,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.at_vnr",
        tag: "<AT_SOCIAL_SECURITY>",
        countries: &["AT"],
        forms: &[("9999 999999", Word), ("9999999999", Word), ("9999-999999", Word), ("9999/999999", Word)],
        words: &["svnr", "sv nr", "sv nummer", "sozialversicherungsnummer", "versicherungsnummer", "sozialversicherungsnr"],
        check: checks::at_vnr,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.ro_cnp",
        tag: "<RO_CNP>",
        countries: &["RO"],
        forms: &[("9999999999999", Word)],
        words: &["cnp", "c.n.p", "cod numeric personal", "codul numeric personal"],
        check: checks::ro_cnp,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.bg_egn",
        tag: "<BG_EGN>",
        countries: &["BG"],
        forms: &[("9999999999", Word)],
        words: &["\u{435}\u{433}\u{43d}", "egn", "\u{435}\u{434}\u{438}\u{43d}\u{435}\u{43d} \u{433}\u{440}\u{430}\u{436}\u{434}\u{430}\u{43d}\u{441}\u{43a}\u{438} \u{43d}\u{43e}\u{43c}\u{435}\u{440}"],
        check: checks::bg_egn,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.hu_adoazonosito",
        tag: "<HU_TAX_ID>",
        countries: &["HU"],
        forms: &[("9999999999", Word), ("999 999 9999", Word)],
        words: &["ad\u{f3}azonos\u{ed}t\u{f3}", "adoazonosito", "ad\u{f3}jel", "ad\u{f3}azonos\u{ed}t\u{f3}jel"],
        check: checks::hu_adoazonosito,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.hu_taj",
        tag: "<HU_TAJ>",
        countries: &["HU"],
        forms: &[("999999999", Word), ("999 999 999", Word), ("999-999-999", Word)],
        words: &["taj", "tajsz\u{e1}m", "taj sz\u{e1}m", "t\u{e1}rsadalombiztos\u{ed}t\u{e1}si"],
        check: checks::hu_taj,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.gr_amka",
        tag: "<GR_AMKA>",
        countries: &["GR"],
        forms: &[("99999999999", Word), ("999999 99999", Word)],
        words: &["\u{3b1}\u{3bc}\u{3ba}\u{3b1}", "\u{3b1}.\u{3bc}.\u{3ba}.\u{3b1}", "amka"],
        check: checks::gr_amka,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.hr_oib",
        tag: "<HR_OIB>",
        countries: &["HR"],
        forms: &[("99999999999", Word)],
        words: &["oib", "osobni identifikacijski broj", "osobnog identifikacijskog broja"],
        check: checks::hr_oib,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.si_emso",
        tag: "<SI_EMSO>",
        countries: &["SI"],
        forms: &[("9999999999999", Word)],
        words: &["em\u{161}o", "emso", "mati\u{10d}na \u{161}tevilka", "jmbg", "mati\u{10d}ni broj"],
        check: checks::si_emso,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.ee_isikukood",
        tag: "<EE_PERSONAL_CODE>",
        countries: &["EE"],
        forms: &[("99999999999", Word)],
        words: &["isikukood", "isikukoodi", "isikukoodiga"],
        check: checks::ee_isikukood,
        plausible: always,
    },
    Kind {
        rule: "pii.national_id.lt_asmens_kodas",
        tag: "<LT_PERSONAL_CODE>",
        countries: &["LT"],
        forms: &[("99999999999", Word)],
        words: &["asmens kodas", "asmens kodo", "asmens kod\u{105}", "a.k"],
        check: checks::lt_asmens_kodas,
        plausible: always,
    },
];
