//! Batches: samples in, token tensors out. Training never opens a data file; samples come through the `Samples`
//! trait, already in the order in which they are to be used.
//!
//! A step's loss is the mean over the tokens that count in its whole batch, not over those of a
//! micro-batch or a rank: no layout changes it (Megatron's `calculate_per_token_loss`).

mod ahead;
pub(crate) mod documents;
pub(crate) mod micro_batches;
pub(crate) mod pairs;
mod sample;
pub(crate) mod virtual_tokens;

use std::error::Error as StdError;
use std::ops::Range;

use kernels::{DType, Device, Isa, Tensor};

use crate::config::loss_mean::LossMean;
use crate::config::plan::Plan;
use crate::data::ahead::Shifted;
use crate::data::documents::Documents;
use crate::data::pairs::BatchPair;
pub use crate::data::pairs::Pair;
use crate::data::virtual_tokens::as_target;
use crate::dist::mesh::RankCoord;
use crate::error::{Error, OnRank, Result};

pub use sample::{LabelledSample, MaskedSample, Sample, SpanSample, TextSample};
pub use virtual_tokens::{is_virtual, virtual_tokens};

/// Samples by their index in the global order (0, 1, 2, ...: the order of Megatron's
/// `single` sampler). Called from several threads at once.
pub trait Samples: Sync {
    /// Number of samples.
    fn len(&self) -> u64;

    /// True if there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `sample`, which the trainer allocated for its model, with sample `index`. Its old content is that of
    /// some other sample.
    ///
    /// # Errors
    /// Any reason why the source cannot provide the sample; it ends the run.
    fn read(
        &self,
        index: u64,
        sample: &mut Sample,
    ) -> std::result::Result<(), Box<dyn StdError + Send + Sync>>;

    /// Of a source of preference pairs, the samples that hold each pair once, whose numbers count from 0 without gaps.
    fn pairs(&self) -> Option<&dyn Samples> {
        None
    }
}

/// One rank's part of a micro-batch: of each sequence the tokens of its context-parallel rank, `[n]` in all. A rank
/// has only the fields that its model chunks read.
pub(crate) struct Batch {
    /// Ids, for the first model chunk.
    pub inputs: Option<Tensor>,
    /// Their segments, for the first model chunk of a masked model.
    pub segments: Option<Tensor>,
    /// For the last model chunk.
    pub targets: Option<Targets>,
    /// For the last model chunk, one for each depth of multi-token prediction.
    pub ahead: Vec<Ahead>,
    /// For the last model chunk of a masked model, or one that classifies.
    pub picks: Option<Picks>,
    /// Label of each question, if the model classifies.
    pub labels: Vec<u32>,
    /// Preference pairs of the sequences, with `train.preference`.
    pub pairs: Vec<BatchPair>,
    /// Weights of all predictions of the whole sequences: the number of those that count in the loss, or of their texts or pairs.
    pub counted: usize,
    /// Predictions of the whole sequences that count, of each depth of multi-token prediction.
    pub counted_ahead: Vec<usize>,
    /// Document boundaries, if the model uses them; for a masked model or an encoder, the start of the padding.
    pub documents: Option<Documents>,
    /// Encoder-decoder only: for each decoder row, the range of encoder positions that it attends to.
    pub seen: Vec<[u32; 2]>,
}

impl Batch {
    /// The same on another device.
    fn to_device(&self, device: &Device) -> kernels::Result<Batch> {
        let copy = |tensor: &Option<Tensor>| {
            let copied = tensor.as_ref().map(|tensor| tensor.to_device(device));
            copied.transpose()
        };
        let ahead = self.ahead.iter().map(|ahead| ahead.to_device(device));
        Ok(Batch {
            inputs: copy(&self.inputs)?,
            segments: copy(&self.segments)?,
            targets: match &self.targets {
                Some(targets) => Some(targets.to_device(device)?),
                None => None,
            },
            ahead: ahead.collect::<kernels::Result<_>>()?,
            picks: match &self.picks {
                Some(Picks { rows, swapped }) => Some(Picks {
                    rows: rows.to_device(device)?,
                    swapped: copy(swapped)?,
                }),
                None => None,
            },
            labels: self.labels.clone(),
            pairs: self.pairs.clone(),
            counted: self.counted,
            counted_ahead: self.counted_ahead.clone(),
            documents: self.documents.clone(),
            seen: self.seen.clone(),
        })
    }
}

