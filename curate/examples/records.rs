//! Lists the records of files, one per line: `offset kind bytes hash`, or `offset bad why`. `FORMAT time FILE...`
//! only counts bytes.
//!
//! The hash is XXH3-128 of the block. `tests/oracles/warc_records.py` compares the lines with FastWARC's.

use std::io::Write;
use std::path::Path;

use curate::read::{Format, Input, each_record};
use xxhash_rust::xxh3::xxh3_128;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(format), Some(_)) = (args.first(), args.get(1)) else {
        return Err("wanted: FORMAT [time] FILE...".into());
    };
    let input = Input {
        format: serde_json::from_str::<Format>(&format!("\"{format}\""))?,
        ..Input::default()
    };
    let only_time = args[1] == "time";
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut records, mut bytes) = (0u64, 0u64);
    for file in &args[if only_time { 2 } else { 1 }..] {
        let mut failed = None;
        each_record(Path::new(file), &input, None, 1 << 30, &mut |r| {
            records += 1;
            bytes += r.block.len() as u64;
            let written = match (only_time, r.bad) {
                (true, _) => Ok(()),
                (false, Some(why)) => writeln!(out, "{} bad {why}", r.offset),
                (false, None) => {
                    let hash = xxh3_128(r.block);
                    writeln!(out, "{} {} {} {hash:032x}", r.offset, r.kind, r.block.len())
                }
            };
            failed = failed.take().or(written.err());
        })?;
        if let Some(e) = failed {
            return Err(e.into());
        }
    }
    if only_time {
        writeln!(out, "{records} records, {bytes} bytes")?;
    }
    Ok(())
}
