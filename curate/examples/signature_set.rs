//! Benchmark for deduplication at any size: a set of signatures with planted duplicates: `signature_set write OUT
//! DOCUMENTS SHARDS`, then `signature_set dedup OUT SHARDS MEMORY_MB` (the timed part), then `signature_set check
//! OUT DOCUMENTS SHARDS`.
//!
//! The files are made from the format's table in this crate's README, without the crate's own writer. Of 100
//! documents 2 are exact copies of an earlier one, 20 share one of their 14 bands (the number of the document
//! modulo 14) with an earlier one, and 1 has no signature; everything else is different. So a document's duplicate
//! set is its tree of earlier ones, which `check` climbs again and compares with the keep lists.
#![expect(clippy::print_stdout, reason = "the figures are the result")]

use std::fs::File;
use std::io::{BufWriter, Error, Result, Write};
use std::path::Path;

use curate::Silent;
use curate::corpus::{KeepList, KeepStatus};
use curate::dedup::{DedupConfig, ExactConfig, MinhashConfig, MinhashPreset};
use xxhash_rust::xxh3::{Xxh3, xxh3_64, xxh3_128};

const BANDS: u64 = 14;
const GROUP: u64 = 65_536;

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// The first copy of a document's text.
fn origin(mut i: u64) -> u64 {
    while i % 50 == 3 && i > 100 {
        i = mix(i) % i;
    }
    i
}

fn is_signed(i: u64) -> bool {
    origin(i) % 100 != 7
}

/// The earlier document that shares a band with this one.
fn parent(i: u64) -> Option<u64> {
    if i % 5 != 4 || i < 100 {
        return None;
    }
    let mut p = mix(i ^ 0x5555) % i;
    while !is_signed(p) {
        p = mix(p) % i;
    }
    Some(p)
}

fn key(i: u64, band: u64) -> u64 {
    let mut i = origin(i);
    if !is_signed(i) {
        return u64::MAX;
    }
    while i % BANDS == band
        && let Some(p) = parent(i)
    {
        i = origin(p);
    }
    mix(i * BANDS + band + 1)
}

fn root(i: u64) -> u64 {
    let mut i = origin(i);
    while let Some(p) = parent(i) {
        i = origin(p);
    }
    i
}

fn shard_range(documents: u64, shards: u64, shard: u64) -> std::ops::Range<u64> {
    documents * shard / shards..documents * (shard + 1) / shards
}

/// One file as the README's table has it.
fn write(path: &Path, shard: u32, documents: std::ops::Range<u64>) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut whole = Xxh3::new();
    let mut put = |bytes: &[u8]| {
        whole.update(bytes);
        out.write_all(bytes)
    };
    let mut frame = b"MLRSIGN2".to_vec();
    for number in [2u32, 0, 5, 14, 8, 1, 1, 0, shard] {
        frame.extend_from_slice(&number.to_le_bytes());
    }
    frame.extend_from_slice(&7u128.to_le_bytes());
    frame.extend_from_slice(&GROUP.to_le_bytes());
    put(&frame)?;
    let header = frame.len();
    let mut first = documents.start;
    while first < documents.end {
        let group = first..documents.end.min(first + GROUP);
        let mut column = |bytes: Vec<u8>| {
            frame.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
            put(&bytes)
        };
        let exact = |i| u128::from(mix(origin(i) + 1)) << 64 | u128::from(origin(i));
        column(group.clone().flat_map(|i| exact(i).to_le_bytes()).collect())?;
        column(group.clone().flat_map(|_| 1000u64.to_le_bytes()).collect())?;
        column(group.clone().flat_map(|_| 5u64.to_le_bytes()).collect())?;
        column(group.clone().flat_map(|_| f32::NAN.to_le_bytes()).collect())?;
        for band in 0..BANDS {
            let keys = group.clone().flat_map(|i| key(i, band).to_le_bytes());
            column(keys.collect())?;
        }
        first = group.end;
    }
    frame.extend_from_slice(&(documents.end - documents.start).to_le_bytes());
    put(&frame[header..])?;
    put(&xxh3_128(&frame).to_le_bytes())?;
    let digest = whole.digest128().to_le_bytes();
    out.write_all(&digest)?;
    out.flush()
}

/// Every document's fate against the tree it was planted in.
fn check(out: &Path, documents: u64, shards: u64) -> Result<()> {
    let mut duplicates = 0u64;
    for shard in 0..shards {
        let range = shard_range(documents, shards, shard);
        let list = KeepList::read(&out.join(format!("keep/{shard:05}.keep")));
        let list = list.map_err(Error::other)?;
        for (at, i) in range.enumerate() {
            let found = match list.status(at) {
                KeepStatus::Kept
                | KeepStatus::Hollow
                | KeepStatus::Contaminated
                | KeepStatus::Earlier(_) => None,
                KeepStatus::Exact(s, d) => Some((true, s, d)),
                KeepStatus::Fuzzy(s, d) | KeepStatus::Url(s, d) | KeepStatus::Semantic(s, d) => {
                    Some((false, s, d))
                }
            };
            let root = root(i);
            let place = (0..shards).find(|s| shard_range(documents, shards, *s).contains(&root));
            let of = place.unwrap_or_default();
            let first = shard_range(documents, shards, of).start;
            let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
            let is_copy = origin(i) != i;
            let planted = (root != i).then(|| (is_copy, number(of), number(root - first)));
            if found != planted {
                let what = format!("document {i}: planted {planted:?}, found {found:?}");
                return Err(Error::other(what));
            }
            duplicates += u64::from(root != i);
        }
    }
    println!("{documents} documents, {duplicates} duplicates, all as planted");
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<u64>().ok());
    let out = Path::new(args.get(1).map_or("", String::as_str));
    match (args.first().map(String::as_str), number(2), number(3)) {
        (Some("write"), Some(documents), Some(shards)) => {
            std::fs::create_dir_all(out.join("clean"))?;
            let empty = zstd::encode_all(&b""[..], 3)?;
            for shard in 0..shards {
                let range = shard_range(documents, shards, shard);
                let n = u32::try_from(shard).map_err(Error::other)?;
                write(&out.join(format!("clean/{shard:05}.sig")), n, range)?;
                // no texts: the report's excerpts stay empty
                std::fs::write(out.join(format!("clean/{shard:05}.jsonl.zst")), &empty)?;
            }
            Ok(())
        }
        (Some("dedup"), Some(shards), Some(memory_mb)) => {
            let config = DedupConfig {
                exact: Some(ExactConfig::default()),
                minhash: Some(MinhashConfig::of(MinhashPreset::Native)),
                memory_mb,
                ..DedupConfig::default()
            };
            let shards = usize::try_from(shards).map_err(Error::other)?;
            let report =
                curate::dedup::dedup(&config, out, shards, &Silent).map_err(Error::other)?;
            println!(
                "{} documents: {} kept, {} exact, {} near, {} sets, largest {}, {} without signature",
                report.documents,
                report.kept,
                report.exact,
                report.fuzzy,
                report.clusters,
                report.largest_cluster,
                report.without_signature
            );
            Ok(())
        }
        (Some("check"), Some(documents), Some(shards)) => check(out, documents, shards),
        _ => Err(Error::other(
            "write OUT DOCUMENTS SHARDS | dedup OUT SHARDS MEMORY_MB | check OUT DOCUMENTS SHARDS",
        )),
    }
}