/// Prediction targets: `[n]` each (the decoder's rows, for an encoder-decoder), `[b * predictions]` for a masked
/// model, or `[questions]` for one that classifies.
pub(crate) struct Targets {
    pub ids: Tensor,
    /// Weight of the prediction among those that count: 1, or of a text's mean its share; 0 where it does not count.
    pub counts: Tensor,
    /// `[questions]`: right scores, of a regression alone.
    pub numbers: Option<Tensor>,
}

/// For a depth of multi-token prediction: the tokens that it reads beside those of the batch, and its targets.
pub(crate) struct Ahead {
    /// Ids: `[n]`.
    pub inputs: Tensor,
    pub targets: Targets,
}

impl Ahead {
    fn of(n: usize, device: &Device) -> kernels::Result<Ahead> {
        let list = |dtype| Tensor::empty(&[n], dtype, device);
        Ok(Ahead {
            inputs: list(DType::U32)?,
            targets: Targets {
                ids: list(DType::U32)?,
                counts: list(DType::F32)?,
                numbers: None,
            },
        })
    }

    fn to_device(&self, device: &Device) -> kernels::Result<Ahead> {
        Ok(Ahead {
            inputs: self.inputs.to_device(device)?,
            targets: self.targets.to_device(device)?,
        })
    }

    /// Rows `here` become the places of a sequence from `from` on.
    fn put(
        &mut self,
        here: Range<usize>,
        shifted: &Shifted<'_>,
        from: usize,
    ) -> kernels::Result<()> {
        let inputs = &mut self.inputs.host_mut::<u32>()?[here.clone()];
        let ids = &mut self.targets.ids.host_mut::<u32>()?[here.clone()];
        let counts = &mut self.targets.counts.host_mut::<f32>()?[here];
        let rows = inputs.iter_mut().zip(ids).zip(counts);
        for (((input, id), weight), place) in rows.zip(shifted.places().skip(from)) {
            (*input, *id) = (place.input, place.target);
            *weight = f32::from(u8::from(place.counts));
        }
        Ok(())
    }
}

impl Targets {
    fn to_device(&self, device: &Device) -> kernels::Result<Targets> {
        let numbers = self.numbers.as_ref();
        let numbers = numbers.map(|numbers| numbers.to_device(device));
        Ok(Targets {
            ids: self.ids.to_device(device)?,
            counts: self.counts.to_device(device)?,
            numbers: numbers.transpose()?,
        })
    }
}

/// Prediction slots of a masked model; of one that classifies, one for each sequence.
pub(crate) struct Picks {
    /// `[b * predictions]`: the row among those that the rank has between layers, `NOWHERE` if it is
    /// another rank's or the slot is not used. With `swapped` one more for each sequence: its first.
    pub rows: Tensor,
    /// `[b]`: 1 where segments are swapped; only if the model predicts it.
    pub swapped: Option<Tensor>,
}

/// No row of this rank.
const NOWHERE: u32 = u32::MAX;

/// Reads samples `[first + range.start, first + range.end)`.
pub(crate) fn read(
    samples: &dyn Samples,
    first: u64,
    range: Range<usize>,
    plan: &Plan,
    (device, place): (&Device, &RankCoord),
) -> Result<Batch> {
    let rank = place.rank();
    // filled on the host
    let host = match device.is_host() {
        true => device.clone(),
        false => Device::cpu_with(Isa::Portable),
    };
    let room = Room::of(range.len(), plan, &host, place);
    let mut room = room.on_rank(rank, "allocate a batch")?;
    let mut sample = Sample::of(plan);
    for (at, offset) in range.enumerate() {
        read_one(samples, first + offset as u64, plan, &mut sample)?;
        let put = room.put(at, &sample, plan);
        put.on_rank(rank, "fill a batch")?;
    }
    if device.is_host() {
        return Ok(room.batch);
    }
    let batch = room.batch.to_device(device);
    batch.on_rank(rank, "copy a batch to the device")
}

