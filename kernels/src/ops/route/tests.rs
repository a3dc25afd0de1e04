//! Router tests; the golden file is Megatron-Core's on the CPU.

use super::*;
use crate::permute::DROPPED;
use crate::testing::{
    all_devices, assert_same_bits, bits, differences, error, random, values, wide,
};
use crate::{Device, tolerance};

const GOLDEN: &str = include_str!("../../../tests/data/route.txt");
/// Roundings of Megatron's f32 computation: softmax, loss sums and their gradients.
const ROUNDINGS: usize = 24;

struct Case {
    router: Router,
    n: usize,
    experts: usize,
    /// logits, bias, outer, weights, losses, dlogits, kept.
    numbers: Vec<Vec<f64>>,
}

impl Case {
    #[expect(clippy::cast_possible_truncation, reason = "the numbers are f32")]
    fn tensor(&self, which: usize, dims: &[usize]) -> Tensor {
        let values: Vec<f32> = self.numbers[which].iter().map(|x| *x as f32).collect();
        Tensor::from_f32(dims, &values, &Device::cpu()).unwrap()
    }

    fn logits(&self) -> Tensor {
        self.tensor(0, &[self.n, self.experts])
    }

    fn routing(&self, logits: &Tensor) -> Routing {
        let bias = self.tensor(1, &[self.experts]);
        let bias = (self.router.score == Score::Sigmoid).then_some(&bias);
        forward(logits, bias, &self.router).unwrap()
    }
}

fn cases() -> Vec<Case> {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    let cases = lines.chunks(8).map(|lines| {
        let head: Vec<&str> = lines[0].split(' ').collect();
        let score = match head[0] {
            "SoftmaxTopK" => Score::SoftmaxTopK,
            "TopKSoftmax" => Score::TopKSoftmax,
            _ => Score::Sigmoid,
        };
        let numbers = |line: &&str| line.split(' ').map(|w| w.parse().unwrap()).collect();
        Case {
            router: Router {
                k: head[1].parse().unwrap(),
                groups: None,
                score,
                scale: head[2].parse().unwrap(),
            },
            n: head[3].parse().unwrap(),
            experts: head[4].parse().unwrap(),
            numbers: lines[1..].iter().map(numbers).collect(),
        }
    });
    cases.collect()
}

/// Weights of all experts, 0 for those not chosen.
fn dense(case: &Case, routing: &Routing) -> Vec<f32> {
    let k = case.router.k;
    let mut out = vec![0.0; case.n * case.experts];
    let choices = routing.experts.u32().iter().zip(routing.weights.f32());
    for (i, (expert, weight)) in choices.enumerate() {
        out[i / k * case.experts + *expert as usize] = *weight;
    }
    out
}

#[test]
fn routing_losses_and_gradients_are_those_of_megatron() {
    let bound = tolerance::elementwise(ROUNDINGS);
    for case in cases() {
        let name = format!("{:?}", case.router);
        let logits = case.logits();
        let routing = case.routing(&logits);
        assert!(
            error(&dense(&case, &routing), &case.numbers[3]) < bound,
            "{name}"
        );
        let statistics = &routing.statistics;
        let near = |found: f64, want: f64| (found / want - 1.0).abs() < bound;
        assert!(
            near(statistics.balance_loss(), case.numbers[4][0]),
            "{name}"
        );
        assert!(near(statistics.z_loss(), case.numbers[4][1]), "{name}");
        let k = case.router.k;
        let outer = &case.numbers[2];
        #[expect(clippy::cast_possible_truncation, reason = "the numbers are f32")]
        let dweights: Vec<f32> = routing
            .experts
            .u32()
            .iter()
            .enumerate()
            .map(|(i, e)| outer[i / k * case.experts + *e as usize] as f32)
            .collect();
        let dweights = Tensor::from_f32(&[case.n, k], &dweights, &Device::cpu()).unwrap();
        let gradient = |balance, z| {
            let losses = Losses {
                statistics: &statistics.clone().into(),
                coefficients: &Coefficients { balance, z },
            };
            backward(&dweights, &logits, &routing.experts, &case.router, losses).unwrap()
        };
        let found = gradient(0.5, 0.25);
        assert!(error(found.f32(), &case.numbers[5]) < bound, "{name}");
        // Must fail: without one of the losses.
        assert!(error(gradient(0.0, 0.25).f32(), &case.numbers[5]) > bound);
        assert!(error(gradient(0.5, 0.0).f32(), &case.numbers[5]) > bound);
    }
    assert_eq!(cases().len(), 9);
}

