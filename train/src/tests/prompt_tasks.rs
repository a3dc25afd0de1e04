//! Virtual tokens of several tasks, each with rows of its own in one table and one encoder for all: torch's steps, the same bits on every
//! layout, memory, resuming, answers by the task of a text, and refusals. The goldens are described in tests/oracles/template_goldens.py.

use std::error::Error as StdError;
use std::path::Path;

use crate::checkpoint::{check_init, export_peft};
use crate::config::{EncoderKind, LossMean, Plan, PromptConfig, PromptEncoder, PromptTask};
use crate::data::{Sample, Samples};
use crate::dist::devices::Devices;
use crate::eval::{LanguageModel, Query, Scorer, logits};
use crate::fixtures::{Chain, Log, tiny_gpt, tiny_llama};
use crate::infer::engine::{Engine, Limits, Request};
use crate::infer::{GenerateOptions, generate};
use crate::tests::layouts::{assert_same, train_in, with};
use crate::tests::parity::Formula;
use crate::tests::prompt::{encoded, packed, prompted, same_in_every_layout};
use crate::tests::prompt_parity::follows_torch;
use crate::tests::prompt_places::{PLACES, Place, best, placed_from};
use crate::tests::share::Share;
use crate::trainer::{memory, run};

/// Those of the goldens' second task.
const OTHER_PLACES: [Place; 2] = [
    Place {
        text: 2,
        virtual_tokens: 4,
    },
    Place {
        text: 6,
        virtual_tokens: 0,
    },
];

/// A task of the tests.
#[derive(Clone)]
struct Task {
    places: Vec<Place>,
    /// Number of its first virtual token.
    first: usize,
}

impl Task {
    fn placed(&self, text: &[u32]) -> Vec<u32> {
        placed_from(self.first, text, &self.places)
    }

    fn virtual_tokens(&self) -> usize {
        self.places.iter().map(|place| place.virtual_tokens).sum()
    }

    /// Tokens in front of the answer.
    fn before(&self) -> usize {
        let text: usize = self.places.iter().map(|place| place.text).sum();
        text + self.virtual_tokens()
    }
}

/// Samples of texts of two tasks, of which those behind the places are predicted.
struct OfTasks<S> {
    of: S,
    texts: usize,
    tasks: [Task; 2],
    /// Task of a text by its number, again and again.
    order: Vec<usize>,
}

impl<S: Samples> Samples for OfTasks<S> {
    fn len(&self) -> u64 {
        self.of.len()
    }

    fn read(&self, index: u64, sample: &mut Sample) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.of.read(index, sample)?;
        let to = sample.text()?;
        let (inputs, tokens) = (to.counts.len(), to.tokens.clone());
        to.counts.fill(false);
        let (mut from, mut at) = (0, 0);
        for number in 0..self.texts {
            let task = (usize::try_from(index)? * self.texts + number) % self.order.len();
            let task = &self.tasks[self.order[task]];
            let end = match number + 1 == self.texts {
                true => inputs + 1,
                false => inputs * (number + 1) / self.texts - usize::try_from(index % 3)?,
            };
            let count = end - from - task.virtual_tokens();
            let text = task.placed(&tokens[at..at + count]);
            to.tokens[from..end].copy_from_slice(&text);
            to.counts[from + task.before() - 1..end - 1].fill(true);
            to.ends.push(end.min(inputs));
            (from, at) = (end, at + count);
        }
        Ok(())
    }
}

/// Two tasks with virtual tokens at these places, and their settings.
fn two(places: [&[Place]; 2]) -> ([Task; 2], PromptConfig) {
    let mut first = 0;
    let tasks = places.map(|places| {
        let task = Task {
            places: places.to_vec(),
            first,
        };
        first += task.virtual_tokens();
        task
    });
    let entry = |(name, task): (&str, &Task)| PromptTask {
        name: name.into(),
        template: format!("<|VIRTUAL_PROMPT_0|>{{{name}}}"),
        splits: (task.places.iter())
            .map(|place| place.virtual_tokens)
            .filter(|count| *count > 0)
            .collect(),
    };
    let prompt = PromptConfig {
        virtual_tokens: first,
        tasks: ["red", "old"].into_iter().zip(&tasks).map(entry).collect(),
        ..PromptConfig::default()
    };
    (tasks, prompt)
}

