//! Which algorithm a convolution is computed with: by shape, or by timing those that can.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tallow_kernels::channels_last::conv::{self, Algorithm, Direction, Finish};
use tallow_kernels::channels_last::winograd::{self, Tile};
use tallow_kernels::workspace::Workspace;

use crate::plan::{Choices, ConvolutionSite, Phase};
use crate::{Error, Result};

/// Chooses by shape alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByShape {
    /// Whether Winograd's algorithm may be used.
    pub(crate) winograd: bool,
    /// Whether the CPU's instructions for bfloat16 may be used.
    pub(crate) bf16: bool,
}

impl Choices for ByShape {
    fn convolution(&mut self, site: &ConvolutionSite) -> Algorithm {
        let fastest = |candidates: Vec<Algorithm>| {
            let cost = |algorithm: &Algorithm| cost(site, *algorithm);
            let costs = candidates.iter().map(cost).zip(&candidates);
            let least = costs.min_by(|(a, _), (b, _)| a.total_cmp(b));
            least.map_or(Algorithm::Direct, |(_, algorithm)| *algorithm)
        };
        fastest(candidates(site, *self))
    }
}

/// Nanoseconds that a convolution takes by an algorithm, roughly: what two cores with AVX2 were seen to take. Only
/// the order of the algorithms matters, and it must depend on the shape alone, since the algorithm decides the last
/// bits.
fn cost(site: &ConvolutionSite, algorithm: Algorithm) -> f64 {
    /// Multiply-adds a nanosecond.
    const RATE: f64 = 75.0;
    /// Nanoseconds a value of a tile's transform, in and out, and while so many stay in the cores' own caches.
    const VALUE: f64 = 0.35;
    const NEAR_VALUE: f64 = 0.15;
    const NEAR_VALUES: f64 = 320.0 * 1024.0;
    /// Bytes a nanosecond of weights that are read, and that are packed.
    const READ: f64 = 25.0;
    const PACK: f64 = 9.0;
    /// Nanoseconds to transform a weight that doesn't leave the core's cache, for so many tiles.
    const UNPACKED: f64 = 0.3;
    const UNPACKED_TILES: f64 = 32.0;
    let geometry = &site.geometry;
    let [height, width] = geometry.out_size();
    let images = geometry.batch as f64;
    let pairs = (geometry.in_channels * geometry.out_channels / geometry.groups) as f64;
    let [kernel_height, kernel_width] = geometry.kernel;
    let taps = (kernel_height * kernel_width) as f64;
    let weights = |planes: f64, packs: bool| {
        let bytes = 4.0 * planes * pairs;
        bytes / READ + if packs { bytes / PACK } else { 0.0 }
    };
    let products = images * (height * width) as f64 * taps * pairs / RATE;
    match algorithm {
        Algorithm::Winograd(tile) | Algorithm::WinogradUnpacked(tile) => {
            let (outputs, stride) = (tile.outputs(), geometry.stride[0]);
            // With stride 2 the middle tap meets as many points as outputs, all with the same weights.
            let points = (stride * outputs + if stride == 1 { 2 } else { 1 }).pow(2) as f64;
            let planes = (outputs + 2).pow(2) as f64;
            let tiles = images * (height.div_ceil(outputs) * width.div_ceil(outputs)) as f64;
            let channels = (geometry.in_channels + geometry.out_channels) as f64;
            let values = tiles * points * channels;
            let value = if values > NEAR_VALUES {
                VALUE
            } else {
                NEAR_VALUE
            };
            let weights = match algorithm {
                Algorithm::WinogradUnpacked(_) => {
                    planes * pairs * UNPACKED * (tiles / UNPACKED_TILES).ceil()
                }
                _ => weights(planes, site.packs),
            };
            1.12 * tiles * points * pairs / RATE + value * values + weights
        }
        Algorithm::Bf16 => 0.6 * products + weights(taps / 2.0, site.packs),
        _ if site.phase == Phase::BackwardWeight => 1.3 * products + weights(taps, false),
        _ => 1.1 * products + weights(taps, site.packs),
    }
}

/// Of so few channels, an image's, making pairs costs more than multiplying them saves.
const FEW_CHANNELS: usize = 4;

/// Every algorithm that can compute a convolution.
fn candidates(site: &ConvolutionSite, allowed: ByShape) -> Vec<Algorithm> {
    let g = &site.geometry;
    let mut candidates = vec![if allowed.bf16 && g.in_channels / g.groups > FEW_CHANNELS {
        Algorithm::Bf16
    } else {
        Algorithm::Direct
    }];
    if allowed.winograd && winograd::suits(&site.geometry) {
        candidates.extend([
            Algorithm::Winograd(Tile::Two),
            Algorithm::Winograd(Tile::Four),
        ]);
        let unpacked = site.packs && site.phase != Phase::BackwardWeight;
        if unpacked && site.geometry.stride == [1, 1] {
            candidates.extend([
                Algorithm::WinogradUnpacked(Tile::Two),
                Algorithm::WinogradUnpacked(Tile::Four),
            ]);
        }
    }
    candidates
}

/// Times the algorithms that can compute a convolution and takes the fastest.
///
/// Choices are kept, in a file too if there is one: lines of a key and an algorithm, for the CPU level that they were
/// made at. Which algorithm is taken decides the last bits of results: runs that must be equal to the bit share a file.
pub(crate) struct Timed {
    allowed: ByShape,
    known: HashMap<String, Algorithm>,
    file: Option<PathBuf>,
}

