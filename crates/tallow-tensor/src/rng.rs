//! Random numbers as functions of a key, so that a run can be repeated and resumed to the bit.
//!
//! There is no shared generator. Who needs random numbers names what they are for: [`key`] mixes the seed, the
//! [`Purpose`], the epoch or step, and an index into one number; a [`Stream`] or a kernel then draws from that
//! key alone. Neither the order of construction nor the number of threads or workers can change a result.
//!
//! ```
//! use tallow_tensor::rng::{self, Purpose, Stream};
//!
//! let epoch = 3;
//! let order = Stream::new(rng::key(42, Purpose::Shuffle, epoch, 0)).permutation(5);
//! let again = Stream::new(rng::key(42, Purpose::Shuffle, epoch, 0)).permutation(5);
//! assert_eq!(order, again);
//! ```
//!
//! Dropout is the one operation that draws without being given a key. It takes the next number of a counter that
//! belongs to the thread, [`next_draw`], and the trainer sets that counter to zero with [`begin_step`]; the mask is thus
//! a function of (seed, step, place in the model).

use std::cell::Cell;

use serde::{Deserialize, Serialize};
use tallow_kernels::rng::philox4x32;

/// The seed that is used where none is given.
pub const DEFAULT_SEED: u64 = 42;

/// What random numbers are for. Two purposes never share numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Initial values of parameters; the index is a hash of the name.
    Init = 1,
    /// The order of samples; one key an epoch.
    Shuffle = 2,
    /// Random transforms; the index is the sample.
    Augment = 3,
    /// Dropout masks; the index is the draw.
    Dropout = 4,
    /// Stochastic depth; the index is the draw.
    DropPath = 5,
    /// Splits of a data set into parts.
    Split = 6,
    /// Made-up data for tests, benches and checks.
    Synthetic = 7,
}

/// Mixes a seed, a purpose, an epoch or step, and an index into one key.
///
/// Two rounds of Philox4x32-10 (Salmon et al., 2011), so that near arguments give unrelated keys.
pub fn key(seed: u64, purpose: Purpose, epoch_or_step: u64, index: u64) -> u64 {
    let outer = philox4x32(
        [
            low(epoch_or_step),
            high(epoch_or_step),
            purpose as u32,
            0x7461_6c6c,
        ],
        [low(seed), high(seed)],
    );
    let inner = philox4x32(
        [low(index), high(index), outer[2], outer[3]],
        [outer[0], outer[1]],
    );
    join(inner[0], inner[1])
}

/// A key of [`Purpose::Init`] for a parameter's name: the 64-bit FNV-1a hash of the name is the index.
pub fn init_key(seed: u64, name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    key(seed, Purpose::Init, 0, hash)
}

fn low(value: u64) -> u32 {
    value as u32
}

fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

fn join(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// The thread's place in its sequence of dropout draws. Saved in checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The seed.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// How many draws the step has made.
    pub draws: u64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            seed: DEFAULT_SEED,
            step: 0,
            draws: 0,
        }
    }
}

thread_local! {
    static STATE: Cell<State> = const {
        Cell::new(State { seed: DEFAULT_SEED, step: 0, draws: 0 })
    };
}

/// Sets the thread's seed, and its step and draw counter to zero.
pub fn manual_seed(seed: u64) {
    begin_step(seed, 0);
}

/// Starts a training step: sets seed and step, and the draw counter to zero.
pub fn begin_step(seed: u64, step: u64) {
    restore(State {
        seed,
        step,
        draws: 0,
    });
}

/// Counts one draw and gives its number within the step, from 0. [`draw_key`] makes it a key.
pub fn next_draw() -> u64 {
    let state = STATE.get();
    STATE.set(State {
        draws: state.draws.wrapping_add(1),
        ..state
    });
    state.draws
}

/// The key of draw number `draw` of the thread's present step.
pub fn draw_key(purpose: Purpose, draw: u64) -> u64 {
    let state = STATE.get();
    key(state.seed, purpose, state.step, draw)
}

/// The thread's seed, step and draw counter.
pub fn state() -> State {
    STATE.get()
}

/// Puts back what [`state`] gave.
pub fn restore(state: State) {
    STATE.set(state);
}

/// Random numbers from one key, in order. Cheap to make, readable and seekable.
///
/// ```
/// use tallow_tensor::rng::Stream;
///
/// let mut stream = Stream::new(7);
/// let _ = stream.uniform();
/// let mut resumed = Stream::at(7, stream.position());
/// assert_eq!(stream.next_u32(), resumed.next_u32());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    key: u64,
    position: u64,
    block: [u32; 4],
}

impl Stream {
    /// The stream of a key, from its start.
    pub fn new(key: u64) -> Self {
        Self::at(key, 0)
    }

    /// The stream of a key, `position` 32-bit words after its start.
    pub fn at(key: u64, position: u64) -> Self {
        Self {
            key,
            position,
            block: words(key, position / 4),
        }
    }

    /// How many 32-bit words have been drawn.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        let place = (self.position % 4) as usize;
        if place == 0 {
            self.block = words(self.key, self.position / 4);
        }
        self.position = self.position.wrapping_add(1);
        self.block[place]
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let low = self.next_u32();
        join(low, self.next_u32())
    }

    /// A number of `[0, 1)`, on a grid of 2⁻⁵³.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (-53f64).exp2()
    }

    /// A number of `[low, high)`.
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A standard normal number (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        // 1 - u is never zero, so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// An integer of `0..bound`, each equally likely; 0 for a bound of 0 (Lemire, 2019).
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // Products whose low half falls under this threshold would favour some results.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let product = u128::from(self.next_u64()) * u128::from(bound);
            if product as u64 >= threshold {
                return (product >> 64) as u64;
            }
        }
    }

    /// `true` with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// Puts a slice in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// The numbers `0..n` in random order.
    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        self.shuffle(&mut order);
        order
    }
}

/// Four words of a key's stream.
fn words(key: u64, block: u64) -> [u32; 4] {
    philox4x32([low(block), high(block), 0, 0], [low(key), high(key)])
}
