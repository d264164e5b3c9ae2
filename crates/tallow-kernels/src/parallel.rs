//! Splits work over rayon's threads by shape alone, so that no result depends on their number.
//!
//! Work is a row of `items` cut into leaves of `grain` items; the tree over the leaves is halved
//! until one is left, and rayon steals halves. Leaves and the order in which [`reduce`] joins
//! them follow from `items` and `grain` alone. Neighbouring leaves tend to stay on one thread, so
//! threads write to contiguous halves rather than into each other's cache lines.
//!
//! Runs in the pool of the calling thread (`ThreadPool::install` picks another one).

use std::ops::Range;

/// Elements a leaf should hold to be worth handing to another thread: 128 KiB of `f32`.
pub const LEAF: usize = 32 * 1024;

/// Items a leaf should take where each item stands for `width` elements.
pub fn grain(width: usize) -> usize {
    (LEAF / width.max(1)).max(1)
}

/// Data that can be cut in two between items.
pub trait Split: Sized + Send {
    /// The first `items` items and the rest.
    fn split(self, items: usize) -> (Self, Self);
}

impl<T: Sync> Split for &[T] {
    fn split(self, items: usize) -> (Self, Self) {
        self.split_at(items)
    }
}

impl<T: Send> Split for &mut [T] {
    fn split(self, items: usize) -> (Self, Self) {
        self.split_at_mut(items)
    }
}

impl Split for Range<usize> {
    fn split(self, items: usize) -> (Self, Self) {
        let middle = self.start + items;
        (self.start..middle, middle..self.end)
    }
}

/// Nothing to cut: the leaf works from the item numbers alone.
impl Split for () {
    fn split(self, _items: usize) -> (Self, Self) {
        ((), ())
    }
}

/// An operand that may be missing.
impl<S: Split> Split for Option<S> {
    fn split(self, items: usize) -> (Self, Self) {
        match self {
            None => (None, None),
            Some(data) => {
                let (head, tail) = data.split(items);
                (Some(head), Some(tail))
            }
        }
    }
}

/// A slice (or several, as a tuple) of which each item takes `width` elements.
#[derive(Debug, Clone, Copy)]
pub struct Rows<S> {
    /// The elements, `items * width` of them.
    pub data: S,
    /// Elements an item.
    pub width: usize,
}

/// `data` seen as items of `width` elements each.
pub fn rows<S: Split>(data: S, width: usize) -> Rows<S> {
    Rows { data, width }
}

impl<S: Split> Split for Rows<S> {
    fn split(self, items: usize) -> (Self, Self) {
        let (head, tail) = self.data.split(items * self.width);
        (rows(head, self.width), rows(tail, self.width))
    }
}

macro_rules! split_tuples {
    ($(($($name:ident)+))+) => {$(
        impl<$($name: Split),+> Split for ($($name,)+) {
            #[allow(non_snake_case, reason = "the type's name stands for its field")]
            fn split(self, items: usize) -> (Self, Self) {
                let ($($name,)+) = self;
                $(let $name = $name.split(items);)+
                (($($name.0,)+), ($($name.1,)+))
            }
        }
    )+};
}
split_tuples! { (A B) (A B C) (A B C D) (A B C D E) }

/// Calls `f(first item, that leaf's data)` for every leaf of `grain` items.
///
/// `data` must hold at least `items` items; a shorter slice panics where it is cut.
pub fn for_each<D, F>(items: usize, grain: usize, data: D, f: F)
where
    D: Split,
    F: Fn(usize, D) + Sync,
{
    if items > 0 {
        for_each_from(0, items, grain.max(1), data, &f);
    }
}

fn for_each_from<D, F>(first: usize, items: usize, grain: usize, data: D, f: &F)
where
    D: Split,
    F: Fn(usize, D) + Sync,
{
    if items <= grain {
        return f(first, data);
    }
    let half = halfway(items, grain);
    let (head, tail) = data.split(half);
    rayon::join(
        || for_each_from(first, half, grain, head, f),
        || for_each_from(first + half, items - half, grain, tail, f),
    );
}

/// Joins the results of `leaf(first item, that leaf's data)` pairwise, in an order that follows
/// from `items` and `grain` alone. `None` when there are no items.
///
/// `data` must hold at least `items` items; a shorter slice panics where it is cut.
pub fn reduce<D, R, F, J>(items: usize, grain: usize, data: D, leaf: F, join: J) -> Option<R>
where
    D: Split,
    R: Send,
    F: Fn(usize, D) -> R + Sync,
    J: Fn(R, R) -> R + Sync,
{
    (items > 0).then(|| reduce_from(0, items, grain.max(1), data, &leaf, &join))
}

fn reduce_from<D, R, F, J>(
    first: usize,
    items: usize,
    grain: usize,
    data: D,
    leaf: &F,
    join: &J,
) -> R
where
    D: Split,
    R: Send,
    F: Fn(usize, D) -> R + Sync,
    J: Fn(R, R) -> R + Sync,
{
    if items <= grain {
        return leaf(first, data);
    }
    let half = halfway(items, grain);
    let (head, tail) = data.split(half);
    let (a, b) = rayon::join(
        || reduce_from(first, half, grain, head, leaf, join),
        || reduce_from(first + half, items - half, grain, tail, leaf, join),
    );
    join(a, b)
}

/// A cut at a leaf's end, near the middle; `items` is more than one leaf.
fn halfway(items: usize, grain: usize) -> usize {
    items.div_ceil(grain) / 2 * grain
}

/// Calls `f` on a thread of the pool, and gives what it gives.
///
/// Work that is started from outside the pool wakes a thread of it and then waits to be woken itself, some 50
/// microseconds each time. A row of small kernels is better run by a thread of the pool: the others stay awake between them.
pub fn on_pool<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| f())
}

/// Threads of the pool that work would run on.
pub fn threads() -> usize {
    rayon::current_num_threads()
}
