//! Transforms of one tile, vectorised over channels.
//!
//! Each goes down the columns of the tile, then across its rows: the values between lie on the stack, since 36
//! registers are more than a CPU has.

#![allow(
    clippy::needless_range_loop,
    reason = "indices are those of the formulas"
)]

use super::transform::{MAX_EXTENT, Transform};
use crate::registers::Lanes;

/// Most pixels of a tile.
pub(super) const MAX_PIXELS: usize = MAX_EXTENT * MAX_EXTENT;

/// Floats of the widest register.
pub(super) const MAX_LANES: usize = 16;

/// From the pixels of a tile to its points.
///
/// Pointers must be valid for what their fields say.
pub(super) struct ToPoints {
    /// A pointer to `first + channels` floats a pixel, row by row.
    pub(super) pixels: [*const f32; MAX_PIXELS],
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
    /// The tile's first output.
    pub(super) out: *mut f32,
    /// As `out`, or null.
    pub(super) residual: *const f32,
    /// A number a channel, or null.
    pub(super) bias: *const f32,
    pub(super) clamp: [f32; 2],
    /// Floats from one output to that below it, and to that beside it.
    pub(super) strides: [usize; 2],
    /// Rows and columns of outputs that exist.
    pub(super) size: [usize; 2],
}

#[inline(always)]
pub(super) unsafe fn input<L: Lanes, T: Transform>(args: &ToPoints) {
    // SAFETY: as the caller promises.
    unsafe { to_points::<L, Input<T>>(args) }
}

#[inline(always)]
pub(super) unsafe fn gradient<L: Lanes, T: Transform>(args: &ToPoints) {
    // SAFETY: as the caller promises.
    unsafe { to_points::<L, Gradient<T>>(args) }
}

/// A transform from `FROM` values to `TO` in both dimensions.
pub(super) trait Square {
    const FROM: usize;
    const TO: usize;
    unsafe fn apply<L: Lanes>(values: [L::Vector; 6]) -> [L::Vector; 6];
}

macro_rules! square {
    ($name:ident, $from:expr, $to:expr, $apply:ident) => {
        pub(super) struct $name<T>(std::marker::PhantomData<T>);

        impl<T: Transform> Square for $name<T> {
            const FROM: usize = $from;
            const TO: usize = $to;

            #[inline(always)]
            unsafe fn apply<L: Lanes>(values: [L::Vector; 6]) -> [L::Vector; 6] {
                // SAFETY: the caller has the level.
                unsafe { T::$apply::<L>(values) }
            }
        }
    };
}
square!(Input, T::POINTS, T::POINTS, input);
square!(Gradient, T::OUTPUTS, T::POINTS, gradient);
square!(Output, T::POINTS, T::OUTPUTS, output);
square!(Weight, 3, T::POINTS, weight);
square!(WeightGradient, T::POINTS, 3, weight_gradient);

/// Transforms down: the first half of a tile's transform. `load(i * FROM + j)` is the value at row `i`, column `j`.
macro_rules! down {
    ($lanes:ty, $square:ty, $index:ident => $load:expr) => {{
        let mut middle = [[<$lanes>::splat(0.0); 6]; 6];
        for j in 0..<$square>::FROM {
            let mut column = [<$lanes>::splat(0.0); 6];
            for i in 0..<$square>::FROM {
                let $index = i * <$square>::FROM + j;
                column[i] = $load;
            }
            let column = <$square>::apply::<$lanes>(column);
            for i in 0..<$square>::TO {
                middle[i][j] = column[i];
            }
        }
        middle
    }};
}
pub(super) use down;

#[inline(always)]
unsafe fn to_points<L: Lanes, S: Square>(args: &ToPoints) {
    let whole = args.channels - args.channels % L::COUNT;
    // SAFETY: as the caller promises; the last registers read from a buffer that holds all lanes.
    unsafe {
        let mut channel = 0;
        while channel < whole {
            let out = args.out.add(channel);
            point_registers::<L, S>(&args.pixels, args.first + channel, out, args.plane);
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
            point_registers::<L, S>(&pixels, 0, args.out.add(whole), args.plane);
        }
    }
}

/// One register of channels of every pixel of a tile.
#[inline(always)]
unsafe fn point_registers<L: Lanes, S: Square>(
    pixels: &[*const f32; MAX_PIXELS],
    channel: usize,
    out: *mut f32,
    plane: usize,
) {
    // SAFETY: as the caller promises.
    unsafe {
        let middle = down!(L, S, pixel => L::load(pixels[pixel].add(channel)));
        for i in 0..S::TO {
            let row = S::apply::<L>(middle[i]);
            for j in 0..S::TO {
                L::store(out.add((i * S::TO + j) * plane), row[j]);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn output<L: Lanes, T: Transform>(args: &ToOutputs) {
    let whole = args.channels - args.channels % L::COUNT;
    // SAFETY: as the caller promises.
    unsafe {
        let mut channel = 0;
        while channel < whole {
            output_registers::<L, T>(args, channel);
            channel += L::COUNT;
        }
        if whole < args.channels {
            output_rest::<L, T>(args, whole);
        }
    }
}

/// One register of channels of every output of a tile.
#[inline(always)]
unsafe fn output_registers<L: Lanes, T: Transform>(args: &ToOutputs, channel: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        let points = args.points.add(channel);
        let middle = down!(L, Output<T>, point => L::load(points.add(point * args.plane)));
        let [low, high] = args.clamp;
        let bias = if args.bias.is_null() {
            L::splat(0.0)
        } else {
            L::load(args.bias.add(channel))
        };
        for i in 0..T::OUTPUTS {
            if i >= args.size[0] {
                break;
            }
            let row = T::output::<L>(middle[i]);
            for j in 0..T::OUTPUTS {
                if j >= args.size[1] {
                    break;
                }
                let at = i * args.strides[0] + j * args.strides[1] + channel;
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
unsafe fn output_rest<L: Lanes, T: Transform>(args: &ToOutputs, whole: usize) {
    let rest = args.channels - whole;
    let mut out = [[0.0f32; MAX_LANES]; 16];
    let mut residual = [[0.0f32; MAX_LANES]; 16];
    let mut bias = [0.0f32; MAX_LANES];
    // SAFETY: only outputs that exist are touched, each for the channels that exist.
    unsafe {
        if !args.bias.is_null() {
            std::ptr::copy_nonoverlapping(args.bias.add(whole), bias.as_mut_ptr(), rest);
        }
        let position = |index: usize| {
            let (i, j) = (index / T::OUTPUTS, index % T::OUTPUTS);
            let exists = i < args.size[0] && j < args.size[1];
            exists.then_some(i * args.strides[0] + j * args.strides[1] + whole)
        };
        for (index, residual) in residual.iter_mut().enumerate() {
            if let (false, Some(at)) = (args.residual.is_null(), position(index)) {
                let from = args.residual.add(at);
                std::ptr::copy_nonoverlapping(from, residual.as_mut_ptr(), rest);
            }
        }
        let buffered = ToOutputs {
            points: args.points.add(whole),
            plane: args.plane,
            channels: L::COUNT,
            out: out.as_mut_ptr().cast(),
            residual: residual.as_ptr().cast(),
            bias: bias.as_ptr(),
            clamp: args.clamp,
            strides: [T::OUTPUTS * MAX_LANES, MAX_LANES],
            size: args.size,
        };
        output_registers::<L, T>(&buffered, 0);
        for (index, out) in out.iter().enumerate() {
            if let Some(at) = position(index) {
                std::ptr::copy_nonoverlapping(out.as_ptr(), args.out.add(at), rest);
            }
        }
    }
}
