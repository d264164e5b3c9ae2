//! The prefetch thread: panics, early ends, how far it runs ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use tallow_data::{Error, Result, pipe};

#[test]
fn a_panic_in_user_code_is_one_last_error() {
    for ahead in [0, 1, 3] {
        let items: Vec<_> = pipe::from_iter(0..9)
            .map(|x| {
                if x == 2 {
                    panic!("sample {x} is odd-looking")
                } else {
                    x
                }
            })
            .prefetch(ahead)
            .collect();
        assert_eq!(items.len(), 3, "two values, one error, then the end");
        assert_eq!(*items[1].as_ref().unwrap(), 1);
        match &items[2] {
            Err(Error::Panicked { message }) => assert_eq!(message, "sample 2 is odd-looking"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn dropping_midway_ends_the_thread_and_frees_what_it_held() {
    for read in 0..4 {
        let held = Arc::new(());
        let in_thread = held.clone();
        let mut endless = pipe::from_iter(0u64..)
            .map(move |x| (x, in_thread.clone()))
            .prefetch(2);
        for expected in 0..read {
            assert_eq!(endless.next().unwrap().unwrap().0, expected);
        }
        drop(endless);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn the_thread_runs_ahead_by_no_more_than_asked() {
    const AHEAD: usize = 3;
    let made = Arc::new(AtomicUsize::new(0));
    let counter = made.clone();
    let mut pipe = pipe::from_iter(0usize..50)
        .map(move |x| {
            counter.fetch_add(1, Ordering::SeqCst);
            x
        })
        .prefetch(AHEAD);
    for read in 1..=50 {
        pipe.next().unwrap().unwrap();
        let made = made.load(Ordering::SeqCst);
        assert!(
            (read..=read + AHEAD).contains(&made),
            "{made} made after {read} read"
        );
    }
    assert!(pipe.next().is_none());
}

#[test]
fn items_are_made_before_they_are_asked_for() {
    let (sender, made) = channel();
    let pipe = pipe::from_iter(0..5)
        .map(move |x| {
            sender.send(x).unwrap();
            x
        })
        .prefetch(2);
    // Blocks for ever if the thread waits to be asked.
    assert_eq!(made.recv(), Ok(0));
    assert_eq!(made.recv(), Ok(1));
    assert_eq!(pipe.collect::<Result<Vec<_>>>().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn an_ended_pipe_stays_ended() {
    for ahead in [0, 2] {
        let mut pipe = pipe::from_iter(0..1).prefetch(ahead);
        assert!(pipe.next().is_some());
        assert!(pipe.next().is_none() && pipe.next().is_none());
    }
}
