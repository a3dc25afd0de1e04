//! Divisibility of a model and a batch by a layout: reports every violation at once, with the numbers and the
//! nearest choices that would work.

use crate::config::moe::RouterScope;
use crate::config::plan::{FEATURE_CHUNKS, Plan, TOKEN_CHUNKS};
use crate::config::precision::Bf16Sums;
use crate::config::precision::Precision;
use crate::config::{ParallelConfig, Problem};

/// Largest distance from the given value at which a working one is looked for.
const FAR: usize = 10_000;

/// The nearest valid numbers around `found`, as words.
fn nearest(found: usize, most: usize, is_valid: impl Fn(usize) -> bool) -> String {
    let top = found.min(most.saturating_add(1));
    let below = (top.saturating_sub(FAR).max(1)..top).rev();
    let below = below.into_iter().find(|&n| is_valid(n));
    let above = found.saturating_add(1)..=most.min(found.saturating_add(FAR));
    let above = above.into_iter().find(|&n| is_valid(n));
    either(below, above)
}

fn either(below: Option<usize>, above: Option<usize>) -> String {
    match (below, above) {
        (Some(below), Some(above)) => format!("; nearest {below} or {above}"),
        (Some(one), None) | (None, Some(one)) => format!("; nearest {one}"),
        (None, None) => String::new(),
    }
}

fn divides(part: usize, whole: usize) -> bool {
    part > 0 && whole.is_multiple_of(part)
}

/// Multiples of `of` nearest to `found`, as words.
fn nearest_multiple(found: usize, of: usize) -> String {
    let below = found - found % of.max(1);
    either(Some(below).filter(|&n| n > 0), below.checked_add(of))
}

/// Calls `problem` for each number that the layout does not divide.
pub(crate) fn check(plan: &Plan, problem: Problem<'_>) {
    check_tensor(plan, problem);
    check_sequence(plan, problem);
    check_pipeline(plan, problem);
    check_batch(plan, problem);
    check_experts(plan, problem);
    check_precision(plan, problem);
    if plan.sum_order().is_tree() {
        check_leaves(plan, problem);
    }
}

fn check_tensor(plan: &Plan, problem: Problem<'_>) {
    let (tp, model) = (plan.parallel.tp, &plan.model);
    let wholes = [
        ("kv_heads", model.kv_heads()),
        ("heads", model.heads),
        ("d_ffn", model.d_ffn()),
        ("the padded vocabulary", plan.padded_vocab()),
    ];
    let divides_all =
        |n: usize| wholes.iter().all(|&(_, whole)| divides(n, whole)) && divides(n, FEATURE_CHUNKS);
    let near = nearest(tp, FEATURE_CHUNKS, divides_all);
    for (what, whole) in wholes {
        if tp > 0 && !divides(tp, whole) {
            let found = format!("{tp} with {what} = {whole}");
            problem("parallel.tp", found, &format!("a divisor of it{near}"));
        }
    }
    if tp > 0 && !divides(tp, FEATURE_CHUNKS) {
        problem(
            "parallel.tp",
            tp.to_string(),
            &format!("1, 2, 4 or 8{near}"),
        );
    }
    if !model.d_ffn().is_multiple_of(FEATURE_CHUNKS) {
        let near = nearest_multiple(model.d_ffn(), FEATURE_CHUNKS);
        let wanted = format!("a multiple of 8{near}");
        problem("model.d_ffn", model.d_ffn().to_string(), &wanted);
    }
}

/// Experts over ranks, and the widths that tensor parallelism splits.
fn check_experts(plan: &Plan, problem: Problem<'_>) {
    let (ep, dp) = (plan.parallel.ep, plan.parallel.dp);
    let Some(moe) = &plan.model.moe else {
        if ep > 1 {
            let wanted = "1: only a model with model.moe has experts";
            problem("parallel.ep", ep.to_string(), wanted);
        }
        return;
    };
    let divides_all = |n: usize| divides(n, moe.experts) && divides(n, dp);
    let near = nearest(ep, moe.experts, divides_all);
    for (what, whole) in [("model.moe.experts", moe.experts), ("dp", dp)] {
        if ep > 0 && !divides(ep, whole) {
            let found = format!("{ep} with {what} = {whole}");
            problem("parallel.ep", found, &format!("a divisor of it{near}"));
        }
    }
    for (key, width) in [
        ("model.moe.d_ffn", plan.model.d_expert()),
        ("model.moe.shared_d_ffn", moe.shared_d_ffn),
    ] {
        if !width.is_multiple_of(FEATURE_CHUNKS) {
            let near = nearest_multiple(width, FEATURE_CHUNKS);
            problem(key, width.to_string(), &format!("a multiple of 8{near}"));
        }
    }
    if !plan.sum_order().is_tree() {
        return;
    }
    if moe.scope == RouterScope::MicroBatch {
        let wanted = "\"sequence\" with determinism = \"layout\": micro-batches are the layout's";
        problem("model.moe.scope", "\"micro_batch\"".into(), wanted);
    }
    if ep > 1 && !ep.is_power_of_two() {
        let near = nearest(ep, moe.experts, |n| n.is_power_of_two() && divides_all(n));
        let wanted = format!("a power of two with determinism = \"layout\"{near}");
        problem("parallel.ep", ep.to_string(), &wanted);
    }
}