impl Timed {
    /// Reads the file, if there is one.
    pub(crate) fn new(allowed: ByShape, file: Option<&Path>) -> Self {
        let text = file.and_then(|path| std::fs::read_to_string(path).ok());
        let lines = text.as_deref().unwrap_or("").lines().filter_map(|line| {
            let (key, name) = line.rsplit_once(' ')?;
            Some((key.to_string(), parse(name)?))
        });
        Self {
            allowed,
            known: lines.collect(),
            file: file.map(Path::to_path_buf),
        }
    }

    /// Writes the choices to the file, if there is one.
    pub(crate) fn save(&self) -> Result<()> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let mut lines: Vec<_> = self.known.iter().collect();
        lines.sort_by_key(|(key, _)| key.as_str());
        let mut text = String::new();
        for (key, algorithm) in lines {
            let _ = writeln!(text, "{key} {}", name(*algorithm));
        }
        std::fs::write(path, text).map_err(|source| Error::Write {
            path: path.clone(),
            source,
        })
    }
}

impl Choices for Timed {
    fn convolution(&mut self, site: &ConvolutionSite) -> Algorithm {
        let key = key(site, self.allowed.bf16);
        let candidates = candidates(site, self.allowed);
        if let Some(known) = self.known.get(&key)
            && candidates.contains(known)
        {
            return *known;
        }
        let fastest = fastest(site, &candidates);
        self.known.insert(key, fastest);
        fastest
    }
}

fn key(site: &ConvolutionSite, bf16: bool) -> String {
    let g = &site.geometry;
    format!(
        "{} {:?} n{} c{} {:?} o{} k{:?} s{:?} p{:?} d{:?} g{} packs={} threads={} bf16={bf16}",
        tallow_kernels::simd::level(),
        site.phase,
        g.batch,
        g.in_channels,
        g.in_size,
        g.out_channels,
        g.kernel,
        g.stride,
        g.padding,
        g.dilation,
        g.groups,
        site.packs,
        tallow_kernels::parallel::threads(),
    )
    .replace(", ", ",")
}

fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Direct => "direct",
        Algorithm::Winograd(Tile::Two) => "winograd2",
        Algorithm::Winograd(Tile::Four) => "winograd4",
        Algorithm::WinogradUnpacked(Tile::Two) => "winograd2-unpacked",
        Algorithm::WinogradUnpacked(Tile::Four) => "winograd4-unpacked",
        Algorithm::Bf16 => "bf16",
        _ => "other",
    }
}

fn parse(name: &str) -> Option<Algorithm> {
    Some(match name {
        "direct" => Algorithm::Direct,
        "winograd2" => Algorithm::Winograd(Tile::Two),
        "winograd4" => Algorithm::Winograd(Tile::Four),
        "winograd2-unpacked" => Algorithm::WinogradUnpacked(Tile::Two),
        "winograd4-unpacked" => Algorithm::WinogradUnpacked(Tile::Four),
        "bf16" => Algorithm::Bf16,
        _ => return None,
    })
}

/// Runs of each candidate; the least time counts.
const ROUNDS: usize = 4;

fn fastest(site: &ConvolutionSite, candidates: &[Algorithm]) -> Algorithm {
    if let &[only] = candidates {
        return only;
    }
    let mut trial = Trial::new(site);
    let mut best = vec![Duration::MAX; candidates.len()];
    // Alternating, so that what else the machine does meets all alike.
    for _ in 0..ROUNDS {
        for (best, &algorithm) in best.iter_mut().zip(candidates) {
            if let Some(time) = trial.time(algorithm) {
                *best = time.min(*best);
            }
        }
    }
    let order = candidates.iter().zip(&best).min_by_key(|(_, time)| **time);
    order.map_or(Algorithm::Direct, |(algorithm, _)| *algorithm)
}

/// Operands to time a convolution on.
struct Trial<'s> {
    site: &'s ConvolutionSite,
    x: Vec<f32>,
    w: Vec<f32>,
    y: Vec<f32>,
    workspace: Workspace,
}

impl<'s> Trial<'s> {
    fn new(site: &'s ConvolutionSite) -> Self {
        let g = &site.geometry;
        let plane = |size: [usize; 2]| size[0] * size[1];
        let values = |len: usize| (0..len).map(|i| (i % 17) as f32 / 17.0 - 0.5).collect();
        Self {
            x: values(g.batch * g.in_channels * plane(g.in_size)),
            w: values(g.out_channels * g.in_channels / g.groups * plane(g.kernel)),
            y: values(g.batch * g.out_channels * plane(g.out_size())),
            workspace: Workspace::new(),
            site,
        }
    }

    fn time(&mut self, algorithm: Algorithm) -> Option<Duration> {
        let g = &self.site.geometry;
        let direction = match self.site.phase {
            Phase::BackwardInput => Direction::BackwardInput,
            _ => Direction::Forward,
        };
        let mut packed = vec![0.0; conv::packed_len(g, direction, algorithm)];
        let mut start = Instant::now();
        if self.site.phase != Phase::BackwardWeight {
            conv::pack(g, direction, algorithm, &self.w, &mut packed).ok()?;
            if !self.site.packs || !algorithm.packs() {
                start = Instant::now();
            }
        }
        let ws = &self.workspace;
        match self.site.phase {
            Phase::Forward => conv::forward(
                g,
                algorithm,
                &self.x,
                &packed,
                &Finish::default(),
                &mut self.y,
                ws,
            ),
            Phase::BackwardInput => {
                conv::backward_input(g, algorithm, &packed, &self.y, None, &mut self.x, ws)
            }
            Phase::BackwardWeight => {
                conv::backward_weight(g, algorithm, &self.x, &self.y, &mut self.w, ws)
            }
        }
        .ok()?;
        Some(start.elapsed())
    }
}
