//! The cluster file of a machine that was measured: `millrace doctor --measure`.

use std::fmt::Write as _;
use train::dist::MachineRates;

/// A machine and its measured rates.
pub(crate) struct Machine<'a> {
    /// Name of the processor.
    pub processor: &'a str,
    /// Bytes of memory.
    pub memory: u64,
    /// Day of the measurement, `2026-01-31`.
    pub date: &'a str,
    /// Seconds that it took.
    pub seconds: f64,
    pub rates: &'a MachineRates,
}

impl Machine<'_> {
    /// A cluster file of one node whose cores are shared by as many ranks at most, with the origin of each figure beside it.
    ///
    /// # Errors
    /// The name of a figure that is no number above 0.
    pub(crate) fn to_toml(&self) -> Result<String, String> {
        let rates = self.rates;
        let figures = [
            ("memory_gb", self.memory as f64),
            ("matrix_tflops", rates.bf16.one_rank),
            ("matrix_f32_tflops", rates.f32.one_rank),
            ("memory_gb_s", rates.copy),
            ("link_gb_s", rates.reduce),
            ("link_latency_us", rates.collective_seconds),
            ("op_latency_us", rates.op_seconds),
            ("shared_op_latency_us", rates.shared_op_seconds),
        ];
        for (name, figure) in figures {
            if !(figure.is_finite() && figure > 0.0) {
                return Err(format!("{name}: found {figure}, want a number above 0"));
            }
        }
        let mut text = String::new();
        self.write(&mut text)
            .unwrap_or_else(|_| unreachable!("a string takes all text"));
        Ok(text)
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let rates = self.rates;
        let tera = |flops: f64| significant(flops / 1e12);
        let giga = |bytes: f64| significant(bytes / 1e9);
        let micro = |seconds: f64| significant(seconds * 1e6);
        let processor = self.processor;
        writeln!(
            text,
            "# {processor}, {} threads: measured on {} in {:.0} s by `millrace doctor --measure` (version {}, kernels {}).",
            rates.threads,
            self.date,
            self.seconds,
            env!("CARGO_PKG_VERSION"),
            rates.isa,
        )?;
        writeln!(
            text,
            "# Each figure is the median of its timings; programs that ran at the same time have slowed it down."
        )?;
        writeln!(text, "name = \"{}\"", self.name())?;
        writeln!(text, "nodes = 1")?;
        writeln!(
            text,
            "# Ranks are threads that share the cores; matrix, memory and its bandwidth are those of the machine."
        )?;
        writeln!(text, "devices_per_node = {}", rates.threads)?;
        writeln!(text, "cores = {}", rates.threads)?;
        for (key, numbers, of) in [
            (
                "matrix_tflops",
                format!("bf16 (sums in {})", rates.bf16_sums),
                rates.bf16,
            ),
            ("matrix_f32_tflops", "f32".into(), rates.f32),
        ] {
            let (side, threads) = (of.side, rates.threads);
            writeln!(
                text,
                "# Products of {side} x {side} x {side} in {numbers} by one rank with all threads; by {threads} ranks of one thread together: {}.",
                tera(of.all_ranks),
            )?;
            writeln!(text, "{key} = {}", tera(of.one_rank))?;
        }
        writeln!(text, "# As the system reports it.")?;
        writeln!(text, "memory_gb = {}", giga(self.memory as f64))?;
        writeln!(
            text,
            "# A copy of 256 MiB by all threads, read and written bytes together; a sum of squares reads {}.",
            giga(rates.read),
        )?;
        writeln!(text, "memory_gb_s = {}", giga(rates.copy))?;
        writeln!(
            text,
            "# All-reduce between {} threads of one process: of 4 MiB, as if in a ring, and of one number.",
            rates.ranks
        )?;
        writeln!(text, "link_gb_s = {}", giga(rates.reduce))?;
        writeln!(
            text,
            "link_latency_us = {}",
            micro(rates.collective_seconds)
        )?;
        writeln!(text, "# A product of 16 x 16 x 16 by one thread.")?;
        writeln!(text, "op_latency_us = {}", micro(rates.op_seconds))?;
        writeln!(
            text,
            "# A product of 128 x 128 x 128 by one rank with all threads, above the time of its operations at the rate of f32."
        )?;
        writeln!(
            text,
            "shared_op_latency_us = {}",
            micro(rates.shared_op_seconds)
        )
    }

    /// The processor's name in lower case with hyphens.
    fn name(&self) -> String {
        let words = self.processor.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<String> = words
            .filter(|word| !word.is_empty())
            .map(str::to_ascii_lowercase)
            .collect();
        match words.is_empty() {
            true => "cpu".into(),
            false => words.join("-"),
        }
    }
}

