//! Memory for floats that starts on a cache line, and where it is large lies on large pages.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// One cache line, the unit of allocation.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; Line::FLOATS]);

impl Line {
    const FLOATS: usize = 16;
    const ZERO: Self = Self([0.0; Self::FLOATS]);
}

/// Bytes from which memory comes from the system, page by page: those of a large page on most CPUs.
const LARGE: usize = 2 << 20;

/// Floats whose first one starts on a cache line, so that no register's load touches two lines.
///
/// Two megabytes and more are asked of the system itself, on large pages where it has them (Linux, if
/// `/sys/kernel/mm/transparent_hugepage/enabled` isn't `never`): memory for all weights of a network is there after a few
/// dozen page faults instead of many thousands. They are zero without being written to.
///
/// ```
/// let mut buffer = tallow_kernels::buffer::Buffer::new(1000);
/// assert_eq!(buffer.as_ptr() as usize % 64, 0);
/// buffer[7] = 1.0;
/// assert_eq!(buffer.iter().sum::<f32>(), 1.0);
/// ```
#[derive(Default)]
pub struct Buffer {
    memory: Memory,
    len: usize,
}

enum Memory {
    Lines(Vec<Line>),
    Pages(MmapMut),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

impl Buffer {
    /// `len` zeros.
    pub fn new(len: usize) -> Self {
        let pages = len
            .checked_mul(size_of::<f32>())
            .filter(|&bytes| bytes >= LARGE)
            .and_then(pages);
        let memory = match pages {
            Some(pages) => Memory::Pages(pages),
            None => Memory::Lines(vec![Line::ZERO; len.div_ceil(Line::FLOATS)]),
        };
        Self { memory, len }
    }

    /// Floats that it can be [resized](Buffer::resize) to without other memory.
    pub fn capacity(&self) -> usize {
        match &self.memory {
            Memory::Lines(lines) => lines.len() * Line::FLOATS,
            Memory::Pages(pages) => pages.len() / size_of::<f32>(),
        }
    }

    /// Makes it `len` floats of unspecified value.
    pub fn resize(&mut self, len: usize) {
        if len > self.capacity() {
            // Freed before its replacement is made: its contents are of no use.
            drop(std::mem::take(self));
            *self = Self::new(len);
        }
        self.len = len;
    }
}

/// Pages of zeros, or `None` where the system gives none in this way.
fn pages(bytes: usize) -> Option<MmapMut> {
    let pages = MmapMut::map_anon(bytes).ok()?;
    // Advice: whatever comes of it, the memory is the same.
    #[cfg(target_os = "linux")]
    let _ = pages.advise(memmap2::Advice::HugePage);
    Some(pages)
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        let start = match &self.memory {
            Memory::Lines(lines) => lines.as_ptr().cast(),
            Memory::Pages(pages) => pages.as_ptr().cast(),
        };
        // SAFETY: `Line` is `repr(C)` around an array of floats, and pages start on one: initialised bytes in a row, for at
        // least `len` floats, of which any bytes are a value.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        let start = match &mut self.memory {
            Memory::Lines(lines) => lines.as_mut_ptr().cast(),
            Memory::Pages(pages) => pages.as_mut_ptr().cast(),
        };
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.len) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_all_sizes_are_zeros_on_a_line() {
        for len in [0, 1, 15, 16, 17, LARGE / 4 - 1, LARGE / 4, LARGE + 3] {
            let mut buffer = Buffer::new(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.as_ptr().cast::<Line>().is_aligned());
            assert!(buffer.iter().all(|x| *x == 0.0));
            buffer.fill(1.0);
            assert_eq!(buffer.iter().filter(|x| **x == 1.0).count(), len);
            assert!(buffer.capacity() >= len);
            let start = buffer.as_ptr();
            buffer.resize(len / 2);
            assert_eq!((buffer.len(), buffer.as_ptr()), (len / 2, start));
            buffer.resize(len + 100);
            buffer.fill(2.0);
            assert_eq!(buffer.len(), len + 100);
        }
        assert!(Buffer::default().is_empty());
    }
}