fn check_precision(plan: &Plan, problem: Problem<'_>) {
    let sums = plan.train.bf16_sums;
    let halves = plan.train.precision == Precision::Fp16 && sums == Bf16Sums::Mma;
    if sums != Bf16Sums::Auto && !plan.train.precision.has_bf16() && !halves {
        let found = format!("{:?}, with no product of bf16", sums.name());
        let wanted = "\"auto\", or train.precision = \"bf16\" or \"fp8\"";
        problem("train.bf16_sums", found, wanted);
    }
    if sums == Bf16Sums::Mma && plan.sum_order().is_tree() {
        let found = "\"mma\" with determinism = \"layout\"".to_owned();
        let wanted = "\"auto\" or \"pairs\", or determinism = \"run\": tensor cores add in an order of their own";
        problem("train.bf16_sums", found, wanted);
    }
    let (fp8, blocks) = (&plan.train.fp8, plan.model.blocks());
    let (start, end) = (
        fp8.num_layers_at_start_in_bf16,
        fp8.num_layers_at_end_in_bf16,
    );
    if plan.train.precision == Precision::Fp8 && start.saturating_add(end) >= blocks {
        let found = format!("{start} with num_layers_at_end_in_bf16 = {end}, layers = {blocks}");
        let wanted = format!("at most {} of both together", blocks.saturating_sub(1));
        problem("train.fp8.num_layers_at_start_in_bf16", found, &wanted);
    }
}

fn check_sequence(plan: &Plan, problem: Problem<'_>) {
    let ParallelConfig {
        tp, cp, sequence, ..
    } = plan.parallel;
    let is_cut = plan.sum_order().is_tree() || plan.model.architecture().is_encoder_decoder;
    let (whole, what) = if is_cut {
        (TOKEN_CHUNKS, "8 chunks of a sequence")
    } else {
        (plan.seq_length, "the tokens of a sequence")
    };
    if cp > 0 && !divides(cp, whole) {
        let found = format!("{cp} with {whole} = {what}");
        let near = nearest(cp, whole, |n| divides(n, whole));
        problem("parallel.cp", found, &format!("a divisor of it{near}"));
    }
    let both = cp.saturating_mul(tp);
    if sequence && both > 0 && !divides(both, whole) {
        let found = format!("true with cp * tp = {both}, {whole} = {what}");
        let near = nearest(tp, FEATURE_CHUNKS, |n| divides(n.saturating_mul(cp), whole));
        let near = near.replacen("nearest", "nearest tp", 1);
        let wanted = format!("cp * tp a divisor of it, or false{near}");
        problem("parallel.sequence", found, &wanted);
    }
}

fn check_pipeline(plan: &Plan, problem: Problem<'_>) {
    let parallel = &plan.parallel;
    let (layers, model_chunks) = (plan.model.blocks(), parallel.model_chunks());
    if !parallel.stage_layers.is_empty() {
        let given = parallel.stage_layers.len();
        let sum = parallel
            .stage_layers
            .iter()
            .fold(0, |a: usize, b| a.saturating_add(*b));
        if given != model_chunks {
            let wanted = format!("{model_chunks}: pp * virtual_stages");
            problem("parallel.stage_layers", format!("{given} numbers"), &wanted);
        }
        if sum != layers {
            let wanted = format!("layers = {layers}");
            problem("parallel.stage_layers", format!("{sum} layers"), &wanted);
        }
        if parallel.count_embedding || parallel.count_head {
            let wanted = "no count_embedding, no count_head: the list says it all";
            problem("parallel.stage_layers", "both".into(), wanted);
        }
    } else if model_chunks > 0 {
        let counted = usize::from(parallel.count_embedding) + usize::from(parallel.count_head);
        let whole = layers.saturating_add(counted);
        if !divides(model_chunks, whole) || whole / model_chunks < counted.min(1) {
            let (pp, v) = (parallel.pp, parallel.virtual_stages);
            let found = if v > 1 || counted > 0 {
                format!("{pp} with virtual_stages = {v}, layers = {layers} (+ {counted} counted)")
            } else {
                format!("{pp} with layers = {layers}")
            };
            let near = nearest(pp, whole, |n| divides(n.saturating_mul(v), whole));
            let wanted = format!("a divisor of layers{near}, or stage_layers");
            problem("parallel.pp", found, &wanted);
        }
    }
    let given = plan.train.recompute_layers.len();
    if given > 1 && given != parallel.pp {
        let found = format!("{given} numbers with pp = {}", parallel.pp);
        problem(
            "train.recompute_layers",
            found,
            "none, one, or one per rank",
        );
    }
}