#[test]
fn capacity_by_weight_keeps_what_megatron_keeps() {
    // With k = 1 and softmax over the chosen all weights are 1, and torch's choice among equals is
    // not defined.
    let clear = |case: &Case| case.router.k > 1 || case.router.score != Score::TopKSoftmax;
    for case in cases().into_iter().filter(clear) {
        let mut routing = case.routing(&case.logits());
        let (ids, weights) = (&mut routing.experts, &routing.weights);
        let dropped = drop_over(ids, weights, case.experts, 3, Drop::ByWeight).unwrap();
        let dropped = dropped.u32().iter().sum::<u32>() as usize;
        let k = case.router.k;
        let mut kept = vec![0.0; case.n * case.experts];
        let ids = routing.experts.u32().iter().enumerate();
        for (i, expert) in ids.filter(|(_, e)| **e != DROPPED) {
            kept[i / k * case.experts + *expert as usize] = 1.0;
        }
        assert_eq!(kept, case.numbers[6], "{:?}", case.router);
        let left = kept.iter().filter(|x| **x == 1.0).count();
        assert_eq!(left + dropped, case.n * k);
    }
}

#[test]
fn capacity_by_position_keeps_the_first_tokens() {
    let device = Device::cpu();
    let mut experts = Tensor::from_u32(&[4, 2], &[0, 1, 0, 2, 1, 0, 0, 1], &device).unwrap();
    let weights = random(&[4, 2], 1, &device).unwrap();
    assert_eq!(capacity(4, 2, 3, 0.75), 2);
    let dropped = drop_over(&mut experts, &weights, 3, 2, Drop::ByPosition).unwrap();
    assert_eq!(dropped.u32(), [2, 1, 0]);
    let x = DROPPED;
    assert_eq!(experts.u32(), [0, 1, 0, 2, 1, x, x, x]);
}

#[test]
fn gradients_match_finite_differences_of_f64() {
    let device = Device::cpu();
    let logits = random(&[5, 4], 3, &device).unwrap();
    let router = Router {
        k: 2,
        groups: None,
        score: Score::TopKSoftmax,
        scale: 1.5,
    };
    let routing = forward(&logits, None, &router).unwrap();
    let dweights = random(&[5, 2], 4, &device).unwrap();
    let coefficients = Coefficients {
        balance: 0.3,
        z: 0.1,
    };
    let losses = Losses {
        statistics: &routing.statistics.clone().into(),
        coefficients: &coefficients,
    };
    let found = backward(&dweights, &logits, &routing.experts, &router, losses).unwrap();
    let want = differences(&wide(logits.f32()), 1e-5, |x| {
        let mut loss = 0.0;
        for (i, row) in x.chunks(4).enumerate() {
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            let chosen = &routing.experts.u32()[2 * i..][..2];
            let part: f64 = chosen.iter().map(|e| row[*e as usize].exp()).sum();
            for (e, d) in chosen.iter().zip(&dweights.f32()[2 * i..]) {
                loss += 1.5 * f64::from(*d) * row[*e as usize].exp() / part;
            }
            for (x, count) in row.iter().zip(&routing.statistics.counts) {
                loss += 0.3 * 4.0 * *count as f64 / 10.0 * (x.exp() / sum) / 5.0;
            }
            loss += 0.1 * sum.ln().powi(2) / 5.0;
        }
        loss
    });
    let bound = tolerance::elementwise(4) + tolerance::central_difference(1e-5);
    assert!(error(found.f32(), &want) < bound);
}

