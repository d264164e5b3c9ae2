//! What each pipe step promises, for all inputs.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use tallow_data::{Error, Pipe, Result, pipe};

/// Values and errors mixed: `None` stands for an error.
fn items(values: &[Option<u32>]) -> Pipe<std::vec::IntoIter<Result<u32>>> {
    let items: Vec<_> = values
        .iter()
        .map(|v| v.ok_or_else(|| Error::custom("bad sample")))
        .collect();
    pipe::try_from_iter(items)
}

/// Back to values and `None`s, to compare.
fn read<T>(pipe: impl Iterator<Item = Result<T>>) -> Vec<Option<T>> {
    pipe.map(Result::ok).collect()
}

fn values<T>(pipe: impl Iterator<Item = Result<T>>) -> Vec<T> {
    pipe.collect::<Result<Vec<_>>>().unwrap()
}

fn sorted(mut values: Vec<u32>) -> Vec<u32> {
    values.sort_unstable();
    values
}

fn check_size_hint<T>(pipe: impl Iterator<Item = Result<T>>) {
    let (lower, upper) = pipe.size_hint();
    let count = pipe.count();
    assert!(
        lower <= count && upper.is_none_or(|upper| count <= upper),
        "{lower} <= {count} <= {upper:?}"
    );
}

fn setting_error<T>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::Setting { .. }) => error.to_string(),
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

proptest! {
    #[test]
    fn shuffle_is_a_permutation_and_repeats_with_its_key(
        input in vec(any::<u32>(), 0..200), buffer in 0usize..250, key: u64,
    ) {
        let order = || values(pipe::from_iter(input.clone()).shuffle(buffer, key));
        prop_assert_eq!(order(), order());
        prop_assert_eq!(sorted(order()), sorted(input.clone()));
    }

    #[test]
    fn shuffle_brings_nothing_forward_by_more_than_its_buffer(n in 0u32..200, buffer in 1usize..50, key: u64) {
        for (place, value) in values(pipe::from_iter(0..n).shuffle(buffer, key)).into_iter().enumerate() {
            prop_assert!((value as usize) < place + buffer, "value {} at place {}", value, place);
        }
    }

    #[test]
    fn shards_partition_the_values_and_differ_by_one_at_most(n in 0u32..200, world in 1usize..20) {
        let shards: Vec<Vec<u32>> =
            (0..world).map(|rank| values(pipe::from_iter(0..n).shard(rank, world).unwrap())).collect();
        prop_assert_eq!(sorted(shards.concat()), (0..n).collect::<Vec<_>>());
        let sizes: BTreeSet<usize> = shards.iter().map(Vec::len).collect();
        prop_assert!(sizes.last().unwrap() - sizes.first().unwrap() <= 1);
    }

    #[test]
    fn batches_are_full_but_for_the_last_and_keep_the_order(n in 0u32..200, size in 1usize..30) {
        let all = values(pipe::from_iter(0..n).batch(size, false).unwrap());
        prop_assert_eq!(all.concat(), (0..n).collect::<Vec<_>>());
        if let Some((last, full)) = all.split_last() {
            prop_assert!(full.iter().all(|list| list.len() == size));
            prop_assert!((1..=size).contains(&last.len()));
        }
        let whole = values(pipe::from_iter(0..n).batch(size, true).unwrap());
        prop_assert_eq!(whole.len(), n as usize / size);
        prop_assert_eq!(&whole[..], &all[..whole.len()]);
    }

    #[test]
    fn prefetch_changes_nothing(input in vec(any::<Option<u32>>(), 0..60), ahead in 0usize..5) {
        prop_assert_eq!(read(items(&input).prefetch(ahead)), input);
    }

    #[test]
    fn map_and_filter_leave_errors_in_their_places(input in vec(any::<Option<u32>>(), 0..60)) {
        let halves: Vec<_> = input.iter().map(|v| v.map(|v| v / 2)).collect();
        prop_assert_eq!(read(items(&input).map(|v| v / 2)), halves);

        let even: Vec<_> = input.iter().copied().filter(|v| v.is_none_or(|v| v % 2 == 0)).collect();
        prop_assert_eq!(read(items(&input).filter(|v| v % 2 == 0)), even);
    }

    #[test]
    fn no_step_loses_a_value_or_an_error(
        input in vec(any::<Option<u32>>(), 0..80), buffer in 0usize..20, size in 1usize..9, key: u64,
    ) {
        let bad = input.iter().filter(|v| v.is_none()).count();
        let good = sorted(input.iter().copied().flatten().collect());
        let out = read(items(&input).shuffle(buffer, key).batch(size, false).unwrap().prefetch(1));
        prop_assert_eq!(out.iter().filter(|list| list.is_none()).count(), bad);
        prop_assert_eq!(sorted(out.into_iter().flatten().flatten().collect()), good);
    }

    #[test]
    fn every_rank_sees_every_error(input in vec(any::<Option<u32>>(), 0..60), world in 1usize..5) {
        let bad = input.iter().filter(|v| v.is_none()).count();
        for rank in 0..world {
            let shard = read(items(&input).shard(rank, world).unwrap());
            prop_assert_eq!(shard.iter().filter(|v| v.is_none()).count(), bad);
        }
    }

    #[test]
    fn size_hints_hold(
        input in vec(any::<Option<u32>>(), 0..40), taken in 0usize..10, buffer in 0usize..9, size in 1usize..9,
    ) {
        fn after<T, I: Iterator<Item = Result<T>>>(mut pipe: Pipe<I>, taken: usize) -> Pipe<I> {
            pipe.by_ref().take(taken).for_each(drop);
            pipe
        }
        check_size_hint(after(items(&input).map(|v| v), taken));
        check_size_hint(after(items(&input).filter(|v| v % 2 == 0), taken));
        check_size_hint(after(items(&input).shuffle(buffer, 1), taken));
        check_size_hint(after(items(&input).shard(size / 2, size).unwrap(), taken));
        for drop_last in [false, true] {
            check_size_hint(after(items(&input).batch(size, drop_last).unwrap(), taken));
        }
    }
}

#[test]
fn shuffle_with_a_full_buffer_can_put_any_value_first() {
    let firsts: BTreeSet<u32> = (0..200)
        .map(|key| values(pipe::from_iter(0..5).shuffle(5, key))[0])
        .collect();
    assert_eq!(firsts, BTreeSet::from([0, 1, 2, 3, 4]));
}

#[test]
fn an_error_does_not_split_a_batch() {
    let out = read(
        items(&[Some(1), None, Some(2), Some(3)])
            .batch(2, true)
            .unwrap(),
    );
    assert_eq!(out, [None, Some(vec![1, 2])]);
}

#[test]
fn collate_gets_whole_lists_and_may_fail() {
    let sums = pipe::from_iter(0..6)
        .batch(2, true)
        .unwrap()
        .collate(|list: Vec<u32>| match list.iter().sum() {
            5 => Err(Error::custom("five")),
            sum => Ok(sum),
        });
    assert_eq!(read(sums), [Some(1), None, Some(9)]);
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let pipe = || pipe::from_iter(0..3);
    assert_eq!(
        setting_error(pipe().batch(0, true)),
        "a batch needs at least 1 sample, found 0"
    );
    for (rank, world) in [(0, 0), (3, 3), (4, 3)] {
        let message = setting_error(pipe().shard(rank, world));
        assert!(
            message.ends_with(&format!("found rank {rank} of {world}")),
            "{message}"
        );
    }
}
