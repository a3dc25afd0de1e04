//! Source code classifier: distinguishes code from prose, and the thirteen programming languages of ROOTS.
//!
//! A linear model of hashed tokens (`model.rs`, trained by `examples/train_code.rs`) gives the probabilities of 13
//! languages (Laurencon et al. 2022, arXiv:2303.03915, table 1), of other code, markup and data, and of prose. A
//! file name's extension decides where it has one meaning; where several languages share it (`.h`, `.ts`, `.php`,
//! `.rs`) the content decides among them.

mod config;
mod features;
mod labels;
mod model;
mod train;

use std::path::Path;
use std::sync::LazyLock;

use self::labels::{OTHER, PROSE};
use self::model::Model;

pub use self::config::CodeConfig;
pub use self::labels::CODE_LABELS;
pub use self::train::{CodeExamples, CodeTraining};

/// Class of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CodeGuess {
    /// One of [`CODE_LABELS`].
    pub label: &'static str,
    /// 0 to 1.
    pub confidence: f64,
    /// Probability that the text is no prose.
    pub code: f64,
}

static MODEL: LazyLock<Model> = LazyLock::new(|| {
    // the file is part of the program and a test reads it
    Model::parse(Path::new("code/model.bin"), include_bytes!("model.bin"))
        .expect("the built-in model is whole")
});

/// Labels that an extension can mean.
const EXTENSIONS: &[(&str, &[usize])] = &[
    ("c", &[0]),
    ("h", &[0, 2]),
    ("cs", &[1]),
    ("csx", &[1]),
    ("cc cpp cxx c++ hpp hh hxx h++ ipp tpp inl", &[2]),
    ("go", &[3]),
    ("java", &[4]),
    ("js jsx mjs cjs es6", &[5]),
    ("lua rockspec", &[6]),
    ("php php3 php4 php5 phtml", &[7, OTHER]),
    ("py pyw pyi pyx", &[8]),
    ("rb rake gemspec ru", &[9]),
    ("rs", &[10, OTHER]),
    ("scala sbt", &[11]),
    ("ts tsx mts cts", &[12, OTHER]),
];

/// Labels that the extension of a file name or address can mean; empty if it means none of them.
fn from_extension(name: &str) -> &'static [usize] {
    let name = name.split(['?', '#']).next().unwrap_or_default();
    let file = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let Some((_, extension)) = file.rsplit_once('.') else {
        return &[];
    };
    let extension = extension.to_ascii_lowercase();
    let known = |e: &&(&str, &'static [usize])| {
        e.0.split_ascii_whitespace().any(|known| known == extension)
    };
    EXTENSIONS.iter().find(known).map_or(&[], |e| e.1)
}

/// Classifies a text by its content and, if given, its file name or address.
pub fn identify_code(text: &str, name: Option<&str>) -> CodeGuess {
    let p = MODEL.probabilities(text);
    let code = 1.0 - f64::from(p[PROSE]);
    let candidates = name.map_or(&[][..], from_extension);
    let best = |among: &mut dyn Iterator<Item = usize>| {
        among.max_by(|&a, &b| p[a].total_cmp(&p[b]).then(b.cmp(&a)))
    };
    let label = match candidates {
        [] => best(&mut (0..CODE_LABELS.len())),
        [one] => Some(*one),
        several => best(&mut several.iter().copied()),
    };
    let label = label.unwrap_or(PROSE);
    let confidence = if candidates.is_empty() {
        f64::from(p[label])
    } else {
        // probability of the labels that the name allows
        let open: f32 = candidates.iter().map(|&c| p[c]).sum();
        if open > 0.0 {
            f64::from(p[label] / open)
        } else {
            0.0
        }
    };
    CodeGuess {
        label: CODE_LABELS[label],
        confidence,
        code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_file_is_told_from_prose() {
        let prose = "The function of a filter is to keep what matters; for example, if a page returns nothing of \
            value (and many do), it is left out. Import duties were then raised by the new class of merchants.";
        assert_eq!(identify_code(prose, None).label, "prose");
        let russian = "Функция фильтра состоит в том, чтобы сохранить важное; остальное (а его много) отбрасывается.";
        assert_eq!(identify_code(russian, None).label, "prose");
        for (label, text) in [
            (
                "Python",
                "import os\n\ndef main(path):\n    for name in os.listdir(path):\n        if name.endswith('.py'):\n            print(name)\n\nif __name__ == '__main__':\n    main('.')\n",
            ),
            (
                "Rust",
                "use std::fs;\n\npub fn main() {\n    let mut n = 0;\n    for entry in fs::read_dir(\".\").unwrap() {\n        n += 1;\n        println!(\"{:?}\", entry);\n    }\n}\n",
            ),
            (
                "Java",
                "package a.b;\n\nimport java.util.List;\n\npublic class Main {\n    public static void main(String[] args) {\n        System.out.println(args.length);\n    }\n}\n",
            ),
            (
                "Go",
                "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tx := 3\n\tif err := run(x); err != nil {\n\t\tfmt.Println(err)\n\t}\n}\n",
            ),
            (
                "C",
                "#include <stdio.h>\n#include <stdlib.h>\n\nint main(int argc, char **argv)\n{\n    printf(\"%d\\n\", argc);\n    return 0;\n}\n",
            ),
        ] {
            let guess = identify_code(text, None);
            assert_eq!(guess.label, label, "{guess:?}");
            assert!(guess.code > 0.5);
        }
    }

    #[test]
    fn names_decide_where_they_can() {
        let guess = |name| identify_code("x = 1\n", Some(name)).label;
        assert_eq!(guess("a/b.py"), "Python");
        assert_eq!(guess("https://h/x/Main.JAVA?raw=1"), "Java");
        assert_eq!(from_extension("a.h"), [0, 2]);
        assert_eq!(from_extension("Makefile"), [0usize; 0]);
        assert_eq!(from_extension("a.b/c"), [0usize; 0]);
        let header = "#pragma once\nnamespace a {\ntemplate <typename T>\nclass B : public C<T> {\n public:\n  virtual ~B() {}\n};\n}\n";
        assert_eq!(identify_code(header, Some("b.h")).label, "C++");
    }

    #[test]
    fn anything_gets_an_answer() {
        for text in ["", "\n\n", "\u{0}", "{}", "\u{1f600}"] {
            let guess = identify_code(text, None);
            assert!((0.0..=1.0).contains(&guess.confidence), "{guess:?}");
        }
        let damaged = &include_bytes!("model.bin")[..100];
        assert!(Model::parse(Path::new("m"), damaged).is_err());
    }
}
