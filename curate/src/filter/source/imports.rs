//! Files of a repository that a file imports, by the statements of ten languages.
//!
//! A statement is resolved to files by their paths: relative to the importing file, else by the longest end of a path that
//! it names. Packages outside the repository resolve to nothing.

use std::sync::LazyLock;

use regex::Regex;
use rustc_hash::FxHashMap;

use super::file;

/// How a language names what it imports.
#[derive(Clone, Copy, PartialEq)]
enum Names {
    /// A path relative to the file, or the end of one: `"a/b.h"`.
    Path,
    /// A path without its extension: `./a/b`.
    Module,
    /// A module with dots: `a.b.c`; leading dots lead upwards.
    Dotted,
    /// A class with dots.
    Class,
    /// A namespace, declared in the files.
    Namespace,
    /// A folder of files.
    Package,
    /// A module below the file's own.
    Child,
    /// A path of modules below `src`.
    Crate,
}

struct Statement {
    extensions: &'static str,
    names: Names,
    pattern: Regex,
}

static STATEMENTS: LazyLock<Vec<Statement>> = LazyLock::new(|| {
    [
        ("c h cc cpp cxx hh hpp hxx cu cuh m mm", Names::Path, r#"(?m)^[ \t]*#[ \t]*(?:include|import)[ \t]*[<"]([^>"\n]+)[>"]"#),
        ("py pyi", Names::Dotted, r"(?m)^[ \t]*import[ \t]+([\w.]+)"),
        ("py pyi", Names::Dotted, r"(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+\(?[ \t]*(\w*)"),
        ("java kt kts scala groovy", Names::Class, r"(?m)^[ \t]*import[ \t]+(?:static[ \t]+)?([\w.]+)"),
        ("cs", Names::Namespace, r"(?m)^[ \t]*(?:global[ \t]+)?using[ \t]+(?:static[ \t]+)?([\w.]+)[ \t]*;"),
        ("js jsx mjs cjs ts tsx mts cts vue", Names::Module, r#"(?m)(?:\bfrom|\bimport|\brequire\(|\bimport\()[ \t]*['"](\.[^'"\n]*)['"]"#),
        ("go", Names::Package, r#"(?m)^[ \t]*(?:import[ \t]+)?(?:[\w.]+[ \t]+)?"([\w./-]+)"[ \t]*$"#),
        ("rs", Names::Child, r"(?m)^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?mod[ \t]+(\w+)[ \t]*;"),
        ("rs", Names::Crate, r"(?m)^[ \t]*(?:pub(?:\([^)]*\))?[ \t]+)?use[ \t]+crate::([\w:]+)"),
        ("rb", Names::Module, r#"(?m)^[ \t]*require_relative[ \t]*\(?['"]([^'"\n]+)['"]"#),
        ("php", Names::Path, r#"(?m)^[ \t]*(?:require|include)(?:_once)?[ \t(]*(?:__DIR__[ \t]*\.[ \t]*)?['"]/?([^'"\n]+)['"]"#),
    ]
    .map(|(extensions, names, pattern)| Statement {
        extensions,
        names,
        pattern: Regex::new(pattern).expect("the pattern is one"),
    })
    .into()
});

static NAMESPACE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?m)^[ \t]*namespace[ \t]+([\w.]+)").expect("the pattern is one")
});

/// Ends of a path that are looked up, and statements of a file that count: more are data.
const DEEPEST: usize = 16;
const MOST_IMPORTS: usize = 1000;
/// A folder or namespace with more files than this is a package of no use.
const MOST_FILES: usize = 200;

/// An import of a file.
struct Import<'a> {
    names: Names,
    /// Of the importing file.
    path: &'a str,
    name: &'a str,
    /// Name that is imported of the module, in Python.
    member: &'a str,
}

/// The files of a repository by their paths.
pub(super) struct Paths<'a> {
    paths: Vec<&'a str>,
    whole: FxHashMap<&'a str, usize>,
    /// Every end of a path that starts at a folder, to the shortest path with it.
    ends: FxHashMap<&'a str, usize>,
    /// Folders and every end of theirs, to their Go files.
    folders: FxHashMap<&'a str, Vec<usize>>,
    /// Namespaces to the files that declare them.
    namespaces: FxHashMap<&'a str, Vec<usize>>,
}