#[test]
fn any_split_of_the_tokens_has_the_statistics_and_rows_of_the_whole() {
    let device = Device::cpu();
    let logits = random(&[90, 8], 1, &device).unwrap();
    let router = Router {
        k: 3,
        groups: None,
        score: Score::SoftmaxTopK,
        scale: 1.0,
    };
    let whole = forward(&logits, None, &router).unwrap();
    for cut in [1, 16, 37, 89] {
        let part = |first: usize, end: usize| {
            let rows = &logits.f32()[first * 8..end * 8];
            let rows = Tensor::from_f32(&[end - first, 8], rows, &device).unwrap();
            forward(&rows, None, &router).unwrap()
        };
        let (left, right) = (part(0, cut), part(cut, 90));
        // Added the other way round: the order does not matter.
        let mut sum = right.statistics.clone();
        sum.add(&left.statistics);
        assert_eq!(sum, whole.statistics);
        let told = Statistics::from_words(&sum.words(), 3).unwrap();
        assert_eq!(told, sum);
        let joined = [left.experts.u32(), right.experts.u32()].concat();
        assert_eq!(joined, whole.experts.u32());
        let joined = [left.weights.f32(), right.weights.f32()].concat();
        assert_eq!(bits(&joined), bits(whole.weights.f32()));
    }
}

#[test]
fn bits_are_the_same_on_every_instruction_set() {
    let scores = [Score::SoftmaxTopK, Score::TopKSoftmax, Score::Sigmoid];
    for (score, k) in scores
        .into_iter()
        .flat_map(|score| [(score, 1), (score, 3)])
    {
        let groups = Groups { count: 3, kept: 2 };
        for (has_bias, groups) in [
            (false, None),
            (false, Some(groups)),
            (score == Score::Sigmoid, None),
            (score == Score::Sigmoid, Some(groups)),
        ] {
            same_bits(
                &Router {
                    k,
                    groups,
                    score,
                    scale: 1.5,
                },
                has_bias,
            );
        }
    }
}

/// Of logits among which are equal, very large and broken ones.
#[expect(clippy::cast_possible_truncation, reason = "halves of words")]
fn same_bits(router: &Router, has_bias: bool) {
    assert_same_bits(|device| {
        let mut x = values(&random(&[40, 9], 1, device).unwrap());
        x[9..18].fill(0.5);
        x[20] = 1e30;
        x[30] = f32::NEG_INFINITY;
        let logits = Tensor::from_f32(&[40, 9], &x, device).unwrap();
        let bias = has_bias.then(|| random(&[9], 2, device).unwrap());
        let routing = forward(&logits, bias.as_ref(), router).unwrap();
        x[3] = f32::NAN;
        x[13] = f32::INFINITY;
        let broken = Tensor::from_f32(&[40, 9], &x, device).unwrap();
        let broken = forward(&broken, bias.as_ref(), router).unwrap();
        let coefficients = Coefficients {
            balance: 0.1,
            z: 0.1,
        };
        let (weights, experts) = (&routing.weights, &routing.experts);
        let of = |statistics: &Unread| {
            let losses = Losses {
                statistics,
                coefficients: &coefficients,
            };
            backward(weights, &logits, experts, router, losses).unwrap()
        };
        let dlogits = of(&start(&logits, bias.as_ref(), router).unwrap().unread);
        // statistics that the host knows have the same slopes
        let known = of(&routing.statistics.clone().into());
        assert_eq!(bits(&values(&known)), bits(&values(&dlogits)));
        let exact = |x: &[f64]| -> Vec<f32> {
            let halves = |x: &f64| [(x / 65536.0).floor() as f32, (x % 65536.0) as f32];
            x.iter().flat_map(halves).collect()
        };
        let ids = |x: &Tensor| -> Vec<f64> {
            let ids: Vec<u32> = x.download().unwrap();
            ids.into_iter().map(f64::from).collect()
        };
        let whole = [
            routing.statistics.words(),
            broken.statistics.words(),
            ids(&routing.experts),
            ids(&broken.experts),
        ];
        let whole = exact(&whole.concat());
        vec![
            Tensor::from_f32(&[whole.len()], &whole, device).unwrap(),
            dlogits,
            routing.weights,
            broken.weights,
        ]
    });
}

