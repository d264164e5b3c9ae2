//! Where a pipe begins: any iterator (PyTorch's `IterableWrapper`).

use super::Pipe;
use crate::Result;

/// Begins a pipe with the values of any iterator.
///
/// ```
/// let mut pipe = tallow_data::pipe::from_iter(["a", "b"]);
/// assert_eq!(pipe.next().transpose()?, Some("a"));
/// # Ok::<(), tallow_data::Error>(())
/// ```
pub fn from_iter<It: IntoIterator>(values: It) -> Pipe<FromIter<It::IntoIter>> {
    Pipe {
        inner: FromIter {
            values: values.into_iter(),
        },
    }
}

/// Begins a pipe with an iterator whose items are `Result`s already, such as files that are read one by one.
pub fn try_from_iter<T, It: IntoIterator<Item = Result<T>>>(items: It) -> Pipe<It::IntoIter> {
    Pipe {
        inner: items.into_iter(),
    }
}

/// The pipe that [`from_iter`] begins.
#[derive(Debug, Clone)]
pub struct FromIter<V> {
    values: V,
}

impl<V: Iterator> Iterator for FromIter<V> {
    type Item = Result<V::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        self.values.next().map(Ok)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.values.size_hint()
    }
}
