//! `doctor --measure`: measures this machine by the program's own kernels and writes a cluster file for `plan`.

use super::new_outputs::expect_new_file;
use crate::job::WrongUse;
use crate::log::print;
use crate::machine::{memory_bytes, processor, write_atomically};
use crate::plan::{Cluster, Machine};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::time::{Duration, Instant};

/// Times that a measurement may take, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.5..=3600.0;

/// The verb: measures for about `seconds` and writes `file`, or prints the cluster file if there is none.
///
/// # Errors
/// `WrongUse` for a file that exists or a time out of range; a figure that is no number above 0, by its name.
pub(crate) fn measure(file: Option<&Path>, seconds: f64) -> Result<()> {
    if !SECONDS.contains(&seconds) {
        let (least, most) = (SECONDS.start(), SECONDS.end());
        let message = format!("--seconds: found {seconds}, want {least} to {most}");
        return Err(WrongUse::new(message).into());
    }
    if let Some(file) = file {
        expect_new_file("--measure", file)?;
    }
    let started = Instant::now();
    let rates = train::dist::measure_rates(Duration::from_secs_f64(seconds))?;
    let (processor, memory) = (processor(), memory_bytes());
    let machine = Machine {
        processor: &processor,
        memory,
        date: &chrono::Utc::now().format("%Y-%m-%d").to_string(),
        seconds: started.elapsed().as_secs_f64(),
        rates: &rates,
    };
    let text = match machine.to_toml() {
        Ok(text) => text,
        Err(reason) => bail!("the measurement of this machine: {reason}"),
    };
    let shown = file.unwrap_or_else(|| Path::new("the measured cluster"));
    Cluster::parse(&text, shown).context("the cluster file that was measured")?;
    match file {
        None => print(&text),
        Some(file) => {
            write_atomically(file, text.as_bytes())?;
            let shown = file.display();
            print(&format!(
                "{text}\nwrote {shown}\nnext: millrace plan JOB --cluster {shown} --run 3\n"
            ))
        }
    }
}
