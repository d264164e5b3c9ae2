//! Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", 2011).
//!
//! Nothing here has a state. An element's value follows from a key and the element's number alone,
//! so that a fill can be cut anywhere, run on any number of threads, and continued later. No
//! operation is fused: the numbers are the same at every SIMD level, on every CPU.
//!
//! What a key means (seed, purpose, epoch) is for the callers to say.

use crate::math;
use crate::parallel::{LEAF, for_each};
use crate::simd::{Portable, dispatch};

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const WEYL: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 10;

/// Four random words for a counter and a key.
///
/// ```
/// let words = tallow_kernels::rng::philox4x32([0; 4], [0; 2]);
/// assert_eq!(words, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
/// ```
#[inline(always)]
pub fn philox4x32(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..ROUNDS {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [
            (b >> 32) as u32 ^ c[1] ^ k[0],
            b as u32,
            (a >> 32) as u32 ^ c[3] ^ k[1],
            a as u32,
        ];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// What a stream of words is used for: streams of one key but of different use never meet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stream {
    Uniform = 0,
    Normal = 1,
    Mask = 2,
}

/// Words a block.
pub(crate) const WORDS: usize = 4;

/// Block number `block` of a stream.
#[inline(always)]
pub(crate) fn words(key: u64, stream: Stream, block: u64) -> [u32; WORDS] {
    let counter = [block as u32, (block >> 32) as u32, stream as u32, 0];
    philox4x32(counter, [key as u32, (key >> 32) as u32])
}

/// Fills `y` with numbers spread evenly over `low..high`, of 24 random bits each. Element `i`
/// depends on `(key, offset + i)` alone.
///
/// All are `low` where `high` isn't above it.
pub fn fill_uniform(key: u64, offset: u64, low: f32, high: f32, y: &mut [f32]) {
    let curve = Uniform { low, high };
    for_each(y.len(), LEAF, y, |first, y| {
        fill_leaf(
            key,
            Stream::Uniform,
            offset.wrapping_add(first as u64),
            &curve,
            y,
        );
    });
}

/// Fills `y` with normally distributed numbers (Box and Muller 1958). Element `i` depends on
/// `(key, offset + i)` alone, and lies within 5.8 standard deviations of the mean.
pub fn fill_normal(key: u64, offset: u64, mean: f32, std: f32, y: &mut [f32]) {
    let curve = Normal { mean, std };
    for_each(y.len(), LEAF, y, |first, y| {
        fill_leaf(
            key,
            Stream::Normal,
            offset.wrapping_add(first as u64),
            &curve,
            y,
        );
    });
}

/// Makes four elements of the four words of a block.
trait Distribution {
    fn block(&self, words: [u32; WORDS]) -> [f32; WORDS];
}

struct Uniform {
    low: f32,
    high: f32,
}

impl Distribution for Uniform {
    #[inline(always)]
    fn block(&self, words: [u32; WORDS]) -> [f32; WORDS] {
        words.map(|word| {
            let y = self.low + (self.high - self.low) * unit(word >> 8);
            // Rounding may reach the end of the range, which is not part of it.
            if y < self.high { y } else { self.low }
        })
    }
}

struct Normal {
    mean: f32,
    std: f32,
}

impl Distribution for Normal {
    #[inline(always)]
    fn block(&self, words: [u32; WORDS]) -> [f32; WORDS] {
        let pair = |radius: u32, angle: u32| {
            let radius = (-2.0 * math::ln::<Portable>(unit((radius >> 8) + 1))).sqrt();
            let (sin, cos) = math::sin_cos_turns::<Portable>(unit(angle >> 8));
            [
                self.mean + self.std * (radius * cos),
                self.mean + self.std * (radius * sin),
            ]
        };
        let ([a, b], [c, d]) = (pair(words[0], words[1]), pair(words[2], words[3]));
        [a, b, c, d]
    }
}

/// `bits / 2^24`, exactly.
#[inline(always)]
fn unit(bits: u32) -> f32 {
    bits as i32 as f32 * (1.0 / (1u32 << 24) as f32)
}

dispatch! {
    /// Fills `y`, whose first element is number `first` of the stream.
    fn fill_leaf<I, D: Distribution>(
        key: u64, stream: Stream, first: u64, distribution: &D, y: &mut [f32]
    ) {
        let within = (first % WORDS as u64) as usize;
        let (head, y) = y.split_at_mut(((WORDS - within) % WORDS).min(y.len()));
        if !head.is_empty() {
            let block = distribution.block(words(key, stream, first / WORDS as u64));
            head.copy_from_slice(&block[within..within + head.len()]);
        }
        let next = first.wrapping_add(head.len() as u64) / WORDS as u64;
        let (blocks, tail) = y.as_chunks_mut::<WORDS>();
        let count = blocks.len() as u64;
        for (i, y) in blocks.iter_mut().enumerate() {
            *y = distribution.block(words(key, stream, next.wrapping_add(i as u64)));
        }
        if !tail.is_empty() {
            let block = distribution.block(words(key, stream, next.wrapping_add(count)));
            tail.copy_from_slice(&block[..tail.len()]);
        }
    }
}
