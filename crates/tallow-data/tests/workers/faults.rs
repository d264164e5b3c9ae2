//! What goes wrong: errors and panics name the sample, stay in their places, and can be skipped; a worker that hangs is
//! told on.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tallow_data::{Error, Loader, LoaderConfig, OnError, Result, Shard, source};

use super::{Numbers, WORKERS};

fn numbers() -> Numbers {
    Numbers {
        failing: vec![3],
        panicking: vec![8],
        ..Numbers::new(12)
    }
}

fn open(source: Numbers, config: LoaderConfig) -> Loader<Vec<u64>> {
    Loader::collated(source, |n, _| Ok(n), Ok, config).unwrap()
}

fn items(loader: &Loader<Vec<u64>>) -> Vec<Result<Vec<u64>, String>> {
    let items = loader.batches(0).unwrap();
    items.map(|item| item.map_err(|e| e.to_string())).collect()
}

#[test]
fn an_error_names_the_sample_and_stays_in_its_place() {
    for workers in WORKERS {
        let loader = open(numbers(), LoaderConfig::eval(3).with_workers(workers));
        assert_eq!(
            items(&loader),
            [
                Ok(vec![0, 1, 2]),
                Err("number 3 (numbers/3.txt): 3 is spoiled".into()),
                Err("number 8 (numbers/8.txt): code that makes data panicked: no 8 today".into()),
                Ok(vec![9, 10, 11]),
            ]
        );
        assert_eq!(loader.stats().samples, 6);
    }
}

#[test]
fn spoiled_samples_can_be_left_out() {
    for workers in WORKERS {
        let config = LoaderConfig {
            on_error: OnError::Skip { at_most: 2 },
            ..LoaderConfig::eval(3).with_workers(workers)
        };
        let loader = open(numbers(), config);
        let expected: [&[u64]; 4] = [&[0, 1, 2], &[4, 5], &[6, 7], &[9, 10, 11]];
        let read: Result<Vec<_>, _> = items(&loader).into_iter().collect();
        assert_eq!(read.unwrap(), expected);
        assert_eq!((loader.stats().samples, loader.stats().skipped), (10, 2));
        assert_eq!(
            loader.skipped()[0],
            "number 3 (numbers/3.txt): 3 is spoiled"
        );
    }
}

#[test]
fn no_more_samples_are_left_out_than_allowed() {
    for workers in WORKERS {
        let config = LoaderConfig {
            on_error: OnError::Skip { at_most: 1 },
            ..LoaderConfig::eval(3).with_workers(workers)
        };
        let read = items(&open(numbers(), config));
        assert_eq!(read[1], Ok(vec![4, 5]));
        assert_eq!(
            read[2],
            Err(
                "2 samples could not be made, and at most 1 may be skipped; the last one was number 8 \
                 (numbers/8.txt): code that makes data panicked: no 8 today"
                    .into()
            )
        );
        assert_eq!(
            read[3],
            Ok(vec![9, 10, 11]),
            "the next epoch's reader may go on"
        );
    }
}

#[test]
fn a_batch_without_a_good_sample_is_an_error() {
    let source = Numbers {
        failing: vec![2, 3],
        ..Numbers::new(6)
    };
    for workers in WORKERS {
        let config = LoaderConfig {
            on_error: OnError::Skip { at_most: 9 },
            ..LoaderConfig::eval(2).with_workers(workers)
        };
        let read = items(&open(source.clone(), config));
        assert_eq!(
            read[1],
            Err(
                "none of the 2 samples of batch 1 could be made; the first one was number 2 (numbers/2.txt): 2 is \
                 spoiled"
                    .into()
            )
        );
        assert_eq!((&read[0], &read[2]), (&Ok(vec![0, 1]), &Ok(vec![4, 5])));
    }
}

