//! Transforms of one tile, vectorised over channels.
//!
//! Each goes down the columns of the tile, then across its rows: the values between lie on the stack, since 36 or 81
//! registers are more than a CPU has.

#![allow(
    clippy::needless_range_loop,
    reason = "indices are those of the formulas"
)]

use super::transform::{Gradient, Transform};
use crate::registers::Lanes;
use std::mem::MaybeUninit;

/// Most pixels of a tile that is read.
pub(super) const MAX_PIXELS: usize = 81;

/// Floats of the widest register.
pub(super) const MAX_LANES: usize = 16;

/// From the pixels of a tile to its points.
///
/// Pointers must be valid for what their fields say.
pub(super) struct ToPoints<'a> {
    /// A pointer to `first + channels` floats a pixel, row by row.
    pub(super) pixels: &'a [*const f32; MAX_PIXELS],
    /// The first channel to transform.
    pub(super) first: usize,
    pub(super) channels: usize,
    /// Room for `channels`, rounded up to [`MAX_LANES`], a point.
    pub(super) out: *mut f32,
    /// Floats from one point to the next.
    pub(super) plane: usize,
}

/// From the points of a tile to its outputs, `clamp(output + bias + residual, low, high)`.
///
/// Pointers must be valid for what their fields say.
pub(super) struct ToOutputs {
    /// `channels`, rounded up to [`MAX_LANES`], a point.
    pub(super) points: *const f32,
    /// Floats from one point to the next.
    pub(super) plane: usize,
    pub(super) channels: usize,
    /// The tile's first output that exists.
    pub(super) out: *mut f32,
    /// As `out`, or null.
    pub(super) residual: *const f32,
    /// A number a channel, or null.
    pub(super) bias: *const f32,
    pub(super) clamp: [f32; 2],
    /// Floats from one output to that below it, and to that beside it.
    pub(super) strides: [usize; 2],
    /// The first row and column of outputs that exist.
    pub(super) first: [usize; 2],
    /// The row and column after the last that exist.
    pub(super) end: [usize; 2],
}

impl ToOutputs {
    /// Floats from the first output that exists to another that does.
    #[inline(always)]
    fn at(&self, i: usize, j: usize) -> usize {
        (i - self.first[0]) * self.strides[0] + (j - self.first[1]) * self.strides[1]
    }
}

#[inline(always)]
pub(super) unsafe fn input<L: Lanes, T: Transform<N>, const N: usize>(args: &ToPoints) {
    // SAFETY: as the caller promises.
    unsafe { to_points::<L, Input<T>, N>(args) }
}

#[inline(always)]
pub(super) unsafe fn gradient<L: Lanes, T: Gradient<N>, const N: usize>(args: &ToPoints) {
    // SAFETY: as the caller promises.
    unsafe { to_points::<L, OutputGradient<T>, N>(args) }
}

/// A transform from `FROM` values to `TO` in both dimensions.
pub(super) trait Square<const N: usize> {
    const FROM: usize;
    const TO: usize;
    unsafe fn apply<L: Lanes>(values: [L::Vector; N]) -> [L::Vector; N];
}

macro_rules! square {
    ($name:ident, $bound:ident, $from:expr, $to:expr, $apply:ident) => {
        pub(super) struct $name<T>(std::marker::PhantomData<T>);

        impl<T: $bound<N>, const N: usize> Square<N> for $name<T> {
            const FROM: usize = $from;
            const TO: usize = $to;

            #[inline(always)]
            unsafe fn apply<L: Lanes>(values: [L::Vector; N]) -> [L::Vector; N] {
                // SAFETY: the caller has the level.
                unsafe { T::$apply::<L>(values) }
            }
        }
    };
}
square!(Input, Transform, T::SIZES.inputs, T::SIZES.points, input);
square!(Output, Transform, T::SIZES.points, T::SIZES.outputs, output);
square!(Weight, Transform, 3, T::SIZES.weights, weight);
square!(
    OutputGradient,
    Gradient,
    T::SIZES.outputs,
    T::SIZES.points,
    gradient
);
square!(
    WeightGradient,
    Gradient,
    T::SIZES.weights,
    3,
    weight_gradient
);

/// What a tile's transform has between its halves, row by row; columns from `FROM` on stay empty.
pub(super) struct Middle<V, const N: usize>([[MaybeUninit<V>; N]; N]);

impl<V: Copy, const N: usize> Middle<V, N> {
    /// Empty: to fill 81 registers would take a tenth of the time of a transform.
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self([[const { MaybeUninit::uninit() }; N]; N])
    }

    #[inline(always)]
    pub(super) fn set(&mut self, i: usize, j: usize, value: V) {
        self.0[i][j].write(value);
    }

    /// Transforms a row.
    ///
    /// # Safety
    /// As for [`Square::apply`]; the first `FROM` values of the row have been set.
    #[inline(always)]
    pub(super) unsafe fn across<L: Lanes<Vector = V>, S: Square<N>>(&self, i: usize) -> [V; N] {
        // SAFETY: as the caller promises.
        unsafe {
            let mut row = [L::splat(0.0); N];
            for j in 0..S::FROM {
                row[j] = self.0[i][j].assume_init();
            }
            S::apply::<L>(row)
        }
    }
}

/// Transforms down: the first half of a tile's transform. `load(i * FROM + j)` is the value at row `i`, column `j`.
macro_rules! down {
    ($lanes:ty, $square:ty, $size:ident, $index:ident => $load:expr) => {{
        let mut middle = Middle::<<$lanes as Lanes>::Vector, $size>::new();
        let (from, to) = (
            <$square as Square<$size>>::FROM,
            <$square as Square<$size>>::TO,
        );
        for j in 0..from {
            let mut column = [<$lanes>::splat(0.0); $size];
            for i in 0..from {
                let $index = i * from + j;
                column[i] = $load;
            }
            let column = <$square as Square<$size>>::apply::<$lanes>(column);
            for i in 0..to {
                middle.set(i, j, column[i]);
            }
        }
        middle
    }};
}
pub(super) use down;

