//! Runs files through the curation chain without a job file and prints the merged report.
//!
//! `cargo run --release -p millrace-curate --example curate -- OUT warc|wet|jsonl|text none|filters FILE...`

#![expect(clippy::print_stderr, reason = "a program for developers, run by hand")]

use std::path::Path;
use std::time::Instant;

use curate::Silent;
use curate::dedup::{DedupConfig, KeepPolicy, MinhashConfig, dedup};
use curate::extract::ExtractConfig;
use curate::filter::{C4Quality, FinewebQuality, GopherQuality, GopherRepetition};
use curate::language::LanguageConfig;
use curate::pipeline::Step;
use curate::pipeline::{CurateConfig, Curator, ShardReport, shards};
use curate::read::{Format, Input};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(out), Some(format), Some(steps)) = (args.first(), args.get(1), args.get(2)) else {
        return Err("wanted: OUT FORMAT none|filters FILE...".into());
    };
    let format: Format = serde_json::from_str(&format!("\"{format}\""))?;
    let input = |path: &String| Input {
        path: path.clone(),
        format,
        source: "input".into(),
        ..Input::default()
    };
    let filters = vec![
        Step::Extract(ExtractConfig::default()),
        Step::Language(LanguageConfig {
            keep: vec!["en".into()],
            ..LanguageConfig::default()
        }),
        Step::GopherRepetition(GopherRepetition::default()),
        Step::GopherQuality(GopherQuality::default()),
        Step::C4(C4Quality {
            filter_no_terminal_punct: false,
            ..C4Quality::default()
        }),
        Step::Fineweb(FinewebQuality::default()),
    ];
    let config = CurateConfig {
        inputs: args[3..].iter().map(input).collect(),
        step: if steps == "filters" {
            filters
        } else {
            Vec::new()
        },
        ..CurateConfig::default()
    };
    let settings = DedupConfig {
        minhash: Some(MinhashConfig::default()),
        keep: KeepPolicy::Datatrove,
        ..DedupConfig::default()
    };
    let curator = Curator::new(&config, None, Some(&settings), 1)?;
    let mut report = ShardReport::default();
    let start = Instant::now();
    let list = shards(&config)?;
    for shard in &list {
        report.merge(&curator.run_shard(shard, Path::new(out), &Silent)?);
    }
    let curated = start.elapsed();
    let deduped = dedup(&settings, Path::new(out), list.len(), &Silent)?;
    eprintln!(
        "curate {curated:?}, dedup {:?}, {} documents -> {}",
        start.elapsed() - curated,
        deduped.documents,
        deduped.kept
    );
    report.hosts.clear();
    report.outputs.clear();
    report.kept_samples.clear();
    report.dropped_samples.clear();
    serde_json::to_writer_pretty(std::io::stdout(), &report)?;
    Ok(())
}
