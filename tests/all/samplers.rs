//! Tests that each rank's samples equal Megatron's samplers and torch's permutations
//! (`data/megatron_samplers.json`).

use crate::megatron::{Hash, number};
use index::sampler::{Cyclic, Sampler, randperm, share};
use serde_json::Value;

fn cases(key: &str) -> Vec<Value> {
    let golden: Value =
        serde_json::from_str(include_str!("../data/megatron_samplers.json")).unwrap();
    golden[key].as_array().unwrap().clone()
}

fn hash(samples: impl IntoIterator<Item = u64>) -> String {
    let signed = samples.into_iter().map(|s| i64::try_from(s).unwrap());
    Hash::new().numbers(signed).hex()
}

#[test]
fn permutations_are_torchs() {
    for case in cases("randperm") {
        let n = u32::try_from(number(&case["n"])).unwrap();
        let got = randperm(n, number(&case["seed"]));
        assert_eq!(hash(got.into_iter().map(u64::from)), case["hash"], "{case}");
    }
}

#[test]
fn sequential_shares_of_every_rank_are_megatrons() {
    for case in cases("single") {
        let of = |key: &str| number(&case[key]);
        let (micro, ranks) = (of("micro_batch"), of("ranks"));
        let batches = Sampler::new(of("total"), micro * ranks, of("consumed"));
        let samples = batches
            .flat_map(|b| share(b, micro, ranks, of("rank")))
            .flatten();
        assert_eq!(hash(samples), case["hash"], "{case}");
    }
}

#[test]
fn cyclic_shares_of_every_rank_are_megatrons_from_any_place_on() {
    for case in cases("cyclic") {
        let of = |key: &str| number(&case[key]);
        let (micro, ranks) = (of("micro_batch"), of("ranks"));
        let order = Cyclic::new(of("total"), micro, ranks, case["sharded"] == true).unwrap();
        let from = of("epoch") * order.epoch_samples() + of("chunk") * micro * ranks;
        let batch = from..from + of("batches") * micro * ranks;
        let places = share(batch, micro, ranks, of("rank")).flatten();
        assert_eq!(hash(places.map(|p| order.at(p))), case["hash"], "{case}");
    }
}
