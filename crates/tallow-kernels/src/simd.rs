//! Which vector instructions to use: found out once at run time, capped by `TALLOW_SIMD`.
//!
//! One binary holds every kernel three times: for any CPU, for AVX2 with FMA, and for AVX-512; the products of
//! bfloat16 operands a fourth time, for AVX-512's instructions on them.
//! Kernels are written once, as plain loops that the compiler vectorises; the `dispatch!` macro
//! compiles the loop under each set of target features and picks one a call.
//!
//! # What stays the same between levels
//!
//! Never does a result depend on the number of threads. Between levels it may: [`Level::Avx2`] and
//! [`Level::Avx512`] round a product and the sum it goes into once (FMA), [`Level::Portable`]
//! rounds twice. The memory-bound kernels of this crate add in sixteen fixed partial sums at
//! every level, so for them AVX2 and AVX-512 agree to the bit; matrix products and convolutions
//! choose their blocking by level and may differ in the last bits. [`Level::Avx512Bf16`] is [`Level::Avx512`] to the
//! bit, except for products that are asked for in bfloat16.

mod isa;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
pub(crate) use isa::{Isa, LANES, Portable};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

/// Whether this CPU has AVX-512 VNNI: sums of products of pairs of 16-bit numbers in one instruction.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_vnni() -> bool {
    std::arch::is_x86_feature_detected!("avx512vnni")
}

/// A set of vector instructions, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// What every CPU of the target has (SSE2 on x86-64, NEON on aarch64).
    Portable,
    /// AVX2 and FMA: 8 floats a register.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: 16 floats a register.
    Avx512,
    /// As [`Level::Avx512`], and AVX-512 BF16: dot products of pairs of [`bfloat16`](crate::bf16).
    Avx512Bf16,
}

impl Level {
    /// The best level of this CPU, whatever `TALLOW_SIMD` says.
    pub fn detected() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if avx512 && is_x86_feature_detected!("avx512bf16") {
                return Self::Avx512Bf16;
            }
            if avx512 {
                return Self::Avx512;
            }
            if avx2 {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// Every level that this CPU can run, [`Level::Portable`] first.
    pub fn available() -> impl Iterator<Item = Self> {
        let best = Self::detected();
        [Self::Portable, Self::Avx2, Self::Avx512, Self::Avx512Bf16]
            .into_iter()
            .filter(move |&level| level <= best)
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            3 => Self::Avx512Bf16,
            2 => Self::Avx512,
            1 => Self::Avx2,
            _ => Self::Portable,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Bf16 => "avx512bf16",
        })
    }
}

impl FromStr for Level {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "portable" => Ok(Self::Portable),
            "avx2" => Ok(Self::Avx2),
            "avx512" => Ok(Self::Avx512),
            "avx512bf16" => Ok(Self::Avx512Bf16),
            _ => Err(Error::UnknownLevel {
                found: name.to_owned(),
            }),
        }
    }
}

/// No override set.
const NONE: u8 = u8::MAX;
static OVERRIDE: AtomicU8 = AtomicU8::new(NONE);
static OVERRIDING: Mutex<()> = Mutex::new(());
static DEFAULT: OnceLock<Level> = OnceLock::new();

/// The cap that `TALLOW_SIMD` sets, if it is set.
///
/// # Errors
/// [`Error::UnknownLevel`] where the variable holds another word than `portable`, `avx2`,
/// `avx512` or `avx512bf16`. [`level`] ignores such a word; a program that wants to report it asks here.
pub fn environment_cap() -> Result<Option<Level>> {
    std::env::var_os("TALLOW_SIMD")
        .map(|name| name.to_string_lossy().parse())
        .transpose()
}

/// The level that kernels run at: the CPU's best, at most what `TALLOW_SIMD` names, unless
/// [`with_level`] overrides it.
pub fn level() -> Level {
    match OVERRIDE.load(Ordering::Relaxed) {
        NONE => *DEFAULT.get_or_init(|| {
            let best = Level::detected();
            environment_cap()
                .ok()
                .flatten()
                .map_or(best, |cap| cap.min(best))
        }),
        byte => Level::from_byte(byte),
    }
}

/// Runs `f` with every kernel of the process at `level` (or at the CPU's best, if that is less).
///
/// For tests and benches. The override holds for all threads, so that work which rayon hands to
/// its pool obeys it; calls from several threads run one after another. Don't nest calls: the
/// inner one would wait for the outer one.
pub fn with_level<R>(level: Level, f: impl FnOnce() -> R) -> R {
    struct Restore;
    impl Drop for Restore {
        fn drop(&mut self) {
            OVERRIDE.store(NONE, Ordering::Relaxed);
        }
    }
    let _turn = OVERRIDING.lock().unwrap_or_else(PoisonError::into_inner);
    OVERRIDE.store(level.min(Level::detected()) as u8, Ordering::Relaxed);
    let _restore = Restore;
    f()
}

/// One of three values, by [`level`]: for AVX-512 with or without BF16, for AVX2, for any CPU.
macro_rules! by_level {
    (avx512: $avx512:expr, avx2: $avx2:expr, portable: $portable:expr $(,)?) => {
        match $crate::simd::level() {
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Level::Avx512 | $crate::simd::Level::Avx512Bf16 => $avx512,
            #[cfg(target_arch = "x86_64")]
            $crate::simd::Level::Avx2 => $avx2,
            _ => $portable,
        }
    };
}
pub(crate) use by_level;

/// Compiles the body of a function once for every [`Level`] and picks by [`level`] at each call.
///
/// The first generic parameter stands for the level's [`Isa`] in the body; further ones are
/// written `T: Bound`. Everything that the body calls a loop round must be `#[inline(always)]`,
/// or it is compiled without the level's instructions.
macro_rules! dispatch {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident<$isa:ident $(, $generic:ident : $bound:path)*>(
            $($arg:ident : $ty:ty),* $(,)?
        ) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::extra_unused_type_parameters, reason = "not every body asks its level")]
        $vis fn $name<$($generic: $bound),*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$isa: $crate::simd::Isa $(, $generic: $bound)*>($($arg: $ty),*) $(-> $ret)?
                $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2<$($generic: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::simd::Avx2 $(, $generic)*>($($arg),*)
            }

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            fn avx512<$($generic: $bound),*>($($arg: $ty),*) $(-> $ret)? {
                body::<$crate::simd::Avx512 $(, $generic)*>($($arg),*)
            }

            $crate::simd::by_level!(
                // SAFETY: `level` is never above what the CPU was found to have.
                avx512: unsafe { avx512::<$($generic),*>($($arg),*) },
                // SAFETY: as above.
                avx2: unsafe { avx2::<$($generic),*>($($arg),*) },
                portable: body::<$crate::simd::Portable $(, $generic)*>($($arg),*),
            )
        }
    };
}
pub(crate) use dispatch;
