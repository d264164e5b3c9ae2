//! What a kernel body may ask of the instruction set that it is being compiled for.
//!
//! Maps are plain loops, which the compiler vectorises by itself. It doesn't vectorise sums and
//! maxima, since it may not reorder them; for those a body works in [`LANES`] lanes, the same
//! number at every level, so that a sum is the same number everywhere.

/// Lanes of [`Isa::Floats`] and [`Isa::Sums`].
pub(crate) const LANES: usize = 16;

/// One instruction set. Only to be used as the parameter of a body that `dispatch!` compiles with
/// that set's target features: its functions are inlined into it.
pub(crate) trait Isa {
    /// Whether a fused multiply-add is one instruction.
    const FMA: bool;
    /// [`LANES`] `f32`.
    type Floats: Copy;
    /// [`LANES`] `f64`.
    type Sums: Copy;

    /// `a * b + c`, rounded once where the level has FMA and twice where it has not.
    #[inline(always)]
    fn fma(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA {
            a.mul_add(b, c)
        } else {
            a * b + c
        }
    }

    /// The elements as they lie.
    fn load(x: &[f32; LANES]) -> Self::Floats;
    /// Fewer than [`LANES`] elements, then zeros.
    fn load_rest(x: &[f32]) -> Self::Floats;
    /// `value` in every lane.
    fn splat(value: f32) -> Self::Floats;
    /// The lanes, first to last.
    fn floats(x: Self::Floats) -> [f32; LANES];
    /// Lane by lane.
    fn sub(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Lane by lane.
    fn add(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Lane by lane.
    fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// Lane by lane.
    fn div(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a > b ? a : b`, lane by lane: a NaN in `a` yields `b`.
    fn max(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a < b ? a : b`, lane by lane: a NaN in `a` yields `b`.
    fn min(a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// The floats nearest to whole numbers of 32 bits, whose bits `x` holds.
    fn from_sums(x: Self::Floats) -> Self::Floats;
    /// Whole numbers of 16 bits as floats.
    fn from_halves(x: &[i16; LANES]) -> Self::Floats;
    /// The nearest whole numbers, of two the even one, of floats that lie within 16 bits.
    fn to_halves(x: Self::Floats) -> [i16; LANES];

    /// `to[column][row] = from[row][column]` for 8 rows and columns.
    ///
    /// # Safety
    /// 8 rows of 8 floats, a stride apart, must be valid to read from `from` on and to write from `to` on, apart from
    /// each other.
    #[inline(always)]
    unsafe fn transpose_8x8(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..8 {
            for column in 0..8 {
                // SAFETY: as the caller promises.
                unsafe {
                    *to.add(column * to_stride + row) = *from.add(row * from_stride + column)
                };
            }
        }
    }

    /// Nothing summed yet.
    fn zero() -> Self::Sums;
    /// `sums + x`, lane by lane, in `f64`.
    fn accumulate(sums: Self::Sums, x: Self::Floats) -> Self::Sums;
    /// `sums + a * b`, lane by lane, in `f64`, in which the product of two `f32` is exact.
    fn accumulate_product(sums: Self::Sums, a: Self::Floats, b: Self::Floats) -> Self::Sums;
    /// The lanes, first to last.
    fn sums(sums: Self::Sums) -> [f64; LANES];
}

/// [`Level::Portable`](super::Level::Portable). Never fuses, so that its results are the same on
/// every CPU; random numbers use it at all levels.
pub(crate) struct Portable;

#[inline(always)]
fn zip<T: Copy, U: Copy, R>(a: [T; LANES], b: [U; LANES], f: impl Fn(T, U) -> R) -> [R; LANES] {
    std::array::from_fn(|lane| f(a[lane], b[lane]))
}

impl Isa for Portable {
    const FMA: bool = false;
    type Floats = [f32; LANES];
    type Sums = [f64; LANES];

    #[inline(always)]
    fn load(x: &[f32; LANES]) -> [f32; LANES] {
        *x
    }

    #[inline(always)]
    fn load_rest(x: &[f32]) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        for (lane, &x) in lanes.iter_mut().zip(x) {
            *lane = x;
        }
        lanes
    }

    #[inline(always)]
    fn splat(value: f32) -> [f32; LANES] {
        [value; LANES]
    }

    #[inline(always)]
    fn floats(x: [f32; LANES]) -> [f32; LANES] {
        x
    }

    #[inline(always)]
    fn sub(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn add(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn mul(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn max(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn from_sums(x: [f32; LANES]) -> [f32; LANES] {
        x.map(|x| x.to_bits().cast_signed() as f32)
    }

    #[inline(always)]
    fn from_halves(x: &[i16; LANES]) -> [f32; LANES] {
        x.map(f32::from)
    }

    #[inline(always)]
    fn to_halves(x: [f32; LANES]) -> [i16; LANES] {
        x.map(|x| x.round_ties_even() as i16)
    }

    #[inline(always)]
    fn zero() -> [f64; LANES] {
        [0.0; LANES]
    }

    #[inline(always)]
    fn accumulate(sums: [f64; LANES], x: [f32; LANES]) -> [f64; LANES] {
        zip(sums, x, |sum, x| sum + f64::from(x))
    }

    #[inline(always)]
    fn accumulate_product(sums: [f64; LANES], a: [f32; LANES], b: [f32; LANES]) -> [f64; LANES] {
        let products = zip(a, b, |a, b| f64::from(a) * f64::from(b));
        zip(sums, products, |sum, product| sum + product)
    }

    #[inline(always)]
    fn sums(sums: [f64; LANES]) -> [f64; LANES] {
        sums
    }
}
