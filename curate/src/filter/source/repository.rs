//! Files of a repository as one text, each behind the files that it imports.
//!
//! The order is DeepSeek-Coder's (Guo et al. 2024, arXiv:2401.14196, algorithm 1): in each connected part of the graph of imports
//! the file with the fewest imports that are not written yet comes next, which breaks circles. Of equal files the one
//! that more files import comes first, then the one with the smaller path, where the paper takes any; parts come in the order of their smallest path.
//! Layouts are StarCoder 2's (arXiv:2402.19173, section 5.1) and DeepSeek-Coder's comment with the path.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::file::{extension, field};
use super::imports::Paths;
use crate::check::Problem;
use crate::contract::{Draft, Filter, Opening, StepConfig, StepScratch};
use crate::error::Result;
use crate::verdict::{Judge, KEEP, Verdict, broken};

/// Order of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileOrder {
    /// Imported files first.
    #[default]
    Dependencies,
    /// By path: folders depth first.
    Path,
    /// By the number of folders, then by path.
    Depth,
    /// Files at the top first, then by path.
    TopLevel,
}

/// How files are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileLayout {
    /// `<repo_name>name<file_sep>path`, a line feed and the file, for every file.
    #[default]
    Starcoder2,
    /// The same without names: `<file_sep>` before every file.
    Anonymous,
    /// A comment with the path before every file.
    Comments,
}

/// Joins the files of a repository. The text is a JSON list of files (`text_key = "files"` of the input), each with `path` and
/// `content` or `text`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Repository {
    /// Order of the files.
    pub order: FileOrder,
    /// Layout.
    pub layout: FileLayout,
    /// Field of `meta` with the repository's name. Default: `repo_name`, else `repo`.
    pub name_key: String,
}

/// Positions of files in the order in which they are written; `imports` lists the files that each one imports, and all are
/// numbered in the order of their paths.
fn by_dependencies(imports: &[Vec<usize>]) -> Vec<usize> {
    let n = imports.len();
    let mut importers = vec![Vec::new(); n];
    let mut waits_for: Vec<usize> = imports.iter().map(Vec::len).collect();
    for (file, imported) in imports.iter().enumerate() {
        imported.iter().for_each(|&i| importers[i].push(file));
    }
    let mut order = Vec::with_capacity(n);
    let mut part = vec![usize::MAX; n];
    for first in 0..n {
        if part[first] != usize::MAX {
            continue;
        }
        // the connected part of this file
        let mut members = vec![first];
        part[first] = first;
        let mut at = 0;
        while at < members.len() {
            let file = members[at];
            for &other in imports[file].iter().chain(&importers[file]) {
                if part[other] == usize::MAX {
                    part[other] = first;
                    members.push(other);
                }
            }
            at += 1;
        }
        let key = |i: usize, waits_for: &[usize]| (waits_for[i], Reverse(importers[i].len()), i);
        let mut open: BTreeSet<_> = members.iter().map(|&i| key(i, &waits_for)).collect();
        while let Some((_, _, file)) = open.pop_first() {
            order.push(file);
            for &importer in &importers[file] {
                if open.remove(&key(importer, &waits_for)) {
                    waits_for[importer] -= 1;
                    open.insert(key(importer, &waits_for));
                }
            }
        }
    }
    order
}

/// A comment of one line in the language of the extension.
fn comment(path: &str) -> String {
    match extension(path).as_str() {
        "html" | "htm" | "xml" | "md" | "vue" | "svg" => format!("<!-- {path} -->"),
        "css" => format!("/* {path} */"),
        "lua" | "sql" | "hs" | "ada" | "adb" | "ads" => format!("--{path}"),
        "tex" | "erl" | "m" => format!("%{path}"),
        "lisp" | "el" | "clj" | "scm" | "rkt" | "asm" => format!(";{path}"),
        "py" | "rb" | "sh" | "bash" | "pl" | "r" | "yml" | "yaml" | "toml" | "jl" | "cmake"
        | "mk" | "ex" | "exs" | "" => {
            format!("#{path}")
        }
        _ => format!("//{path}"),
    }
}