fn check_batch(plan: &Plan, problem: Problem<'_>) {
    let (dp, micro) = (plan.parallel.dp, plan.train.micro_batch);
    let (batch, step) = (plan.train.global_batch, dp.saturating_mul(micro));
    if step > 0 && !divides(step, batch) {
        let found = format!("{batch} with dp = {dp}, micro_batch = {micro}");
        let near = nearest_multiple(batch, step);
        let wanted = format!("a multiple of dp * micro_batch{near}");
        problem("train.global_batch", found, &wanted);
    }
    let Some(ramp) = &plan.train.batch_rampup else {
        return;
    };
    for (key, value) in [("start", ramp.start), ("increment", ramp.increment)] {
        if step > 0 && value > 0 && !divides(step, value) {
            let found = format!("{value} with dp = {dp}, micro_batch = {micro}");
            let near = nearest_multiple(value, step);
            let wanted = format!("a multiple of dp * micro_batch{near}");
            problem(&format!("train.batch_rampup.{key}"), found, &wanted);
        }
    }
}

/// Layout mode fixes its reduction leaves from the model alone, so they must divide evenly.
fn check_leaves(plan: &Plan, problem: Problem<'_>) {
    for (key, value) in [
        ("seq_length", plan.seq_length),
        ("model.d_model", plan.model.d_model),
    ] {
        if !value.is_multiple_of(TOKEN_CHUNKS) {
            let near = nearest_multiple(value, TOKEN_CHUNKS);
            let wanted = format!("a multiple of 8 with determinism = \"layout\"{near}");
            problem(key, value.to_string(), &wanted);
        }
    }
    if let Some(latents) = plan.model.latents() {
        let heads = plan.model.heads;
        for (key, width, what) in [
            ("model.qk_head_dim", latents.key(), "queries"),
            ("model.v_head_dim", latents.expanded(), "keys and values"),
            ("model.v_head_dim", latents.values, "values"),
        ] {
            let rows = heads.saturating_mul(width);
            if !rows.is_multiple_of(FEATURE_CHUNKS) {
                let found = format!("{rows} features of {what} of all heads");
                let wanted = "a multiple of 8 with determinism = \"layout\"";
                problem(key, found, wanted);
            }
        }
        return;
    }
    let packed = plan.shape().packed;
    if !packed.is_multiple_of(FEATURE_CHUNKS) {
        let found = format!("{packed} rows of queries, keys and values");
        let wanted = "a multiple of 8 with determinism = \"layout\"";
        problem("model.kv_heads", found, wanted);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Bf16Sums, Determinism, Plan, Precision};
    use crate::fixtures::{tiny_gpt, tiny_llama};

    fn problems(plan: &Plan) -> String {
        plan.problems().join("\n")
    }

    #[test]
    fn nearest_choices_are_told_with_the_numbers() {
        let mut plan = tiny_gpt();
        (plan.model.layers, plan.model.heads, plan.model.d_model) = (6, 6, 48);
        (plan.parallel.tp, plan.parallel.pp) = (4, 4);
        (plan.parallel.cp, plan.parallel.dp) = (3, 3);
        let found = problems(&plan);
        for wanted in [
            "parallel.tp: found 4 with heads = 6, want a divisor of it; nearest 2",
            "parallel.pp: found 4 with layers = 6, want a divisor of layers; nearest 3 or 6",
            "parallel.cp: found 3 with 8 = 8 chunks of a sequence, want a divisor of it; nearest 2 or 4",
            "train.global_batch: found 8 with dp = 3, micro_batch = 2, want a multiple of dp * micro_batch; nearest 6 or 12",
        ] {
            assert!(found.contains(wanted), "{wanted}\nin\n{found}");
        }
    }

    #[test]
    fn absurd_numbers_are_told_and_not_counted_to() {
        let far = usize::MAX - 1;
        for set in [
            |plan: &mut Plan, n| plan.parallel.tp = n,
            |plan: &mut Plan, n| plan.parallel.pp = n,
            |plan: &mut Plan, n| plan.parallel.dp = n,
            |plan: &mut Plan, n| plan.parallel.cp = n,
            |plan: &mut Plan, n| (plan.parallel.virtual_stages, plan.parallel.pp) = (n, 2),
            |plan: &mut Plan, n| plan.train.micro_batch = n,
            |plan: &mut Plan, n| (plan.parallel.dp, plan.parallel.ranks_per_node) = (n, 8),
            |plan: &mut Plan, n| plan.parallel.stage_layers = vec![n, n],
        ] {
            let mut plan = tiny_gpt();
            set(&mut plan, far);
            plan.parallel.sequence = true;
            assert!(!problems(&plan).is_empty());
            let _ = plan.parallel.placement();
        }
    }

    #[test]
    fn uneven_stages_must_add_up() {
        let mut plan = tiny_gpt();
        (plan.model.layers, plan.parallel.pp) = (6, 2);
        plan.parallel.stage_layers = vec![4, 2];
        assert_eq!(problems(&plan), "");
        plan.parallel.stage_layers = vec![4, 1];
        assert!(problems(&plan).contains("found 5 layers, want layers = 6"));
        plan.parallel.stage_layers = vec![2, 2, 2];
        assert!(problems(&plan).contains("found 3 numbers, want 2: pp * virtual_stages"));
        plan.parallel.stage_layers = Vec::new();
        (plan.parallel.count_embedding, plan.parallel.count_head) = (true, true);
        assert_eq!(problems(&plan), "");
        plan.parallel.count_head = false;
        assert!(problems(&plan).contains("(+ 1 counted)"));
    }

    #[test]
    fn sequences_are_cut_at_leaves_in_layout_mode_only() {
        let mut plan = tiny_llama();
        (plan.model.heads, plan.model.kv_heads, plan.model.d_model) = (8, 8, 64);
        plan.seq_length = 48;
        (plan.parallel.tp, plan.parallel.cp) = (4, 4);
        plan.parallel.sequence = true;
        assert!(
            problems(&plan).contains("cp * tp = 16"),
            "{}",
            problems(&plan)
        );
        plan.determinism = Determinism::Run;
        assert_eq!(problems(&plan), "");
        plan.parallel.cp = 5;
        assert!(problems(&plan).contains("parallel.cp: found 5 with 48"));
    }

    #[test]
    fn sums_of_bf16_products_are_chosen_where_there_are_some() {
        let mut plan = tiny_llama();
        plan.train.bf16_sums = Bf16Sums::Mma;
        for (precision, determinism, is_right) in [
            (Precision::Bf16, Determinism::Run, true),
            (Precision::Fp16, Determinism::Run, true),
            (Precision::F32, Determinism::Run, false),
            (Precision::Bf16, Determinism::Layout, false),
        ] {
            (plan.train.precision, plan.determinism) = (precision, determinism);
            let is_wrong = problems(&plan).contains("train.bf16_sums: found \"mma\"");
            assert_eq!(is_wrong, !is_right, "{precision:?} {determinism:?}");
        }
        plan.determinism = Determinism::Layout;
        for sums in [Bf16Sums::Auto, Bf16Sums::Pairs, Bf16Sums::Tiles] {
            plan.train.bf16_sums = sums;
            for (precision, has_some) in [
                (Precision::F32, false),
                (Precision::Bf16, true),
                (Precision::Fp16, false),
                (Precision::Fp8, true),
            ] {
                plan.train.precision = precision;
                let is_wrong = problems(&plan).contains("train.bf16_sums: found ");
                assert_eq!(
                    is_wrong,
                    sums != Bf16Sums::Auto && !has_some,
                    "{precision:?} {sums:?}"
                );
            }
        }
    }

    #[test]
    fn some_block_is_left_for_fp8() {
        let mut plan = tiny_llama();
        let fp8 = &mut plan.train.fp8;
        (
            fp8.num_layers_at_start_in_bf16,
            fp8.num_layers_at_end_in_bf16,
        ) = (1, 1);
        assert_eq!(problems(&plan), "");
        plan.train.precision = Precision::Fp8;
        let want = "found 1 with num_layers_at_end_in_bf16 = 1, layers = 2, want at most 1 of both together";
        assert!(problems(&plan).contains(want), "{}", problems(&plan));
    }
}
