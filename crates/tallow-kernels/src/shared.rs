//! An output slice that tasks write disjoint, but interleaved, parts of.

use std::marker::PhantomData;

/// A mutable slice that several threads may write to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedMut<'a> {
    start: *mut f32,
    len: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for an exclusive borrow of floats, and its one way to them is an unsafe
// method whose callers promise not to touch the same element from two threads.
unsafe impl Send for SharedMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedMut<'_> {}

impl<'a> SharedMut<'a> {
    pub(crate) fn new(slice: &'a mut [f32]) -> Self {
        Self {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            slice: PhantomData,
        }
    }

    /// A pointer to element `index`, the first of `len` that lie in the slice.
    ///
    /// # Panics
    /// Where they don't.
    #[inline(always)]
    pub(crate) fn at(self, index: usize, len: usize) -> *mut f32 {
        assert!(index <= self.len && len <= self.len - index);
        // SAFETY: just checked to be inside the slice.
        unsafe { self.start.add(index) }
    }

    /// Elements `index..index + len`.
    ///
    /// # Safety
    /// While the borrow lives, nothing else may use these elements.
    ///
    /// # Panics
    /// Where they don't lie in the slice.
    #[inline(always)]
    pub(crate) unsafe fn slice(self, index: usize, len: usize) -> &'a mut [f32] {
        // SAFETY: inside the slice that is borrowed for `'a`; exclusive as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.at(index, len), len) }
    }
}
