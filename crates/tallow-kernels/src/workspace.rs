//! Scratch memory that is kept between calls, so that kernels allocate nothing once it has grown.
//!
//! A kernel takes buffers while it runs and gives them back when they are dropped; the next
//! kernel finds them again, already mapped and often still in the cache. The workspace never
//! shrinks by itself. What the buffers hold is the kernel's business: contents are left over from
//! earlier use.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::buffer::Buffer;

/// A pool of grow-only buffers of `f32`, each aligned to 64 bytes.
///
/// Any number of threads may share one; each holds the buffers that it took. The pool settles at
/// as many buffers as are ever held at once, each as large as its largest use.
///
/// ```
/// let workspace = tallow_kernels::workspace::Workspace::new();
/// let scratch = workspace.take(1000);
/// assert_eq!(scratch.len(), 1000);
/// drop(scratch); // back in the pool: the next call that needs up to 1000 floats reuses it
/// assert!(workspace.bytes() >= 4000);
/// ```
#[derive(Default)]
pub struct Workspace {
    /// Buffers that nobody holds.
    free: Mutex<Vec<Buffer>>,
}

static GLOBAL: Workspace = Workspace::new();

impl Workspace {
    /// A workspace that holds no memory yet.
    pub const fn new() -> Self {
        Self {
            free: Mutex::new(Vec::new()),
        }
    }

    /// The workspace of the process, for callers that have no plan of their own to keep one in.
    pub fn global() -> &'static Self {
        &GLOBAL
    }

    /// A buffer of `len` floats of unspecified value, given back when dropped.
    ///
    /// Takes the smallest free buffer that is large enough; where none is, the largest one is
    /// replaced by one that is.
    pub fn take(&self, len: usize) -> Scratch<'_> {
        self.take_items(len)
    }

    /// As [`Workspace::take`], for positions.
    pub(crate) fn take_indices(&self, len: usize) -> Scratch<'_, usize> {
        self.take_items(len)
    }

    /// As [`Workspace::take`], for sums in double precision.
    pub(crate) fn take_doubles(&self, len: usize) -> Scratch<'_, f64> {
        self.take_items(len)
    }

    fn take_items<T: Item>(&self, len: usize) -> Scratch<'_, T> {
        let floats = len * size_of::<T>() / size_of::<f32>();
        let mut buffer = self.pick(floats);
        if buffer.len() < floats {
            buffer.resize(floats);
        }
        Scratch {
            workspace: self,
            buffer,
            len,
            item: PhantomData,
        }
    }

    /// Memory held by the buffers that nobody uses at the moment, in bytes.
    pub fn bytes(&self) -> usize {
        let floats: usize = self.lock().iter().map(|buffer| buffer.len()).sum();
        floats * size_of::<f32>()
    }

    /// Gives the memory of all unused buffers back to the system.
    pub fn release(&self) {
        self.lock().clear();
    }

    fn pick(&self, floats: usize) -> Buffer {
        let mut free = self.lock();
        let best = free
            .iter()
            .enumerate()
            .min_by_key(|(_, buffer)| match buffer.len() {
                // Fitting ones first, the smallest leading; then the others, the largest leading.
                len if len >= floats => (false, len),
                len => (true, usize::MAX - len),
            })
            .map(|(index, _)| index);
        best.map_or_else(Buffer::default, |index| free.swap_remove(index))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Buffer>> {
        // A panic elsewhere can't leave a list of buffers half changed.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace")
            .field("free_bytes", &self.bytes())
            .finish()
    }
}

/// What a buffer may be used for: plain numbers, for which any bytes are a value.
///
/// # Safety
/// Any bytes must be a value of the type, whose size is a multiple of that of floats and its alignment at most a cache line.
pub(crate) unsafe trait Item: Copy {}
// SAFETY: any bytes are a float.
unsafe impl Item for f32 {}
// SAFETY: as above.
unsafe impl Item for f64 {}
// SAFETY: any bytes are an integer.
unsafe impl Item for usize {}

/// A buffer held from a [`Workspace`]; a slice that starts on a cache line.
pub struct Scratch<'w, T = f32> {
    workspace: &'w Workspace,
    buffer: Buffer,
    len: usize,
    item: PhantomData<T>,
}

#[allow(private_bounds, reason = "made by `Workspace::take` alone")]
impl<T: Item> Deref for Scratch<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the buffer's floats are initialised bytes in a row that start on a cache line, at least `len` items of them;
        // any bytes are an item.
        unsafe { std::slice::from_raw_parts(self.buffer.as_ptr().cast(), self.len) }
    }
}

#[allow(private_bounds, reason = "made by `Workspace::take` alone")]
impl<T: Item> DerefMut for Scratch<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), self.len) }
    }
}

impl<T> Drop for Scratch<'_, T> {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if !buffer.is_empty() {
            self.workspace.lock().push(buffer);
        }
    }
}

impl<T> fmt::Debug for Scratch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").field("len", &self.len).finish()
    }
}
