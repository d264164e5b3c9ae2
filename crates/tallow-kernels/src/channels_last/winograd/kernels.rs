//! The innermost functions, each compiled for every SIMD level, and the table that picks one.

use super::products::{CHUNK, Product, Reduction, product_tile, reduction_tile, tile_rows};
use super::strided::{StridedFour, StridedTwo, TransposedFour, TransposedTwo};
use super::tiles::{self, ToOutputs, ToPoints};
use super::transform::{Four, Gradient, Integers, Sizes, Transform, Two};
use super::weights::{self, Pack, Unpack};
use super::{Direction, Tile};
use crate::conv::Conv2dGeometry;
use crate::registers::Lanes;
use crate::simd::by_level;
#[cfg(target_arch = "x86_64")]
use crate::simd::has_vnni;

/// One level's kernels.
///
/// The functions demand that the CPU has the level, which [`Kernels::current`] sees to.
pub(super) struct Kernels {
    /// Columns of a panel.
    pub(super) columns: usize,
    pub(super) product: unsafe fn(&Product),
    pub(super) reduction: unsafe fn(&Reduction),
    two: TileKernels,
    four: TileKernels,
}

/// One level's kernels for pairs of 16-bit whole numbers, with stride 1 and tiles of two.
pub(super) struct IntegerKernels {
    /// Columns of a panel.
    pub(super) columns: usize,
    pub(super) product: unsafe fn(&Product),
    /// Of pairs in, and 32-bit sums out, which are stored as they are.
    pub(super) correlate: Correlate,
}

/// One level's algorithms for one size of tile.
struct TileKernels {
    stride_one: Correlate,
    stride_two: Correlate,
    /// The data gradient of stride 2; that of stride 1 is a correlation with stride 1.
    transposed: Correlate,
    gradients: [WeightGradients; 2],
}

/// An algorithm for correlations.
pub(super) struct Correlate {
    pub(super) sizes: Sizes,
    /// From inputs to points.
    pub(super) input: unsafe fn(&ToPoints),
    /// From points to outputs.
    pub(super) output: unsafe fn(&ToOutputs),
    /// From filters to points.
    pub(super) pack: unsafe fn(&Pack),
}

/// An algorithm for gradients of weights.
pub(super) struct WeightGradients {
    pub(super) sizes: Sizes,
    /// From inputs to points.
    pub(super) input: unsafe fn(&ToPoints),
    /// From gradients of outputs to points.
    pub(super) gradient: unsafe fn(&ToPoints),
    /// From points to gradients of filters.
    pub(super) unpack: unsafe fn(&Unpack),
}

impl Kernels {
    /// The kernels of the level in force.
    pub(super) fn current() -> &'static Self {
        by_level!(avx512: &avx512::KERNELS, avx2: &avx2::KERNELS, portable: &portable::KERNELS)
    }

    /// The product and the algorithm for whole numbers.
    pub(super) fn integers() -> &'static IntegerKernels {
        by_level!(
            avx512: if has_vnni() { &avx512_vnni::KERNELS } else { &avx512_integers::KERNELS },
            avx2: &avx2_integers::KERNELS,
            portable: &portable_integers::KERNELS,
        )
    }

    /// The algorithm for a direction.
    pub(super) fn correlate(
        &self,
        geometry: &Conv2dGeometry,
        direction: Direction,
        tile: Tile,
    ) -> &Correlate {
        let tile = self.tile(tile);
        match direction {
            _ if geometry.stride == [1, 1] => &tile.stride_one,
            Direction::Forward => &tile.stride_two,
            Direction::BackwardInput => &tile.transposed,
        }
    }

    /// The algorithm for the gradient of weights.
    pub(super) fn weight_gradients(
        &self,
        geometry: &Conv2dGeometry,
        tile: Tile,
    ) -> &WeightGradients {
        let [one, two] = &self.tile(tile).gradients;
        if geometry.stride == [1, 1] { one } else { two }
    }

    fn tile(&self, tile: Tile) -> &TileKernels {
        match tile {
            Tile::Two => &self.two,
            Tile::Four => &self.four,
        }
    }
}

