//! A list of values to one batch (PyTorch's `Collator`): see [`Pipe::collate`](super::Pipe::collate).

use crate::Result;

/// A pipe with a function applied to every list of values.
#[derive(Debug, Clone)]
pub struct Collate<I, F> {
    lists: I,
    f: F,
}

impl<I, F> Collate<I, F> {
    pub(super) fn new(lists: I, f: F) -> Self {
        Self { lists, f }
    }
}

impl<T, U, I, F> Iterator for Collate<I, F>
where
    I: Iterator<Item = Result<Vec<T>>>,
    F: FnMut(Vec<T>) -> Result<U>,
{
    type Item = Result<U>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.lists.next()?.and_then(&mut self.f))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.lists.size_hint()
    }
}
