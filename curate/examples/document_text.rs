//! Prints the texts of files of any format, with their ids and metadata: `document_text FILE...`.
//!
//! Each line is a JSON object: a clean document with the path of its file, or the reason why a part cannot be read.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use curate::Silent;
use curate::corpus::documents;
use curate::pipeline::{CurateConfig, Curator, shards};
use curate::read::{Format, Input};

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for path in std::env::args().skip(1) {
        let config = CurateConfig {
            inputs: vec![Input {
                path: path.clone(),
                format: Format::Auto,
                ..Input::default()
            }],
            ..CurateConfig::default()
        };
        let folder = tempfile::tempdir()?;
        let curator = Curator::new(&config, None, None, 0)?;
        for shard in shards(&config)? {
            let report = curator.run_shard(&shard, folder.path(), &Silent)?;
            for document in documents(folder.path(), shard.number)? {
                let document = document?;
                let line =
                    serde_json::json!({"path": path, "text": document.text, "meta": document.meta});
                writeln!(out, "{line}")?;
            }
            for (rule, count) in &report.dropped {
                writeln!(
                    out,
                    "{}",
                    serde_json::json!({"path": path, "dropped": rule, "count": count})
                )?;
            }
            let errors = folder
                .path()
                .join(format!("errors/{:05}.jsonl", shard.number));
            print_errors(&errors, &mut out)?;
        }
    }
    Ok(())
}

fn print_errors(path: &Path, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    out.write_all(&std::fs::read(path)?)?;
    Ok(())
}
