//! Leaves values out (PyTorch's `Filter`): see [`Pipe::filter`](super::Pipe::filter).

use crate::Result;

/// A pipe without the values that a predicate turns down.
#[derive(Debug, Clone)]
pub struct Filter<I, P> {
    items: I,
    keep: P,
}

impl<I, P> Filter<I, P> {
    pub(super) fn new(items: I, keep: P) -> Self {
        Self { items, keep }
    }
}

impl<T, I: Iterator<Item = Result<T>>, P: FnMut(&T) -> bool> Iterator for Filter<I, P> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        let keep = &mut self.keep;
        self.items
            .find(|item| item.as_ref().map_or(true, &mut *keep))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, self.items.size_hint().1)
    }
}