impl Repository {
    /// Writes files to `out`, with the repository's name.
    pub fn join(&self, files: &[(&str, &str)], name: &str, out: &mut String) {
        let mut files: Vec<(&str, &str)> = files.to_vec();
        files.sort_unstable();
        let depth = |path: &str| path.matches('/').count();
        let order: Vec<usize> = match self.order {
            FileOrder::Dependencies => {
                let paths = Paths::of(&files);
                let each = files.iter().enumerate();
                let imports: Vec<Vec<usize>> =
                    each.map(|(i, (_, text))| paths.imports(i, text)).collect();
                by_dependencies(&imports)
            }
            FileOrder::Path => (0..files.len()).collect(),
            FileOrder::Depth => {
                let mut order: Vec<usize> = (0..files.len()).collect();
                order.sort_by_key(|&i| depth(files[i].0));
                order
            }
            FileOrder::TopLevel => {
                let mut order: Vec<usize> = (0..files.len()).collect();
                order.sort_by_key(|&i| depth(files[i].0) > 0);
                order
            }
        };
        out.clear();
        if self.layout == FileLayout::Starcoder2 {
            out.push_str("<repo_name>");
            out.push_str(name);
        }
        for i in order {
            let (path, text) = files[i];
            match self.layout {
                FileLayout::Starcoder2 => {
                    out.push_str("<file_sep>");
                    out.push_str(path);
                    out.push('\n');
                }
                FileLayout::Anonymous => out.push_str("<file_sep>"),
                FileLayout::Comments => {
                    if !out.is_empty() && !out.ends_with('\n') {
                        out.push('\n');
                    }
                    out.push_str(&comment(path));
                    out.push('\n');
                }
            }
            out.push_str(text);
        }
    }
}

/// Path and text of a file of the list.
fn file_of(value: &Value) -> Option<(&str, &str)> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    Some((text("path")?, text("content").or_else(|| text("text"))?))
}

impl StepConfig for Repository {
    fn name(&self) -> &'static str {
        "repository"
    }

    fn check(&self, problem: Problem<'_>) {
        if !self.name_key.is_empty() && self.layout != FileLayout::Starcoder2 {
            let wanted = "none, or layout = \"starcoder2\"";
            problem("name_key", format!("{:?}", self.name_key), wanted);
        }
    }

    fn open(&self, _: &Opening<'_>) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.clone()))
    }
}

impl Filter for Repository {
    fn apply(&self, draft: &mut Draft, scratch: &mut StepScratch, _: &mut Judge) -> Verdict {
        let wanted = "a list of files with path and content";
        let list = match serde_json::from_str::<Vec<Value>>(&draft.text) {
            Ok(list) => list,
            Err(e) => {
                return Verdict::Break(broken("repository.broken", e.to_string(), wanted));
            }
        };
        let files: Option<Vec<(&str, &str)>> = list.iter().map(file_of).collect();
        let Some(files) = files else {
            return Verdict::Break(broken(
                "repository.broken",
                "a file without path or content",
                wanted,
            ));
        };
        if files.is_empty() {
            return Verdict::Break(broken("repository.empty", 0.0, 1.0));
        }
        let keys = match self.name_key.is_empty() {
            true => vec!["repo_name", "repo"],
            false => vec![self.name_key.as_str()],
        };
        let name = keys.iter().find_map(|key| field(draft, key)?.as_str());
        self.join(&files, name.unwrap_or_default(), &mut scratch.rewritten);
        let count = json!(files.len());
        draft.text.clone_from(&scratch.rewritten);
        draft.note("files", count);
        KEEP
    }

    fn metrics(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imported_files_come_first_and_circles_are_broken_by_path() {
        // 0 imports 1, 1 imports 2, 2 imports 1; 3 stands alone; 4 imports 3
        let imports = [vec![1], vec![2], vec![1], vec![], vec![3]];
        assert_eq!(by_dependencies(&imports), [1, 2, 0, 3, 4]);
        let chain = [vec![1], vec![2], vec![]];
        assert_eq!(by_dependencies(&chain), [2, 1, 0]);
        assert_eq!(by_dependencies(&[]), Vec::<usize>::new());
    }

    #[test]
    fn order_does_not_depend_on_the_list() {
        let files = [("b.py", "import a\n"), ("c/x.py", "y"), ("a.py", "1")];
        let written = |config: &str, files: &[(&str, &str)]| {
            let config: Repository = serde_json::from_str(config).unwrap();
            let mut out = String::new();
            config.join(files, "o/r", &mut out);
            out
        };
        let want = "<repo_name>o/r<file_sep>a.py\n1<file_sep>b.py\nimport a\n<file_sep>c/x.py\ny";
        assert_eq!(written("{}", &files), want);
        let mut reversed = files;
        reversed.reverse();
        assert_eq!(written("{}", &reversed), want);
        let comments = r#"{"layout": "comments", "order": "depth"}"#;
        assert_eq!(
            written(comments, &files),
            "#a.py\n1\n#b.py\nimport a\n#c/x.py\ny"
        );
        let anonymous = r#"{"layout": "anonymous", "order": "top_level"}"#;
        assert_eq!(
            written(anonymous, &files),
            "<file_sep>1<file_sep>import a\n<file_sep>y"
        );
    }
}