#[test]
fn a_panic_in_a_transform_or_a_collate_function_is_an_error() {
    for workers in WORKERS {
        let config = LoaderConfig::eval(2).with_workers(workers);
        let change = |n: u64, _: &mut tallow_tensor::rng::Stream| match n {
            1 => panic!("not one"),
            n => Ok(n),
        };
        let collate = |numbers: Vec<u64>| match numbers[0] {
            2 => panic!("not two"),
            _ => Ok(numbers),
        };
        let loader = Loader::collated(Numbers::new(6), change, collate, config).unwrap();
        let read: Vec<_> = loader.batches(0).unwrap().collect();
        let message = |i: usize| read[i].as_ref().unwrap_err().to_string();
        assert_eq!(
            message(0),
            "number 1 (numbers/1.txt): code that makes data panicked: not one"
        );
        assert_eq!(message(1), "code that makes data panicked: not two");
        assert_eq!(read[2].as_ref().unwrap(), &[4, 5]);
    }
}

#[test]
fn a_stream_that_fails_or_panics_is_an_error_in_its_place() {
    for workers in WORKERS {
        let stream = source::stream(|_| {
            (0..9u64).map(|n| match n {
                2 => Err(Error::custom("a bad block")),
                7 => panic!("a bad day"),
                n => Ok(n),
            })
        });
        let config = LoaderConfig::eval(2).with_workers(workers);
        let loader = Loader::collated(stream, |n, _| Ok(n), Ok, config).unwrap();
        assert_eq!(
            items(&loader),
            [
                Ok(vec![0, 1]),
                Err("item 2 of a stream: a bad block".into()),
                Ok(vec![4, 5]),
                Err("code that makes data panicked: a bad day".into()),
            ]
        );
    }
}

#[test]
fn an_error_among_samples_that_fill_no_batch_is_not_lost() {
    let failing = |failing| Numbers {
        failing,
        ..Numbers::new(5)
    };
    let config = LoaderConfig {
        shuffle: false,
        ..LoaderConfig::train(4)
    };
    // A sample that is left out is never read.
    let read = items(&open(failing(vec![4]), config.clone()));
    assert_eq!(read, [Ok(vec![0, 1, 2, 3])]);
    // The stream itself tells of this one.
    let stream = source::stream(|_| {
        (0..5u64).map(|n| match n {
            4 => Err(Error::custom("cut off")),
            n => Ok(n),
        })
    });
    let loader = Loader::collated(stream, |n, _| Ok(n), Ok, config).unwrap();
    let read = items(&loader);
    assert_eq!(read[1], Err("item 4 of a stream: cut off".into()));
}

#[test]
fn a_worker_that_hangs_is_told_on_and_left_behind() {
    for workers in [1, 2, 5] {
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let change = move |n: u64, _: &mut tallow_tensor::rng::Stream| {
            if n == 5 {
                // Until the test lets it go.
                let held = held.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = held.recv();
            }
            Ok(n)
        };
        let config = LoaderConfig {
            timeout: Some(Duration::from_millis(200)),
            ..LoaderConfig::eval(2).with_workers(workers)
        };
        let loader = Loader::collated(Numbers::new(20), change, Ok, config).unwrap();
        let mut batches = loader.batches(0).unwrap();
        assert_eq!(batches.next().unwrap().unwrap(), [0, 1]);
        assert_eq!(batches.next().unwrap().unwrap(), [2, 3]);
        let error = batches.next().unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::Hung { stage: "changing", sample, .. } if sample == "number 5 (numbers/5.txt)"),
            "{error}"
        );
        assert!(batches.next().is_none(), "the epoch has ended");
        // Comes back, although the worker has not.
        drop(batches);
        release.send(()).unwrap();
    }
}

#[test]
fn settings_that_make_no_sense_are_errors() {
    let bad = [
        LoaderConfig::eval(0),
        LoaderConfig::train(13),
        LoaderConfig {
            shard: Shard { rank: 2, of: 2 },
            ..LoaderConfig::eval(1)
        },
        LoaderConfig {
            shard: Shard { rank: 0, of: 0 },
            ..LoaderConfig::eval(1)
        },
        LoaderConfig {
            shard: Shard { rank: 0, of: 2 },
            ..LoaderConfig::train(7)
        },
        LoaderConfig {
            normalize: Some(tallow_data::Normalize::all(0., 1.)),
            ..LoaderConfig::eval(1)
        },
    ];
    for config in bad {
        let opened = Loader::collated(numbers(), |n, _| Ok(n), Ok, config.clone());
        let error = opened.map(|_| ()).unwrap_err();
        assert!(
            matches!(error, Error::Setting { .. }),
            "{config:?}: {error}"
        );
    }
}