/// Compiles the kernels for one level, with a register tile of `rows` by `vectors`.
macro_rules! compile {
    ($module:ident, $lanes:ident, rows: [$($row:literal)+], vectors: $vectors:literal, $(#[$features:meta])?) => {
        mod $module {
            use super::*;
            use crate::registers::$lanes as L;

            const ROWS: usize = [$($row),+].len();
            const COLUMNS: usize = $vectors * <L as Lanes>::COUNT;

            pub(super) static KERNELS: Kernels = Kernels {
                columns: COLUMNS,
                product,
                reduction,
                two: TileKernels {
                    stride_one: correlate::<Two, 4>(),
                    stride_two: correlate::<StridedTwo, 5>(),
                    transposed: correlate::<TransposedTwo, 5>(),
                    gradients: [gradients::<Two, 4>(), gradients::<StridedTwo, 5>()],
                },
                four: TileKernels {
                    stride_one: correlate::<Four, 6>(),
                    stride_two: correlate::<StridedFour, 9>(),
                    transposed: correlate::<TransposedFour, 9>(),
                    gradients: [gradients::<Four, 6>(), gradients::<StridedFour, 9>()],
                },
            };

            const fn correlate<T: Transform<N>, const N: usize>() -> Correlate {
                Correlate {
                    sizes: T::SIZES,
                    input: input::<T, N>,
                    output: output::<T, N>,
                    pack: pack::<T, N>,
                }
            }

            const fn gradients<T: Gradient<N>, const N: usize>() -> WeightGradients {
                WeightGradients {
                    sizes: T::SIZES,
                    input: input::<T, N>,
                    gradient: gradient::<T, N>,
                    unpack: unpack::<T, N>,
                }
            }

            $(#[$features])?
            unsafe fn input<T: Transform<N>, const N: usize>(args: &ToPoints) {
                // SAFETY: as the caller promises.
                unsafe { tiles::input::<L, T, N>(args) }
            }

            $(#[$features])?
            unsafe fn gradient<T: Gradient<N>, const N: usize>(args: &ToPoints) {
                // SAFETY: as the caller promises.
                unsafe { tiles::gradient::<L, T, N>(args) }
            }

            $(#[$features])?
            unsafe fn output<T: Transform<N>, const N: usize>(args: &ToOutputs) {
                // SAFETY: as the caller promises.
                unsafe { tiles::output::<L, T, N, false>(args) }
            }

            $(#[$features])?
            unsafe fn pack<T: Transform<N>, const N: usize>(args: &Pack) {
                // SAFETY: as the caller promises.
                unsafe { weights::pack::<L, T, N>(args, COLUMNS) }
            }

            $(#[$features])?
            unsafe fn unpack<T: Gradient<N>, const N: usize>(args: &Unpack) {
                // SAFETY: as the caller promises.
                unsafe { weights::unpack::<L, T, N>(args) }
            }

            $(#[$features])?
            unsafe fn product(args: &Product) {
                for first in (0..args.depth).step_by(CHUNK) {
                    let depth = CHUNK.min(args.depth - first);
                    for panel in 0..args.panels {
                        let mut row = 0;
                        while row < args.rows {
                            let rows = tile_rows(args.rows - row, ROWS);
                            let (at, terms) = ((row, panel), (first, depth));
                            // SAFETY: as the caller promises.
                            unsafe {
                                match rows {
                                    $($row => product_tile::<L, $row, $vectors>(args, at, terms),)+
                                    _ => unreachable!("a tile has at most {ROWS} rows"),
                                }
                            }
                            row += rows;
                        }
                    }
                }
            }

            $(#[$features])?
            unsafe fn reduction(args: &Reduction) {
                let mut row = 0;
                while row < args.rows {
                    let rows = tile_rows(args.rows - row, ROWS);
                    // SAFETY: as the caller promises.
                    unsafe {
                        match rows {
                            $($row => reduction_tile::<L, $row, $vectors>(args, row),)+
                            _ => unreachable!("a tile has at most {ROWS} rows"),
                        }
                    }
                    row += rows;
                }
            }
        }
    };
}

compile!(portable, Portable, rows: [1 2 3 4], vectors: 1,);

#[cfg(target_arch = "x86_64")]
compile!(
    avx2, Avx2, rows: [1 2 3 4 5 6], vectors: 2, #[target_feature(enable = "avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile!(
    avx512, Avx512, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
);

/// Compiles the kernels for whole numbers for one level: `pairs` are multiplied, `halves` added.
macro_rules! compile_integers {
    ($module:ident, $pairs:ident, $halves:ident, rows: [$($row:literal)+], vectors: $vectors:literal, $(#[$features:meta])?) => {
        mod $module {
            use super::*;
            use crate::registers::{$halves as Halves, $pairs as Pairs};

            const ROWS: usize = [$($row),+].len();
            const COLUMNS: usize = $vectors * <Pairs as Lanes>::COUNT;

            pub(super) static KERNELS: IntegerKernels = IntegerKernels {
                columns: COLUMNS,
                product,
                correlate: Correlate {
                    sizes: <Integers as Transform<4>>::SIZES,
                    input,
                    output,
                    pack,
                },
            };

            $(#[$features])?
            unsafe fn input(args: &ToPoints) {
                // SAFETY: as the caller promises.
                unsafe { tiles::input::<Halves, Integers, 4>(args) }
            }

            $(#[$features])?
            unsafe fn output(args: &ToOutputs) {
                // SAFETY: as the caller promises.
                unsafe { tiles::output::<Pairs, Integers, 4, true>(args) }
            }

            $(#[$features])?
            unsafe fn pack(args: &Pack) {
                // SAFETY: as the caller promises.
                unsafe { weights::pack::<Halves, Integers, 4>(args, COLUMNS) }
            }

            $(#[$features])?
            unsafe fn product(args: &Product) {
                for first in (0..args.depth).step_by(CHUNK) {
                    let depth = CHUNK.min(args.depth - first);
                    for panel in 0..args.panels {
                        let mut row = 0;
                        while row < args.rows {
                            let rows = tile_rows(args.rows - row, ROWS);
                            let (at, terms) = ((row, panel), (first, depth));
                            // SAFETY: as the caller promises.
                            unsafe {
                                match rows {
                                    $($row => product_tile::<Pairs, $row, $vectors>(args, at, terms),)+
                                    _ => unreachable!("a tile has at most {ROWS} rows"),
                                }
                            }
                            row += rows;
                        }
                    }
                }
            }

        }
    };
}

compile_integers!(
    portable_integers, PortablePairsOfIntegers, PortableHalves, rows: [1 2 3 4], vectors: 1,
);

#[cfg(target_arch = "x86_64")]
compile_integers!(
    avx2_integers, Avx2Pairs, Avx2Halves, rows: [1 2 3 4 5 6], vectors: 2,
    #[target_feature(enable = "avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile_integers!(
    avx512_integers, Avx512Pairs, Avx512Halves, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
);

#[cfg(target_arch = "x86_64")]
compile_integers!(
    avx512_vnni, Avx512Vnni, Avx512Halves, rows: [1 2 3 4 5 6], vectors: 4,
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")]
);