#[test]
fn experts_drop_the_same_choices_on_every_device() {
    let (n, k, total) = (700, 3, 5);
    let id = |i: u32| match i * i / 7 % 11 {
        // expert 3 has none, and some are dropped before
        3 | 9 => DROPPED,
        x => [0, 1, 1, 0, 2, 1, 4, 1, 0, 0, 1][x as usize],
    };
    let ids: Vec<u32> = (0..2100).map(id).collect();
    assert_same_bits(|device| {
        let experts = Tensor::from_u32(&[n, k], &ids, device).unwrap();
        let mut weights = values(&random(&[n, k], 1, device).unwrap());
        // equal ones, signed zeros, and numbers that differ in one byte alone
        for (i, weight) in weights.iter_mut().enumerate() {
            match i % 5 {
                0 => *weight = 0.25,
                1 => *weight = f32::from_bits(0x3e80_0000 + [0, 0x100, 0x200][i % 3]),
                2 => *weight = -0.0,
                _ => {}
            }
        }
        let weights = Tensor::from_f32(&[n, k], &weights, device).unwrap();
        let mut out = Vec::new();
        for (capacity, policy) in [
            (1, Drop::ByWeight),
            (200, Drop::ByWeight),
            (333, Drop::ByWeight),
            (333, Drop::ByPosition),
            (5000, Drop::ByPosition),
        ] {
            let mut kept = experts.try_clone().unwrap();
            let dropped = drop_over(&mut kept, &weights, total, capacity, policy).unwrap();
            for ids in [kept, dropped] {
                let ids: Vec<u32> = ids.download().unwrap();
                let ids: Vec<f32> = ids.into_iter().map(|id| id as f32).collect();
                out.push(Tensor::from_f32(&[ids.len()], &ids, device).unwrap());
            }
        }
        out
    });
}

#[test]
fn squares_beyond_every_word_are_the_hosts() {
    let router = Router {
        k: 1,
        groups: None,
        score: Score::SoftmaxTopK,
        scale: 1.0,
    };
    for large in [3.0, 1e6, 1e12, 3e15, 2e17, 1e30] {
        let mut all = Vec::new();
        for device in all_devices() {
            let logits = [large, 1.0, 2.0, large * 0.9, 0.0, 0.1];
            let logits = Tensor::from_f32(&[3, 2], &logits, &device).unwrap();
            all.push(forward(&logits, None, &router).unwrap().statistics);
        }
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{large}");
    }
}

#[test]
fn ties_go_to_the_lower_expert_and_nan_is_not_hidden() {
    let device = Device::cpu();
    let router = Router {
        k: 2,
        groups: None,
        score: Score::TopKSoftmax,
        scale: 1.0,
    };
    let logits = [0.0, 1.0, 1.0, -0.0, 0.5, -f32::NAN, 0.1, 0.2];
    let logits = Tensor::from_f32(&[2, 4], &logits, &device).unwrap();
    let routing = forward(&logits, None, &router).unwrap();
    assert_eq!(&routing.experts.u32()[..2], &[1, 2]);
    assert_eq!(&routing.weights.f32()[..2], &[0.5, 0.5]);
    assert!(routing.weights.f32()[2].is_nan());
    let told = Statistics::from_words(&routing.statistics.words(), 2).unwrap();
    assert!(told.balance_loss().is_nan());
    assert!(routing.statistics.balance_loss().is_nan());
    assert!(routing.statistics.z_loss().is_nan());
}