/// A number above 0 with four digits that count, without an exponent.
fn significant(number: f64) -> String {
    let mut decimals = 0_usize;
    let mut scaled = number;
    while scaled < 1000.0 && decimals < 15 {
        scaled *= 10.0;
        decimals += 1;
    }
    let text = format!("{number:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cluster::Cluster;
    use std::path::Path;
    use train::dist::ProductRates;

    fn rates() -> MachineRates {
        MachineRates {
            threads: 6,
            isa: "avx2",
            bf16_sums: "pairs",
            f32: ProductRates {
                side: 1024,
                one_rank: 123.456e9,
                all_ranks: 120e9,
            },
            bf16: ProductRates {
                side: 512,
                one_rank: 56.7e9,
                all_ranks: 50e9,
            },
            read: 30e9,
            copy: 20e9,
            op_seconds: 1.25e-6,
            shared_op_seconds: 20e-6,
            ranks: 6,
            collective_seconds: 4e-6,
            reduce: 2.5e9,
        }
    }

    fn machine(rates: &MachineRates) -> Machine<'_> {
        Machine {
            processor: "Some(R) CPU \"X\" @ 2.0GHz",
            memory: 16_000_000_000,
            date: "2026-01-31",
            seconds: 9.7,
            rates,
        }
    }

    #[test]
    fn the_file_of_a_machine_is_a_cluster_with_its_rates() {
        let text = machine(&rates()).to_toml().unwrap();
        let found = Cluster::parse(&text, Path::new("x.toml")).unwrap();
        assert_eq!(found.name, "some-r-cpu-x-2-0ghz");
        assert_eq!((found.devices(), found.cores), (6, Some(6)));
        let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 1e-12;
        assert!(near(found.matrix, 56.7e9) && near(found.memory_rate, 20e9));
        // four digits
        assert!(near(found.matrix_f32.unwrap(), 123.5e9), "{text}");
        assert!(near(found.memory, 16e9) && near(found.link, 2.5e9));
        assert!(near(found.link_latency, 4e-6) && near(found.op_latency, 1.25e-6));
        assert!(near(found.shared_op_latency, 20e-6));
        for part in [
            "2026-01-31",
            "Some(R) CPU \"X\" @ 2.0GHz, 6 threads",
            "avx2",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn figures_that_are_no_rates_are_refused_by_name() {
        let wrong = MachineRates {
            reduce: f64::NAN,
            ..rates()
        };
        let reason = machine(&wrong).to_toml().unwrap_err();
        assert!(reason.starts_with("link_gb_s: found NaN"), "{reason}");
        let rates = rates();
        let none = Machine {
            memory: 0,
            ..machine(&rates)
        };
        assert!(
            none.to_toml()
                .unwrap_err()
                .starts_with("memory_gb: found 0")
        );
    }

    #[test]
    fn numbers_keep_four_digits() {
        for (number, text) in [
            (0.123_456, "0.1235"),
            (12_345.6, "12346"),
            (9.8, "9.8"),
            (2000.0, "2000"),
            (0.000_045_678, "0.00004568"),
        ] {
            assert_eq!(significant(number), text);
        }
    }
}
