//! How passes walk a matrix of few columns: several rows at a time, as one.
//!
//! A row of 3 or 24 channels is too short for a vector loop. Rows lie one after another, so that a number of them can
//! be taken as one long row, if what belongs to a channel is repeated as often.

use crate::parallel::LEAF;

/// Floats that a pass handles at a time, and that it may keep a copy of in the first-level cache.
pub(super) const TILE: usize = 512;

/// What belongs to channels, repeated.
pub(super) type Buffer = [f32; TILE];

/// A matrix's rows, taken several at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tiling {
    pub(super) channels: usize,
    /// Rows that make up a wide one; 1 where a row is longer than half of [`TILE`].
    pub(super) copies: usize,
}

/// A run of neighbouring elements within one wide row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// Its place among the elements that are walked.
    pub(super) at: usize,
    /// Its place in the wide row.
    pub(super) column: usize,
    /// Its length, at most [`TILE`].
    pub(super) len: usize,
}

impl Tiling {
    pub(super) fn new(channels: usize) -> Self {
        Self {
            channels,
            copies: (TILE / channels).max(1),
        }
    }

    /// Elements of a wide row.
    #[inline(always)]
    pub(super) fn width(&self) -> usize {
        self.channels * self.copies
    }

    /// Rows that a leaf takes: whole wide ones, at least `wide` of them.
    pub(super) fn leaf_rows(&self, wide: usize) -> usize {
        (LEAF / self.width()).max(wide).max(1) * self.copies
    }

    /// A number a channel as a number an element of a wide row.
    #[inline(always)]
    pub(super) fn repeat<'a>(&self, vector: &'a [f32], buffer: &'a mut Buffer) -> &'a [f32] {
        if self.copies == 1 {
            return vector;
        }
        for copy in buffer[..self.width()].chunks_exact_mut(self.channels) {
            copy.copy_from_slice(vector);
        }
        &buffer[..self.width()]
    }

    /// Cuts `len` elements that begin with a row.
    #[inline(always)]
    pub(super) fn pieces(&self, len: usize) -> Pieces {
        Pieces {
            next: Piece {
                at: 0,
                column: 0,
                len: 0,
            },
            width: self.width(),
            total: len,
        }
    }
}

/// See [`Tiling::pieces`].
pub(super) struct Pieces {
    next: Piece,
    width: usize,
    total: usize,
}

impl Iterator for Pieces {
    type Item = Piece;

    #[inline(always)]
    fn next(&mut self) -> Option<Piece> {
        let Piece { at, column, .. } = self.next;
        if at == self.total {
            return None;
        }
        let len = TILE.min(self.width - column).min(self.total - at);
        self.next.at = at + len;
        self.next.column = if column + len == self.width {
            0
        } else {
            column + len
        };
        Some(Piece { at, column, len })
    }
}
