//! The arena of a rank: its size by purpose, and the error for a device that has too little memory for it.

use kernels::Device;

use crate::config::Recompute;
use crate::config::plan::Plan;
use crate::error::{Error, Result};
use crate::trainer::memory::rank_memory::RankMemory;

/// Bytes of a rank's arena by purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arena {
    /// Tensors that live between passes, by formula.
    pub memory: RankMemory,
    /// Room for rows of other ranks that all choose this rank's experts.
    pub uneven: usize,
    /// Bound for the tensors of a running layer.
    pub scratch: usize,
}

impl Arena {
    /// All of it.
    pub(crate) fn bytes(&self) -> usize {
        let both = self.uneven.saturating_add(self.scratch);
        self.memory.in_arena().saturating_add(both)
    }

    /// Takes the arena's memory from the system, before the first step.
    pub(crate) fn reserve(&self, rank: usize, plan: &Plan, device: &Device) -> Result<()> {
        let reserved = device.reserve(self.bytes());
        reserved.map_err(|source| match source {
            kernels::Error::Memory { .. } => self.lacking(rank, plan, device, source),
            source => Error::Kernel {
                rank,
                during: "reserve memory",
                source,
            },
        })
    }

    /// Explains an error by the plan if it is about memory.
    pub(crate) fn explain(&self, error: Error, plan: &Plan, device: &Device) -> Error {
        match error {
            Error::Kernel {
                rank,
                source: source @ kernels::Error::Memory { .. },
                ..
            } => self.lacking(rank, plan, device, source),
            error => error,
        }
    }

    fn lacking(&self, rank: usize, plan: &Plan, device: &Device, source: kernels::Error) -> Error {
        let free = match device.system_memory() {
            Ok(Some(memory)) => format!(
                ", of which {} of {} are free",
                megabytes(memory.free),
                megabytes(memory.total)
            ),
            _ => String::new(),
        };
        Error::DeviceMemory {
            rank,
            needs: format!(
                "{}{free}; to need less: {}",
                self.parts(),
                self.advice(plan)
            )
            .into(),
            source,
        }
    }

    /// The arena's size and its parts, the largest first.
    fn parts(&self) -> String {
        let mut parts = [
            ("weights", self.memory.weights),
            ("gradients", self.memory.gradients),
            ("optimizer", self.memory.optimizer),
            ("activations", self.memory.activations),
            ("packed weights", self.memory.packs),
            ("rows of uneven experts", self.uneven),
            ("the running layer", self.scratch),
        ];
        parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
        let parts: Vec<String> = parts
            .map(|(name, bytes)| format!("{name} {}", megabytes(*bytes)))
            .collect();
        format!("{} ({})", megabytes(self.bytes()), parts.join(", "))
    }

    /// Keys of the job that make the larger half smaller, as far as they are not used already; then the others.
    fn advice(&self, plan: &Plan) -> String {
        let (train, parallel) = (&plan.train, &plan.parallel);
        let is_full = train.recompute == Recompute::Full && train.recompute_layers.is_empty();
        let for_rows = [
            (train.micro_batch > 1, "lower train.micro_batch"),
            (!is_full, "set train.recompute = \"full\""),
            (
                train.offload.layers < plan.model.blocks(),
                "raise train.offload.layers",
            ),
            (
                !train.chunked_cross_entropy,
                "set train.chunked_cross_entropy",
            ),
            (true, "raise parallel.cp or tp"),
        ];
        let for_state = [
            (
                parallel.zero < 3,
                "raise parallel.zero, with parallel.dp above 1",
            ),
            (true, "raise parallel.tp or pp"),
            (train.keep_packed, "unset train.keep_packed"),
        ];
        let RankMemory {
            weights,
            optimizer,
            gradients,
            ..
        } = self.memory;
        let state = weights + optimizer + gradients;
        let are_rows_first = self.bytes() - state > state;
        let [rows, state]: [Vec<&str>; 2] = [&for_rows[..], &for_state[..]].map(|all| {
            let open = all.iter().filter(|(is_open, _)| *is_open);
            open.map(|(_, text)| *text).collect()
        });
        match are_rows_first {
            true => [rows, state].concat().join(", "),
            false => [state, rows].concat().join(", "),
        }
    }
}

fn megabytes(bytes: usize) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::tiny_gpt;

    fn arena(activations: usize) -> Arena {
        Arena {
            memory: RankMemory {
                weights: 3_000_000,
                activations,
                ..RankMemory::default()
            },
            uneven: 0,
            scratch: 500_000,
        }
    }

    #[test]
    fn parts_are_listed_by_size_and_advice_starts_with_the_larger_half() {
        let mut plan = tiny_gpt();
        plan.train.micro_batch = 2;
        let rows = arena(9_000_000);
        assert_eq!(
            rows.parts(),
            "12.5 MB (activations 9.0 MB, weights 3.0 MB, the running layer 0.5 MB)"
        );
        assert!(rows.advice(&plan).starts_with("lower train.micro_batch"));
        assert!(arena(0).advice(&plan).starts_with("raise parallel.zero"));
    }

    #[test]
    fn lack_of_memory_in_a_step_is_explained_by_the_plan_and_other_errors_are_not() {
        let (plan, device) = (tiny_gpt(), Device::cpu());
        let failed = |source| Error::Kernel {
            rank: 3,
            during: "forward",
            source,
        };
        let lacks = kernels::Error::Memory {
            device: "cuda:1".to_owned(),
            bytes: 77,
        };
        let text = arena(0).explain(failed(lacks), &plan, &device);
        let text = text.with_causes();
        for part in ["rank 3", "weights 3.0 MB", "parallel.zero", "cuda:1", "77"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let lost = failed(kernels::Error::Driver {
            call: "cuMemAlloc".to_owned(),
            code: "CUDA_ERROR_LAUNCH_FAILED".to_owned(),
            meaning: "lost".to_owned(),
        });
        let kept = arena(0).explain(lost, &plan, &device);
        assert!(matches!(kept, Error::Kernel { .. }), "{kept:?}");
    }

    #[test]
    fn what_is_used_already_is_no_advice() {
        let mut plan = tiny_gpt();
        (plan.train.micro_batch, plan.parallel.zero) = (1, 3);
        plan.train.recompute = Recompute::Full;
        let advice = arena(9_000_000).advice(&plan);
        for key in ["micro_batch", "recompute", "parallel.zero"] {
            assert!(!advice.contains(key), "{key}: {advice}");
        }
    }
}