/// Ends of a path at its folders, the whole path first.
fn ends(path: &str) -> impl Iterator<Item = &str> {
    let folders = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
    std::iter::once(path).chain(folders).take(DEEPEST)
}

impl<'a> Paths<'a> {
    pub(super) fn of(files: &[(&'a str, &'a str)]) -> Paths<'a> {
        let mut paths = Paths {
            paths: files.iter().map(|(path, _)| *path).collect(),
            whole: FxHashMap::default(),
            ends: FxHashMap::default(),
            folders: FxHashMap::default(),
            namespaces: FxHashMap::default(),
        };
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|&i| (files[i].0.len(), files[i].0));
        for i in order {
            let (path, text) = files[i];
            paths.whole.entry(path).or_insert(i);
            for end in ends(path) {
                paths.ends.entry(end).or_insert(i);
            }
            let extension = file::extension(path);
            if extension == "go" {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                for end in ends(folder).filter(|end| !end.is_empty()) {
                    paths.folders.entry(end).or_default().push(i);
                }
            }
            if extension == "cs" {
                for name in NAMESPACE.captures_iter(text).take(MOST_IMPORTS) {
                    let name = name.get(1).map_or("", |m| m.as_str());
                    paths.namespaces.entry(name).or_default().push(i);
                }
            }
        }
        paths
    }

    /// Files that the file `at` with this text imports.
    pub(super) fn imports(&self, at: usize, text: &str) -> Vec<usize> {
        let path = self.paths[at];
        let extension = file::extension(path);
        let mut found = Vec::new();
        for statement in STATEMENTS.iter() {
            if !statement.extensions.split(' ').any(|e| e == extension) {
                continue;
            }
            for import in statement.pattern.captures_iter(text).take(MOST_IMPORTS) {
                let name = import.get(1).map_or("", |m| m.as_str());
                let member = import.get(2).map_or("", |m| m.as_str());
                let import = Import {
                    names: statement.names,
                    path,
                    name,
                    member,
                };
                self.resolve(import, &mut found);
            }
        }
        found.retain(|&other| other != at);
        found.sort_unstable();
        found.dedup();
        found
    }

    fn resolve(&self, import: Import<'_>, found: &mut Vec<usize>) {
        let Import {
            names,
            path,
            name,
            member,
        } = import;
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        match names {
            Names::Path => found.extend(self.relative(folder, name).or_else(|| self.end(name))),
            Names::Module => {
                let ends = [
                    "",
                    ".ts",
                    ".tsx",
                    ".js",
                    ".jsx",
                    ".mjs",
                    ".vue",
                    ".rb",
                    "/index.ts",
                    "/index.tsx",
                    "/index.js",
                ];
                found.extend(
                    ends.iter()
                        .find_map(|end| self.relative(folder, &format!("{name}{end}"))),
                );
            }
            Names::Dotted => found.extend(self.python(folder, name, member)),
            Names::Class => {
                let class = name.replace('.', "/");
                let outer = class.rsplit_once('/').map_or("", |(outer, _)| outer);
                let ends = [".java", ".kt", ".scala", ".groovy"];
                let of = |class: &str| {
                    ends.iter()
                        .find_map(|end| self.end(&format!("{class}{end}")))
                };
                found.extend(of(&class).or_else(|| of(outer)));
            }
            Names::Namespace => {
                let files = self
                    .namespaces
                    .get(name)
                    .filter(|files| files.len() <= MOST_FILES);
                found.extend(files.into_iter().flatten());
            }
            Names::Package => {
                let files = ends(name).find_map(|end| self.folders.get(end));
                let files = files.filter(|files| files.len() <= MOST_FILES);
                found.extend(files.into_iter().flatten());
            }
            Names::Child => {
                let stem = file::file_name(path).trim_end_matches(".rs");
                let own = match stem {
                    "mod" | "lib" | "main" => String::new(),
                    stem => format!("{stem}/"),
                };
                let ends = [".rs", "/mod.rs"];
                found.extend(
                    ends.iter()
                        .find_map(|end| self.relative(folder, &format!("{own}{name}{end}"))),
                );
            }
            Names::Crate => {
                let root = path.rfind("src/").map_or("", |at| &path[..at + 3]);
                let mut module = name.trim_end_matches(':').replace("::", "/");
                loop {
                    let ends = [".rs", "/mod.rs"];
                    let file = ends
                        .iter()
                        .find_map(|end| self.relative(root, &format!("{module}{end}")));
                    if file.is_some() {
                        found.extend(file);
                        break;
                    }
                    match module.rsplit_once('/') {
                        Some((outer, _)) => module = outer.to_string(),
                        None => break,
                    }
                }
            }
        }
    }

    fn python(&self, folder: &str, name: &str, member: &str) -> Option<usize> {
        let dots = name.bytes().take_while(|b| *b == b'.').count();
        let module = name[dots..].replace('.', "/");
        let with_member = match (module.is_empty(), member.is_empty()) {
            (true, _) => member.to_string(),
            (false, true) => module.clone(),
            (false, false) => format!("{module}/{member}"),
        };
        for module in [with_member.as_str(), module.as_str()] {
            for end in [".py", "/__init__.py", ".pyi"] {
                let wanted = format!("{module}{end}");
                let file = if dots > 0 {
                    let up = "../".repeat(dots - 1);
                    self.relative(folder, &format!("{up}{}", wanted.trim_start_matches('/')))
                } else {
                    self.relative(folder, &wanted).or_else(|| self.end(&wanted))
                };
                if file.is_some() {
                    return file;
                }
            }
        }
        None
    }

    /// The file at a path relative to a folder.
    fn relative(&self, folder: &str, name: &str) -> Option<usize> {
        let mut parts: Vec<&str> = folder.split('/').filter(|p| !p.is_empty()).collect();
        for part in name.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()?),
                part => parts.push(part),
            }
        }
        self.whole.get(parts.join("/").as_str()).copied()
    }

    /// The file whose path ends so.
    fn end(&self, name: &str) -> Option<usize> {
        let name = name.trim_start_matches(['.', '/']);
        self.ends.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<Vec<usize>> {
        let paths = Paths::of(files);
        let each = files.iter().enumerate();
        each.map(|(i, (_, text))| paths.imports(i, text)).collect()
    }

    #[test]
    fn statements_of_each_language_lead_to_files() {
        let python = [
            ("pkg/__init__.py", ""),
            (
                "pkg/a.py",
                "import os\nfrom . import b\nfrom .c.d import e\n",
            ),
            ("pkg/b.py", "import pkg.a\n"),
            ("pkg/c/d.py", "from ..b import x\nfrom pkg import a\n"),
        ];
        assert_eq!(imports(&python), [vec![], vec![2, 3], vec![1], vec![1, 2]]);
        let c = [
            (
                "src/a.c",
                "#include <stdio.h>\n#include \"b.h\"\n#include \"x/c.h\"\n",
            ),
            ("src/b.h", ""),
            ("include/x/c.h", ""),
        ];
        assert_eq!(imports(&c), [vec![1, 2], vec![], vec![]]);
        let java = [
            ("m/src/a/B.java", "import a.c.D;\nimport static a.c.E.f;\n"),
            ("m/src/a/c/D.java", ""),
            ("m/src/a/c/E.java", ""),
        ];
        assert_eq!(imports(&java), [vec![1, 2], vec![], vec![]]);
        let sharp = [
            ("a.cs", "using N.M;\nusing System;\n"),
            ("b.cs", "namespace N.M\n{\n}\n"),
        ];
        assert_eq!(imports(&sharp), [vec![1], vec![]]);
        let script = [
            (
                "a.ts",
                "import x from './lib/b';\nconst y = require('../c');\n",
            ),
            ("lib/b.tsx", "import '../a';\n"),
        ];
        assert_eq!(imports(&script), [vec![1], vec![0]]);
        let go = [
            (
                "cmd/main.go",
                "import (\n\t\"fmt\"\n\t\"host/m/pkg/b\"\n)\n",
            ),
            ("pkg/b/x.go", ""),
            ("pkg/b/y.go", ""),
        ];
        assert_eq!(imports(&go), [vec![1, 2], vec![], vec![]]);
        let rust = [
            ("src/lib.rs", "mod a;\npub mod b;\n"),
            ("src/a.rs", "use crate::b::c::D;\nmod e;\n"),
            ("src/b/mod.rs", ""),
            ("src/a/e.rs", ""),
        ];
        assert_eq!(imports(&rust), [vec![1, 2], vec![2, 3], vec![], vec![]]);
    }
}
