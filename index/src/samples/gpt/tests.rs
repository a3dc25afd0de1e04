//! Tests of the GPT index by closed forms and small cases; comparisons with Megatron are in tests/all/megatron.rs.

use super::*;

fn build(
    range: Range<u64>,
    length: impl Fn(usize) -> u32 + Sync,
    r: Request,
) -> Result<GptIndices> {
    GptIndices::build(("lengths", Part::Train), range, &length, &r)
}

#[test]
fn consecutive_samples_share_the_extra_token_and_cover_every_document() {
    let lengths = [5u32, 1, 7, 0, 3, 9, 0];
    for x in [true, false] {
        let mut r = Request::of(4, None, 1);
        r.extra_token = x;
        let g = build(0..7, |i| lengths[i], r).unwrap();
        let of = |d: i32| lengths[d.unsigned_abs() as usize];
        assert_eq!(g.len(), (25 - u64::from(x)) / 4);
        for k in 0..g.sample_index.rows() {
            let (position, offset) = g.sample_index.row(k);
            let before: u64 = g.document_index[..position]
                .iter()
                .map(|d| u64::from(of(*d)))
                .sum();
            assert_eq!(before + offset, 4 * k as u64, "row {k}");
            assert!(
                offset <= u64::from(of(g.document_index[position])),
                "row {k}"
            );
        }
    }
}

#[test]
fn a_last_partial_sample_is_kept_if_asked() {
    let mut r = Request::of(4, None, 1);
    r.drop_last = false;
    let g = build(0..3, |i| [5, 6, 3][i], r).unwrap();
    assert_eq!(g.len(), 4, "13 tokens, 4 at a time");
    let (position, offset) = g.sample_index.row(4);
    let last = [5u64, 6, 3][usize::try_from(g.document_index[2]).unwrap()];
    assert_eq!((position, offset), (2, last - 1));
}

#[test]
fn an_empty_part_is_refused_and_nothing_asked_is_fine() {
    let ask = |n| build(7..7, |_| 3, Request::of(4, n, 1));
    assert!(matches!(ask(Some(1)), Err(Error::EmptySplit { .. })));
    assert!(ask(Some(0)).unwrap().is_empty());
    assert!(ask(None).unwrap().is_empty());
    let huge = build(0..2, |_| 3, Request::of(4, Some(u64::MAX), 1));
    assert!(matches!(huge, Err(Error::Blend { .. })), "{huge:?}");
    assert!(build(0..2, |_| 3, Request::of(0, Some(1), 1)).is_err());
}

#[test]
fn more_samples_within_an_epoch_keep_the_order() {
    let ask = |n| {
        let length = |i: usize| u32::try_from(i % 17 + 1).unwrap();
        build(0..400, length, Request::of(8, Some(n), 9)).unwrap()
    };
    let (a, b, c) = (ask(10), ask(300), ask(600));
    assert_eq!(a.order, b.order);
    assert_eq!(a.shuffle_index, b.shuffle_index);
    assert_ne!(a.order, c.order);
    assert_ne!(a.shuffle_index.at(0), c.shuffle_index.at(0));
}

#[test]
fn the_arrays_do_not_depend_on_the_number_of_threads() {
    let length = |i: usize| u32::try_from(i * 7 % 1000).unwrap();
    let on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| build(0..300_000, length, Request::of(128, Some(1_500_000), 3)).unwrap())
    };
    let one = on(1);
    assert!(one.order.epochs > 1);
    for threads in [2, 5] {
        assert!(on(threads) == one, "{threads} threads");
    }
}

#[test]
fn the_sequences_of_a_sample_are_those_whose_tokens_it_has() {
    use crate::dataset::{DatasetWriter, TokenType};
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("d");
    let mut writer = DatasetWriter::create(&prefix, TokenType::U16).unwrap();
    // every token of a sequence is the sequence's number; some sequences are empty, some longer than samples
    for (number, length) in (0u16..).zip([5u32, 1, 0, 23, 4, 9, 0, 1, 1, 16]) {
        let bytes = number.to_le_bytes().repeat(length as usize);
        writer.append(&bytes, &[length], &[1]).unwrap();
    }
    writer.finish().unwrap();
    let dataset = Arc::new(Dataset::open(&prefix).unwrap());
    for extra in [true, false] {
        let mut request = Request::of(4, Some(40), 3);
        request.extra_token = extra;
        let bounds = split::parse("100,0,0").unwrap()[0].unwrap();
        let samples =
            GptSamples::new(dataset.clone(), Part::Train, bounds, &request, None).unwrap();
        for k in 0..samples.len() {
            let mut tokens = vec![0; 4 + usize::from(extra)];
            samples.read(k, &mut tokens).unwrap();
            tokens.dedup();
            let mut found = Vec::new();
            let each = |sequence| {
                found.push(u32::try_from(sequence).unwrap());
                true
            };
            samples.each_sequence(k, each).unwrap();
            found.dedup();
            assert_eq!(found, tokens, "sample {k}");
        }
        assert!(samples.each_sequence(samples.len(), |_| true).is_err());
    }
}
