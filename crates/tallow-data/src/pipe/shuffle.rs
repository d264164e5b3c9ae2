//! Mixes values within a buffer (PyTorch's `Shuffler`): see [`Pipe::shuffle`](super::Pipe::shuffle).

use tallow_tensor::rng::Stream;

use crate::Result;

/// A pipe whose values come in another order.
#[derive(Debug, Clone)]
pub struct Shuffle<I, T> {
    items: I,
    size: usize,
    buffer: Vec<T>,
    stream: Stream,
}

impl<I, T> Shuffle<I, T> {
    pub(super) fn new(items: I, size: usize, key: u64) -> Self {
        Self {
            items,
            size,
            buffer: Vec::new(),
            stream: Stream::new(key),
        }
    }
}

impl<T, I: Iterator<Item = Result<T>>> Iterator for Shuffle<I, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.buffer.len() < self.size.max(1) {
            match self.items.next() {
                Some(Ok(value)) => self.buffer.push(value),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        if self.buffer.is_empty() {
            return None;
        }
        let drawn = self.stream.below(self.buffer.len() as u64) as usize;
        Some(Ok(self.buffer.swap_remove(drawn)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (lower, upper) = self.items.size_hint();
        let waiting = self.buffer.len();
        (
            lower.saturating_add(waiting),
            upper.and_then(|upper| upper.checked_add(waiting)),
        )
    }
}