/// Reads a sample and refuses one that the model of `plan` cannot take.
fn read_one(samples: &dyn Samples, index: u64, plan: &Plan, sample: &mut Sample) -> Result<()> {
    if let Sample::Text(text) = sample {
        text.counts.fill(true); // sources need not fill in the defaults
        text.ends.clear();
        text.pairs.clear();
    }
    let failed = |source| Error::Sample {
        sample: index,
        source,
    };
    samples.read(index, sample).map_err(failed)?;
    if let Some((position, found)) = sample.unknown(plan) {
        let vocab = plan.vocab;
        return Err(Error::Token {
            sample: index,
            position,
            found,
            vocab,
        });
    }
    match sample {
        Sample::Masked(masked) => match masked.problem(plan.predictions) {
            Some(problem) => Err(failed(problem.into())),
            None => Ok(()),
        },
        Sample::Spans(spans) => match spans.length {
            length if (1..=spans.tokens.len()).contains(&length) => Ok(()),
            length => {
                let most = spans.tokens.len();
                let problem = format!("a length of {length}, want 1 to {most}");
                Err(failed(problem.into()))
            }
        },
        Sample::Labelled(labelled) => {
            let head = plan.model.classify.as_ref();
            match head.and_then(|head| labelled.problem(head)) {
                Some(problem) => Err(failed(problem.into())),
                None => Ok(()),
            }
        }
        Sample::Text(text) => {
            if let Some(problem) = text.problem(plan) {
                return Err(failed(problem.into()));
            }
            if let (true, Some(eod)) = (plan.train.eod_mask_loss, plan.eod) {
                let ends = text.tokens.iter().map(|&token| token == eod);
                for (counts, is_end) in text.counts.iter_mut().zip(ends) {
                    *counts &= !is_end;
                }
            }
            Ok(())
        }
    }
}

/// Buffers for a batch to be filled.
struct Room {
    batch: Batch,
    /// Tokens of a sequence on the rank, and the position of the first.
    time: usize,
    from: usize,
    /// The same for the rows between layers.
    row_time: usize,
    row_from: usize,
    /// Prediction slots per sequence in `targets`.
    places: usize,
    /// Sequences of a question, for a model that classifies.
    choices: usize,
    /// Encoder-decoder only: the source row of each row of a whole sample.
    order: Vec<usize>,
}

impl Room {
    fn of(b: usize, plan: &Plan, device: &Device, place: &RankCoord) -> kernels::Result<Room> {
        let architecture = plan.model.architecture();
        let (is_masked, is_pair) = (architecture.is_masked, architecture.is_encoder_decoder);
        let time = plan.sample_tokens() / place.cp;
        let (row_time, row_rank) = if plan.parallel.sequence {
            (time / place.tp, place.tp_rank)
        } else {
            (time, 0)
        };
        let from = place.cp_rank * time;
        let is_classified = plan.model.classify.is_some();
        let choices = plan.model.choices();
        let places = if is_classified {
            1
        } else if is_masked {
            plan.predictions
        } else if is_pair {
            plan.decoder_length / place.cp
        } else {
            time
        };
        let list = |is_there: bool, n, dtype| {
            let tensor = is_there.then(|| Tensor::empty(&[n], dtype, device));
            tensor.transpose()
        };
        let (is_first, is_last) = (place.is_first_stage(), place.is_last_stage());
        let ids = list(is_last, b * places / choices, DType::U32)?;
        let counts = list(is_last, b * places / choices, DType::F32)?;
        let numbers = list(is_last && plan.model.is_regression(), b, DType::F32)?;
        let is_told = architecture.next_sentence;
        let picked = b * (places + usize::from(is_told));
        let has_picks = is_masked || is_classified;
        let rows = list(is_last && has_picks, picked, DType::U32)?;
        let swapped = list(is_last && is_told, b, DType::U32)?;
        let depths = plan.model.mtp_num_layers;
        let here = if is_last { depths } else { 0 };
        let ahead = (0..here).map(|_| Ahead::of(b * time, device));
        Ok(Room {
            batch: Batch {
                inputs: list(is_first, b * time, DType::U32)?,
                segments: list(is_first && is_masked, b * time, DType::U32)?,
                targets: ids.zip(counts).map(|(ids, counts)| Targets {
                    ids,
                    counts,
                    numbers,
                }),
                ahead: ahead.collect::<kernels::Result<_>>()?,
                picks: rows.map(|rows| Picks { rows, swapped }),
                labels: Vec::new(),
                pairs: Vec::new(),
                counted: 0,
                counted_ahead: vec![0; depths],
                documents: if is_masked || is_pair {
                    Some(Documents {
                        bounds: Some(Vec::with_capacity(b * plan.seq_length / place.cp)),
                        positions: None,
                    })
                } else {
                    Documents::asked_for(plan)
                },
                seen: Vec::new(),
            },
            time,
            from,
            row_time,
            row_from: from + row_rank * row_time,
            places,
            choices,
            order: if is_pair {
                documents::order(plan.seq_length, plan.decoder_length).collect()
            } else {
                Vec::new()
            },
        })
    }