/// The plan with two tasks, and samples for it. Every third text is of the second one, so that micro-batches have one of them or both.
fn of_two(mut plan: Plan) -> (Plan, OfTasks<Chain>) {
    let is_packed = plan.train.reset_attention_mask;
    let place = |text, virtual_tokens| Place {
        text,
        virtual_tokens,
    };
    let (tasks, mut prompt) = match is_packed {
        true => two([&[place(1, 2), place(1, 1)], &[place(2, 1)]]),
        false => two([&[place(2, 3), place(3, 2)], &[place(4, 4)]]),
    };
    prompt.encoder = plan.model.prompt.as_ref().and_then(|own| own.encoder);
    plan.model.prompt = Some(prompt);
    let samples = OfTasks {
        of: Chain::of(&plan),
        texts: if is_packed { 2 } else { 1 },
        tasks,
        order: vec![0, 0, 1],
    };
    (plan, samples)
}

#[test]
fn two_tasks_follow_torch_through_ten_steps() {
    let (tasks, mut prompt) = two([&PLACES, &OTHER_PLACES]);
    assert_eq!(prompt.tasks[1].splits, [4]);
    let samples = OfTasks {
        of: Formula,
        texts: 1,
        tasks,
        order: vec![0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0, 0],
    };
    follows_torch("template_tasks", prompt.clone(), &samples);
    prompt.encoder = Some(PromptEncoder {
        kind: EncoderKind::Lstm,
        hidden: 6,
        layers: 2,
    });
    follows_torch("template_tasks_lstm", prompt, &samples);
}

#[test]
fn every_layout_gives_the_same_bits_with_two_tasks_and_the_memory_that_is_predicted() {
    let mut share = Share::one_in(3);
    for (plan, mean) in [
        (prompted(tiny_gpt(), 5), LossMean::Token),
        (packed(tiny_llama()), LossMean::Text),
        (
            encoded(tiny_llama(), EncoderKind::Lstm, 12),
            LossMean::Token,
        ),
    ] {
        let (mut plan, samples) = of_two(plan);
        plan.model.layers = 4;
        plan.train.loss_mean = mean;
        same_in_every_layout(&plan, &samples, &mut share);
        (plan.train.global_batch, plan.train.micro_batch) = (12, 1);
        for layout in ["mb=1", "dp=3 zero=3 mb=2", "tp=2 sp pp=2 mb=1"] {
            let plan = with(plan.clone(), layout);
            let predicted = memory::predict(&plan).unwrap();
            let measured = memory::measure(&plan, &samples).unwrap();
            assert_eq!(measured, predicted, "{layout}");
        }
    }
}

#[test]
fn two_tasks_resume_and_answer_by_the_virtual_tokens_of_a_text() {
    for plan in [
        prompted(tiny_llama(), 5),
        encoded(tiny_llama(), EncoderKind::Lstm, 12),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (mut plan, samples) = of_two(plan);
        plan.train.steps = 6;
        let whole = dir.path().join("whole");
        let want = train_in(&plan, &whole, &samples);
        let killed = dir.path().join("killed");
        let fails = OfTasks {
            of: Chain {
                fails_at: Some(5 * 8),
                ..Chain::of(&plan)
            },
            texts: 1,
            tasks: samples.tasks.clone(),
            order: samples.order.clone(),
        };
        run(&plan, &fails, Some(&samples), &killed, &Log::default()).unwrap_err();
        assert_same(&train_in(&plan, &killed, &samples), &want, "resumed");
        let last = whole.join("checkpoints/step-00000006");
        check_init(&last, &plan, true).unwrap();
        // the names of the tasks are those of the rows
        let mut other = plan.clone();
        other.model.prompt.as_mut().unwrap().tasks[1].name = "new".into();
        let error = check_init(&last, &other, true).unwrap_err().with_causes();
        assert!(error.contains("model.prompt.tasks"), "{error}");
        answers_by_task(&last, &samples.tasks);
        refuses_other_texts(&last, &samples.tasks);
    }
}

