//! Memory of pipeline stages and shares of checkpoints, which are computed without a look at each rank, against every rank.

use crate::checkpoint::snapshot::{files, owners, shares};
use crate::config::{Determinism, OptimizerKind, Plan};
use crate::dist::mesh::RankCoord;
use crate::fixtures::{tiny_bert, tiny_gpt, tiny_llama, tiny_moe, tiny_t5};
use crate::model::param::specs;
use crate::parallel::shards::Shards;
use crate::tests::layouts::{LAYOUTS, with};
use crate::tests::mixture::SHARED_OUT;
use crate::trainer::memory::{self, RankMemory};

/// Layouts whose data-parallel ranks hold shards of different lengths.
const UNEVEN: [&str; 10] = [
    "dp=4 zero=1 mb=1",
    "dp=4 zero=2 mb=1",
    "dp=4 zero=3 mb=1",
    "dp=3 zero=1 pp=2 tp=2 mb=1",
    "dp=6 cp=2 zero=1 mb=1",
    "dp=4 cp=4 zero=2 mb=1",
    "dp=2 cp=4 tp=2 pp=2 mb=1",
    "dp=3 zero=3 tp=4 sp mb=2",
    "dp=5 mb=1",
    "dp=12 zero=1 tp=2 mb=1",
];

/// Small models, mixtures last.
fn models() -> Vec<Plan> {
    let mut muon = tiny_llama();
    muon.train.optimizer = OptimizerKind::Muon;
    muon.train.ema_decay = 0.9;
    let mut all = vec![tiny_gpt(), muon, tiny_bert(), tiny_t5(), tiny_moe()];
    for plan in &mut all {
        plan.model.layers = 4;
        plan.train.global_batch = 12;
    }
    all
}

/// Every model with every layout that its rules allow.
fn plans() -> Vec<(String, Plan)> {
    let mut found = Vec::new();
    for base in models() {
        let layouts = LAYOUTS.iter().chain(&UNEVEN);
        let shared_out = SHARED_OUT.iter().filter(|_| base.model.moe.is_some());
        for layout in layouts.chain(shared_out) {
            for determinism in [Determinism::Layout, Determinism::Run] {
                let mut plan = with(base.clone(), layout);
                plan.determinism = determinism;
                // copies of all shares, and of the largest ones
                plan.train.checkpoint.every = u64::from(found.len() % 4 < 2);
                if plan.problems().is_empty() {
                    let name = format!("{:?}, {layout}, {determinism:?}", plan.model.family);
                    found.push((name, plan));
                }
            }
        }
    }
    found
}

#[test]
fn the_fullest_rank_of_a_stage_and_all_ranks_together_are_those_of_every_rank() {
    let (mut count, mut uneven) = (0, 0);
    for (name, plan) in plans() {
        let all = memory::predict(&plan).unwrap();
        let stages = memory::predict_stages(&plan).unwrap();
        assert_eq!(stages.len(), plan.parallel.pp, "{name}");
        // pipeline ranks are numbered last
        let by_stage = all.chunks(all.len() / plan.parallel.pp);
        for (stage, ranks) in stages.iter().zip(by_stage) {
            let total = RankMemory::total;
            let most = ranks.iter().map(total).max().unwrap();
            assert_eq!(stage.fullest.total(), most, "{name}");
            assert!(ranks.contains(&stage.fullest), "{name}");
            let together: usize = ranks.iter().map(total).sum();
            assert_eq!(stage.together, together, "{name}");
            uneven += usize::from(most > ranks[0].total());
        }
        count += 1;
    }
    assert!(count > 250, "{count} plans");
    assert!(
        uneven > 25,
        "in {uneven} stages another rank than the first is the fullest"
    );
}

/// A rank finds its shares by itself, `owners` by a walk over all ranks.
#[test]
fn shares_of_all_ranks_are_those_of_the_owners() {
    for (name, plan) in plans() {
        let specs = specs(&plan);
        let shards = Shards::of(&plan, &specs);
        let lists = files(&plan).iter().flat_map(|file| file.lists);
        let lists: Vec<_> = lists.map(|(_, kind)| *kind).collect();
        for rank in 0..plan.parallel.world() {
            let place = RankCoord::of(rank, &plan.parallel);
            let mut wanted = Vec::new();
            for &kind in &lists {
                for spec in 0..specs.len() {
                    let owners = owners((&specs, &shards), &place, kind, spec);
                    let mine = owners.into_iter().filter(|(owner, _)| *owner == rank);
                    wanted.extend(mine.map(|(_, local)| (kind, spec, local)));
                }
            }
            let found = shares(files(&plan), (&specs, &shards), &place).into_iter();
            let found: Vec<_> = found.map(|of| (of.kind, of.spec, of.local)).collect();
            assert_eq!(found, wanted, "{name}, rank {rank}");
        }
    }
}
