//! Steps for source code: language and licence of a file, filters, and notebooks, issues and repositories to text.

mod comments;
mod encoded;
mod file;
mod generated;
mod imports;
mod issue;
mod languages;
mod license;
mod licenses;
mod notebook;
mod repository;
mod rules;

pub use issue::Issue;
pub use languages::{FileLanguage, LanguageKind};
pub use license::License;
pub use licenses::LicenseClass;
pub use notebook::{Notebook, NotebookForm};
pub use repository::{FileLayout, FileOrder, Repository};
pub use rules::{SourceCode, SourceFile, SourceProfile};