/// Every way to ask gives the numbers of the logits of the whole text.
fn answers_by_task(checkpoint: &Path, tasks: &[Task; 2]) {
    let words = [3, 24, 171, 9, 40, 7];
    let scorer = Scorer::open(checkpoint, Devices::Cpu.whole()).unwrap();
    let names: Vec<String> = (scorer.markers().into_iter()).map(|own| own.task).collect();
    assert_eq!(names, ["red", "old"]);
    for task in tasks {
        let prompt = task.placed(&words);
        let mut text = prompt.clone();
        for _ in 0..3 {
            text.push(best(logits(checkpoint, &text).unwrap().last().unwrap()));
        }
        let options = GenerateOptions::greedy(3);
        let found = generate(checkpoint, &prompt, &options, &mut |_| {}).unwrap();
        assert_eq!(found, text[prompt.len()..]);
        let query = Query {
            context: prompt.clone(),
            continuation: text[prompt.len()..].to_vec(),
        };
        let scored = scorer.log_likelihoods(&[query], &mut |_| {}).unwrap();
        assert!(scored[0].is_greedy);
    }
    // rows of the other task at the same places are others
    let [one, other] = [0, tasks[1].first].map(|first| {
        let text = placed_from(first, &words, &tasks[1].places);
        let scored = logits(checkpoint, &text);
        scored.map(|rows| rows.last().cloned())
    });
    let error = one.unwrap_err().to_string();
    assert!(
        error.contains("found 4 of them, want all of one of the tasks red, old"),
        "{error}"
    );
    other.unwrap();
}

/// Texts that have the virtual tokens of no task, or of both, are refused with a reason.
fn refuses_other_texts(checkpoint: &Path, tasks: &[Task; 2]) {
    let mut engine = Engine::open(checkpoint, Devices::Cpu.whole(), Limits::default()).unwrap();
    assert_eq!(engine.max_length(), 11, "beside the most virtual tokens");
    let [one, other] = [0, 1].map(|task| tasks[task].placed(&[3, 24, 171, 9, 40]));
    let both = [&one[..], &other[2..]].concat();
    for (prompt, max_tokens, wanted) in [
        (
            vec![3, 24],
            1,
            "want the markers of the template of one of the tasks in it: red \"<|VIRTUAL_PROMPT_0|>{red}\", old",
        ),
        (both, 1, "found 9 of them, want all of one of the tasks"),
        (other[..7].to_vec(), 1, "found 3 of them"),
        (other.clone(), 8, "want at most 16 together"),
    ] {
        let request = Request {
            prompt,
            options: GenerateOptions::greedy(max_tokens),
            beginning: Vec::new(),
            slides: true,
            adapter: None,
        };
        let error = engine.submit(request).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error} wants {wanted}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = export_peft(checkpoint, &folder.path().join("peft")).unwrap_err();
    let wanted = "[3, 2, 4] of them at the markers of a task template (model.prompt.tasks)";
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn tasks_that_do_not_fit_are_refused_by_name() {
    let problems = |change: &dyn Fn(&mut PromptConfig)| {
        let (mut plan, _) = of_two(prompted(tiny_llama(), 5));
        change(plan.model.prompt.as_mut().unwrap());
        plan.problems().join("\n")
    };
    assert_eq!(problems(&|_| {}), "");
    type Change<'a> = &'a dyn Fn(&mut PromptConfig);
    let cases: [(Change<'_>, &str); 6] = [
        (
            &|prompt| prompt.tasks[1].name = "a b".into(),
            "model.prompt.tasks[1].name: found \"a b\", want letters",
        ),
        (
            &|prompt| prompt.tasks[1].name = "red".into(),
            "model.prompt.tasks[1].name: found \"red\" twice",
        ),
        (
            &|prompt| prompt.tasks[0].splits = vec![5, 0],
            "model.prompt.tasks[0].splits: found [5, 0]",
        ),
        (
            &|prompt| prompt.tasks[0].splits = vec![usize::MAX, 2],
            "model.prompt.virtual_tokens: found 9 with splits of other sums",
        ),
        (
            &|prompt| prompt.splits = vec![9],
            "model.prompt.tasks: found splits or a template beside tasks",
        ),
        (
            &|prompt| {
                prompt.tasks[0].splits = vec![16];
                prompt.virtual_tokens = 20;
            },
            "model.prompt.virtual_tokens: found 16, want fewer than seq_length = 16",
        ),
    ];
    for (change, wanted) in cases {
        let found = problems(change);
        assert!(found.contains(wanted), "{found} wants {wanted}");
    }
}
