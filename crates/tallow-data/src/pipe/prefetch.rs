//! Reads ahead on a thread of its own (PyTorch's `Prefetcher`): see [`Pipe::prefetch`](super::Pipe::prefetch).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use crate::{Error, Result};

/// A pipe whose items are made ahead of their use.
///
/// Dropping it stops the thread and waits until the item in the making is done.
pub struct Prefetch<T> {
    source: Source<T>,
}

enum Source<T> {
    /// Made on the reader's own thread.
    Inline(Guarded<Box<dyn Iterator<Item = Result<T>> + Send>>),
    Thread(Reader<T>),
    /// The thread could not be started; the item that says so.
    Failed(Option<Error>),
}

impl<T: Send + 'static> Prefetch<T> {
    pub(super) fn new<I>(items: I, ahead: usize) -> Self
    where
        I: Iterator<Item = Result<T>> + Send + 'static,
    {
        let source = match ahead {
            0 => Source::Inline(Guarded {
                items: Some(Box::new(items)),
            }),
            _ => Reader::start(items, ahead)
                .map_or_else(|error| Source::Failed(Some(error)), Source::Thread),
        };
        Self { source }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Inline(items) => items.next(),
            Source::Thread(reader) => reader.ready.as_ref()?.recv().ok(),
            Source::Failed(error) => error.take().map(Err),
        }
    }
}

impl<T> fmt::Debug for Prefetch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Inline(_) => "inline",
            Source::Thread(_) => "thread",
            Source::Failed(_) => "failed",
        };
        f.debug_struct("Prefetch").field("source", &source).finish()
    }
}

/// The reading end of a prefetch thread.
struct Reader<T> {
    /// `None` only while dropping: with the receiver gone, the thread's next send fails and it ends.
    ready: Option<Receiver<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Reader<T> {
    fn start<I>(items: I, ahead: usize) -> Result<Self>
    where
        I: Iterator<Item = Result<T>> + Send + 'static,
    {
        // One item waits in the hands of the thread while the channel is full.
        let (sender, receiver) = sync_channel(ahead - 1);
        let items = Guarded { items: Some(items) };
        let thread = std::thread::Builder::new()
            .name("tallow-prefetch".into())
            .spawn(move || {
                for item in items {
                    if sender.send(item).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| {
                Error::custom(format!(
                    "can't start a prefetch thread: {error}; use prefetch(0)"
                ))
            })?;
        Ok(Self {
            ready: Some(receiver),
            thread: Some(thread),
        })
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.ready = None;
        if let Some(thread) = self.thread.take() {
            // An Err would be a panic while the thread dropped the items; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

/// Turns a panic in `next` into one last item.
struct Guarded<I> {
    items: Option<I>,
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for Guarded<I> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let items = self.items.as_mut()?;
        // The items are not touched again after a panic, so nothing half-done can be seen.
        let item = match catch_unwind(AssertUnwindSafe(|| items.next())) {
            Ok(Some(item)) => return Some(item),
            Ok(None) => None,
            Err(panic) => Some(Err(Error::panicked(&*panic))),
        };
        self.items = None;
        item
    }
}