/// DeepSeek's rule by hand: groups of two experts.
#[test]
fn experts_of_the_best_groups_alone_are_chosen() {
    let device = Device::cpu();
    let router = |score| Router {
        k: 3,
        groups: Some(Groups { count: 3, kept: 2 }),
        score,
        scale: 1.0,
    };
    // the largest of the groups are 1, 2 and 0.5; the third group has the third largest logit of all
    let logits = Tensor::from_f32(&[1, 6], &[1.0, -3.0, 2.0, -4.0, 0.5, 0.4], &device).unwrap();
    let chosen = |score, bias: Option<&Tensor>| {
        let routing = forward(&logits, bias, &router(score)).unwrap();
        routing.experts.u32().to_vec()
    };
    for score in [Score::SoftmaxTopK, Score::TopKSoftmax] {
        assert_eq!(chosen(score, None), [2, 0, 1]);
    }
    // sums of logistic functions: 0.73 + 0.05, 0.88 + 0.02, 0.62 + 0.60
    assert_eq!(chosen(Score::Sigmoid, None), [2, 4, 5]);
    // a bias counts for its group, even where all of it is below 0
    let bias = Tensor::from_f32(&[6], &[0.0, 2.0, 0.0, 0.0, -9.0, -9.0], &device).unwrap();
    assert_eq!(chosen(Score::Sigmoid, Some(&bias)), [1, 2, 0]);
    let bias = Tensor::from_f32(&[6], &[-9.0, -9.0, -5.0, -5.0, -1.0, -9.0], &device).unwrap();
    assert_eq!(chosen(Score::Sigmoid, Some(&bias)), [4, 2, 3]);
}

#[test]
fn routers_that_do_not_fit_are_refused_by_name() {
    let device = Device::cpu();
    let logits = random(&[2, 4], 1, &device).unwrap();
    let router = |k, scale| Router {
        k,
        groups: None,
        score: Score::SoftmaxTopK,
        scale,
    };
    let name = |found: Result<Routing>| match found {
        Err(Error::Argument { name, .. } | Error::Shape { name, .. }) => name,
        _ => panic!("refused"),
    };
    assert_eq!(name(forward(&logits, None, &router(0, 1.0))), "k");
    assert_eq!(name(forward(&logits, None, &router(5, 1.0))), "k");
    assert_eq!(name(forward(&logits, None, &router(1, f32::NAN))), "scale");
    for (count, kept) in [(0, 0), (3, 1), (2, 0), (2, 3), (4, 2), (65, 1)] {
        let groups = Some(Groups { count, kept });
        let router = Router {
            groups,
            ..router(3, 1.0)
        };
        assert_eq!(name(forward(&logits, None, &router)), "groups", "{count}");
    }
    let bias = random(&[4], 1, &device).unwrap();
    assert_eq!(name(forward(&logits, Some(&bias), &router(1, 1.0))), "bias");
    let short = random(&[3], 1, &device).unwrap();
    assert_eq!(
        name(forward(&logits, Some(&short), &router(1, 1.0))),
        "bias"
    );
    let routing = forward(&logits, None, &router(1, 1.0)).unwrap();
    for words in [
        &routing.statistics.words()[1..],
        &[0.5; 12],
        &[f64::NAN; 12],
    ] {
        assert!(Statistics::from_words(words, 1).is_err());
    }
    let losses = Losses {
        statistics: &Statistics::new(4, 1).into(),
        coefficients: &Coefficients::default(),
    };
    let found = backward(
        &routing.weights,
        &logits,
        &routing.experts,
        &router(1, 1.0),
        losses,
    );
    assert!(matches!(
        found,
        Err(Error::Argument {
            name: "statistics",
            ..
        })
    ));
}