    /// The sample of sequence `at`.
    fn put(&mut self, at: usize, sample: &Sample, plan: &Plan) -> kernels::Result<()> {
        let counts = sample.counts().iter();
        let counted = counts.filter(|&&counts| counts).count();
        match sample {
            Sample::Text(text) if plan.train.loss_mean == LossMean::Text => {
                return self.put_weighted(at, text, plan);
            }
            Sample::Text(text) if plan.train.preference.is_some() => {
                self.batch.counted += text.pairs.len();
                let pairs = BatchPair::of(at, &text.pairs, text.texts(), &text.counts);
                self.batch.pairs.extend(pairs);
            }
            _ => self.batch.counted += counted,
        }
        match sample {
            Sample::Text(text) => self.put_text(at, text, plan),
            Sample::Masked(masked) => self.put_masked(at, masked),
            Sample::Spans(spans) => self.put_spans(at, spans),
            Sample::Labelled(labelled) => self.put_labelled(at, labelled),
        }
    }

    fn put_spans(&mut self, at: usize, spans: &SpanSample) -> kernels::Result<()> {
        let (time, from, places) = (self.time, self.from, self.places);
        let batch = &mut self.batch;
        if let Some(inputs) = &mut batch.inputs {
            let to = &mut inputs.host_mut()?[at * time..(at + 1) * time];
            let split = spans.tokens.len();
            for (to, &place) in to.iter_mut().zip(&self.order[from..from + time]) {
                *to = match place.checked_sub(split) {
                    None => spans.tokens[place],
                    Some(place) => spans.decoder_tokens[place],
                };
            }
        }
        let end = u32::try_from(spans.length).expect("a sequence is shorter than 2^32");
        let encoder = time - places;
        let bounds = batch.documents.as_mut();
        if let Some(bounds) = bounds.and_then(|documents| documents.bounds.as_mut()) {
            bounds.resize(bounds.len() + encoder, [0, end]);
        }
        batch.seen.resize(batch.seen.len() + places, [0, end]);
        if let Some(Targets { ids, counts, .. }) = &mut batch.targets {
            // a context-parallel rank has the same share of both sequences
            let from = from / time * places;
            let here = at * places..(at + 1) * places;
            let ids = &mut ids.host_mut::<u32>()?[here.clone()];
            ids.copy_from_slice(&spans.targets[from..from + places]);
            let from = &spans.counts[from..from + places];
            let both = counts.host_mut::<f32>()?[here].iter_mut().zip(ids);
            for ((weight, id), &is_counted) in both.zip(from) {
                *weight = f32::from(u8::from(is_counted));
                if !is_counted {
                    *id = 0;
                }
            }
        }
        Ok(())
    }

    /// Like `put_text`, where every text has the weight 1.
    fn put_weighted(&mut self, at: usize, text: &TextSample, plan: &Plan) -> kernels::Result<()> {
        self.put_text(at, text, plan)?;
        let (time, from) = (self.time, self.from);
        for inputs in text.texts() {
            let counts = text.counts[inputs.clone()].iter();
            let counted = counts.filter(|&&counts| counts).count();
            self.batch.counted += usize::from(counted > 0);
            let Some(Targets { counts, .. }) = &mut self.batch.targets else {
                continue;
            };
            let share = 1.0 / counted.max(1) as f32;
            let here = inputs.start.max(from)..inputs.end.min(from + time);
            let rows = here.map(|position| at * time + position - from);
            let weights = counts.host_mut::<f32>()?;
            rows.for_each(|row| weights[row] *= share);
        }
        Ok(())
    }

    fn put_text(&mut self, at: usize, text: &TextSample, plan: &Plan) -> kernels::Result<()> {
        let (time, from) = (self.time, self.from);
        if let Some(documents) = &mut self.batch.documents {
            let tokens = &text.tokens[..text.counts.len()];
            match text.ends.is_empty() {
                true => documents.push(tokens, plan.eod, from..from + time),
                false => documents.push_texts(text.texts(), from..from + time),
            }
        }
        let here = at * time..(at + 1) * time;
        for (depth, counted) in self.batch.counted_ahead.iter_mut().enumerate() {
            let shifted = Shifted::of(text, depth + 1);
            *counted += shifted.counted();
            if let Some(ahead) = self.batch.ahead.get_mut(depth) {
                ahead.put(here.clone(), &shifted, from)?;
            }
        }
        if let Some(inputs) = &mut self.batch.inputs {
            let inputs = &mut inputs.host_mut()?[here.clone()];
            inputs.copy_from_slice(&text.tokens[from..from + time]);
        }
        if let Some(Targets { ids, counts, .. }) = &mut self.batch.targets {
            let ids = &mut ids.host_mut()?[here.clone()];
            let targets = &text.tokens[from + 1..from + time + 1];
            for (to, &id) in ids.iter_mut().zip(targets) {
                *to = as_target(plan, id);
            }
            let from = &text.counts[from..from + time];
            for (weight, &counts) in counts.host_mut::<f32>()?[here].iter_mut().zip(from) {
                *weight = f32::from(u8::from(counts));
            }
        }
        Ok(())
    }