#[inline(always)]
unsafe fn to_points<L: Lanes, S: Square<N>, const N: usize>(args: &ToPoints) {
    let whole = args.channels - args.channels % L::COUNT;
    // SAFETY: as the caller promises; the last registers read from a buffer that holds all lanes.
    unsafe {
        let mut channel = 0;
        while channel < whole {
            let out = args.out.add(channel);
            point_registers::<L, S, N>(args.pixels, args.first + channel, out, args.plane);
            channel += L::COUNT;
        }
        if whole < args.channels {
            let mut rest = [[0.0f32; MAX_LANES]; MAX_PIXELS];
            let mut pixels = [std::ptr::null(); MAX_PIXELS];
            for pixel in 0..S::FROM * S::FROM {
                let from = args.pixels[pixel].add(args.first + whole);
                let to = rest[pixel].as_mut_ptr();
                std::ptr::copy_nonoverlapping(from, to, args.channels - whole);
                pixels[pixel] = to.cast_const();
            }
            point_registers::<L, S, N>(&pixels, 0, args.out.add(whole), args.plane);
        }
    }
}

/// One register of channels of every pixel of a tile.
#[inline(always)]
unsafe fn point_registers<L: Lanes, S: Square<N>, const N: usize>(
    pixels: &[*const f32; MAX_PIXELS],
    channel: usize,
    out: *mut f32,
    plane: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let middle = down!(L, S, N, pixel => L::load(pixels[pixel].add(channel)));
        for i in 0..S::TO {
            let row = middle.across::<L, S>(i);
            for j in 0..S::TO {
                L::store(out.add((i * S::TO + j) * plane), row[j]);
            }
        }
    }
}

/// `RAW` sums are stored as they are.
#[inline(always)]
pub(super) unsafe fn output<L: Lanes, T: Transform<N>, const N: usize, const RAW: bool>(
    args: &ToOutputs,
) {
    let whole = args.channels - args.channels % L::COUNT;
    // SAFETY: as the caller promises.
    unsafe {
        let mut channel = 0;
        while channel < whole {
            output_registers::<L, T, N, RAW>(args, channel);
            channel += L::COUNT;
        }
        if whole < args.channels {
            output_rest::<L, T, N, RAW>(args, whole);
        }
    }
}

/// One register of channels of every output of a tile.
#[inline(always)]
unsafe fn output_registers<L: Lanes, T: Transform<N>, const N: usize, const RAW: bool>(
    args: &ToOutputs,
    channel: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let points = args.points.add(channel);
        let middle = down!(L, Output<T>, N, point => L::load(points.add(point * args.plane)));
        let [low, high] = args.clamp;
        let bias = if args.bias.is_null() {
            L::splat(0.0)
        } else {
            L::load(args.bias.add(channel))
        };
        for i in 0..T::SIZES.outputs {
            if i < args.first[0] || i >= args.end[0] {
                continue;
            }
            let row = middle.across::<L, Output<T>>(i);
            for j in 0..T::SIZES.outputs {
                if j < args.first[1] || j >= args.end[1] {
                    continue;
                }
                let at = args.at(i, j) + channel;
                if RAW {
                    L::store(args.out.add(at), row[j]);
                    continue;
                }
                let mut value = L::add(row[j], bias);
                if !args.residual.is_null() {
                    value = L::add(value, L::load(args.residual.add(at)));
                }
                value = L::max(L::splat(low), value);
                value = L::min(L::splat(high), value);
                L::store(args.out.add(at), value);
            }
        }
    }
}

/// The last channels, fewer than a register's, through buffers that hold all lanes.
#[inline(always)]
unsafe fn output_rest<L: Lanes, T: Transform<N>, const N: usize, const RAW: bool>(
    args: &ToOutputs,
    whole: usize,
) {
    let rest = args.channels - whole;
    let mut out = [[[0.0f32; MAX_LANES]; N]; N];
    let mut residual = [[[0.0f32; MAX_LANES]; N]; N];
    let mut bias = [0.0f32; MAX_LANES];
    // SAFETY: only outputs that exist are touched, each for the channels that exist.
    unsafe {
        if !args.bias.is_null() {
            std::ptr::copy_nonoverlapping(args.bias.add(whole), bias.as_mut_ptr(), rest);
        }
        for i in args.first[0]..args.end[0] {
            for j in args.first[1]..args.end[1] {
                if !args.residual.is_null() {
                    let from = args.residual.add(args.at(i, j) + whole);
                    std::ptr::copy_nonoverlapping(from, residual[i][j].as_mut_ptr(), rest);
                }
            }
        }
        let buffered = ToOutputs {
            points: args.points.add(whole),
            plane: args.plane,
            channels: L::COUNT,
            out: out[args.first[0]][args.first[1]..].as_mut_ptr().cast(),
            residual: residual[args.first[0]][args.first[1]..].as_ptr().cast(),
            bias: bias.as_ptr(),
            clamp: args.clamp,
            strides: [N * MAX_LANES, MAX_LANES],
            first: args.first,
            end: args.end,
        };
        output_registers::<L, T, N, RAW>(&buffered, 0);
        for i in args.first[0]..args.end[0] {
            for j in args.first[1]..args.end[1] {
                let to = args.out.add(args.at(i, j) + whole);
                std::ptr::copy_nonoverlapping(out[i][j].as_ptr(), to, rest);
            }
        }
    }
}
