//! One item to one item (PyTorch's `Mapper`): see [`Pipe::map`](super::Pipe::map) and
//! [`Pipe::try_map`](super::Pipe::try_map).

use crate::Result;

/// A pipe with a function applied to every value.
#[derive(Debug, Clone)]
pub struct Map<I, F> {
    items: I,
    f: F,
}

impl<I, F> Map<I, F> {
    pub(super) fn new(items: I, f: F) -> Self {
        Self { items, f }
    }
}

impl<T, U, I: Iterator<Item = Result<T>>, F: FnMut(T) -> U> Iterator for Map<I, F> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.items.next()?.map(&mut self.f))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

/// A pipe with a function that can fail applied to every value.
#[derive(Debug, Clone)]
pub struct TryMap<I, F> {
    items: I,
    f: F,
}

impl<I, F> TryMap<I, F> {
    pub(super) fn new(items: I, f: F) -> Self {
        Self { items, f }
    }
}

impl<T, U, I: Iterator<Item = Result<T>>, F: FnMut(T) -> Result<U>> Iterator for TryMap<I, F> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.items.next()?.and_then(&mut self.f))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}