    fn put_labelled(&mut self, at: usize, labelled: &LabelledSample) -> kernels::Result<()> {
        let (time, from) = (self.time, self.from);
        let here = at * time..(at + 1) * time;
        let batch = &mut self.batch;
        for (to, list) in [
            (&mut batch.inputs, &labelled.tokens),
            (&mut batch.segments, &labelled.segments),
        ] {
            if let Some(to) = to {
                to.host_mut()?[here.clone()].copy_from_slice(&list[from..from + time]);
            }
        }
        let bounds = batch.documents.as_mut();
        let bounds = bounds.and_then(|documents| documents.bounds.as_mut());
        let is_masked = bounds.is_some();
        if let Some(bounds) = bounds {
            let end = u32::try_from(labelled.length).expect("a sequence is shorter than 2^32");
            bounds.resize(bounds.len() + time, [0, end]);
        }
        let is_question = at.is_multiple_of(self.choices);
        if is_question {
            batch.labels.push(labelled.label);
            batch.counted += 1;
        }
        let (Some(targets), Some(picks)) = (&mut batch.targets, &mut batch.picks) else {
            return Ok(());
        };
        if is_question {
            targets.ids.host_mut::<u32>()?[at / self.choices] = labelled.label;
            targets.counts.host_mut::<f32>()?[at / self.choices] = 1.0;
            if let Some(numbers) = &mut targets.numbers {
                numbers.host_mut::<f32>()?[at] = labelled.number;
            }
        }
        // the first token stands for a text whose every token sees all others, the last one where it sees those before
        let position = if is_masked { 0 } else { labelled.length - 1 };
        picks.rows.host_mut::<u32>()?[at] = row_at(at, position, [self.row_from, self.row_time]);
        Ok(())
    }

    fn put_masked(&mut self, at: usize, masked: &MaskedSample) -> kernels::Result<()> {
        let (time, from) = (self.time, self.from);
        let here = at * time..(at + 1) * time;
        let batch = &mut self.batch;
        for (to, list) in [
            (&mut batch.inputs, &masked.tokens),
            (&mut batch.segments, &masked.segments),
        ] {
            if let Some(to) = to {
                to.host_mut()?[here.clone()].copy_from_slice(&list[from..from + time]);
            }
        }
        let bounds = batch.documents.as_mut();
        if let Some(bounds) = bounds.and_then(|documents| documents.bounds.as_mut()) {
            let end = u32::try_from(masked.length).expect("a sequence is shorter than 2^32");
            bounds.resize(bounds.len() + time, [0, end]);
        }
        let (Some(targets), Some(picks)) = (&mut batch.targets, &mut batch.picks) else {
            return Ok(());
        };
        let places = at * self.places..(at + 1) * self.places;
        let ids = &mut targets.ids.host_mut::<u32>()?[places.clone()];
        let counts = &mut targets.counts.host_mut::<f32>()?[places.clone()];
        let picked = self.places + usize::from(picks.swapped.is_some());
        let rows = &mut picks.rows.host_mut()?[at * picked..(at + 1) * picked];
        ids.fill(0);
        counts.fill(0.0);
        rows.fill(NOWHERE);
        let (row_from, row_time) = (self.row_from, self.row_time);
        let row_of = |position: usize| row_at(at, position, [row_from, row_time]);
        let positions = (0..masked.counts.len()).filter(|&position| masked.counts[position]);
        for (place, position) in positions.enumerate() {
            (ids[place], counts[place]) = (masked.targets[position], 1.0);
            rows[place] = row_of(position);
        }
        if let Some(swapped) = &mut picks.swapped {
            swapped.host_mut()?[at] = u32::from(masked.is_swapped);
            rows[self.places] = row_of(0);
        }
        Ok(())
    }
}

/// The row of a position of sequence `at` among those that the rank has between layers: `time` rows of each sequence, from
/// position `from` on.
fn row_at(at: usize, position: usize, [from, time]: [usize; 2]) -> u32 {
    let row = position.checked_sub(from).filter(|&row| row < time);
    row.map_or(NOWHERE, |row| {
        u32::try_from(at * time + row).expect("a batch has fewer than 2^32 rows")
    })
}
