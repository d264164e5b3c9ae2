//! The innermost functions, each compiled for every SIMD level, and the table that picks one.

use super::Tile;
use super::products::{CHUNK, Product, Reduction, product_tile, reduction_tile, tile_rows};
use super::tiles::{self, ToOutputs, ToPoints};
use super::transform::{Four, Transform, Two};
use super::weights::{self, Pack, Unpack};
use crate::registers::Lanes;
use crate::simd::{Level, level};

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

/// One level's transforms for one size of tile.
pub(super) struct TileKernels {
    /// From inputs to points.
    pub(super) input: unsafe fn(&ToPoints),
    /// From gradients of outputs to points.
    pub(super) gradient: unsafe fn(&ToPoints),
    /// From points to outputs.
    pub(super) output: unsafe fn(&ToOutputs),
    /// From filters to points.
    pub(super) pack: unsafe fn(&Pack),
    /// From points to gradients of filters.
    pub(super) unpack: unsafe fn(&Unpack),
}

impl Kernels {
    /// The kernels of the level in force.
    pub(super) fn current() -> &'static Self {
        match level() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 | Level::Avx512Bf16 => &avx512::KERNELS,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => &avx2::KERNELS,
            _ => &portable::KERNELS,
        }
    }

    /// The transforms for a size of tile.
    pub(super) fn tile(&self, tile: Tile) -> &TileKernels {
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
                two: tile::<Two>(),
                four: tile::<Four>(),
            };

            const fn tile<T: Transform>() -> TileKernels {
                TileKernels {
                    input: input::<T>,
                    gradient: gradient::<T>,
                    output: output::<T>,
                    pack: pack::<T>,
                    unpack: unpack::<T>,
                }
            }

            $(#[$features])?
            unsafe fn input<T: Transform>(args: &ToPoints) {
                // SAFETY: as the caller promises.
                unsafe { tiles::input::<L, T>(args) }
            }

            $(#[$features])?
            unsafe fn gradient<T: Transform>(args: &ToPoints) {
                // SAFETY: as the caller promises.
                unsafe { tiles::gradient::<L, T>(args) }
            }

            $(#[$features])?
            unsafe fn output<T: Transform>(args: &ToOutputs) {
                // SAFETY: as the caller promises.
                unsafe { tiles::output::<L, T>(args) }
            }

            $(#[$features])?
            unsafe fn pack<T: Transform>(args: &Pack) {
                // SAFETY: as the caller promises.
                unsafe { weights::pack::<L, T>(args, COLUMNS) }
            }

            $(#[$features])?
            unsafe fn unpack<T: Transform>(args: &Unpack) {
                // SAFETY: as the caller promises.
                unsafe { weights::unpack::<L, T>(args) }
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
