//! Deterministic values that Python and Rust compute alike; the explanation is in `tests/golden/formula.py`.

use candle_core::{DType, Device, Result, Tensor};

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn fnv1a64(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |h, byte| {
        (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    })
}

/// Element `index` of the stream called `name`, in `[-1, 1)`.
fn unit_at(start: u64, index: usize) -> f64 {
    let mut z = start.wrapping_add((index as u64 + 1).wrapping_mul(GAMMA));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    (z >> 40) as f64 / f64::from(1u32 << 23) - 1.0
}

/// `count` values in `[-1, 1)`.
pub(crate) fn unit(name: &str, count: usize) -> impl Iterator<Item = f64> + use<> {
    let start = fnv1a64(name);
    (0..count).map(move |index| unit_at(start, index))
}

fn scale_and_shift(name: &str, shape: &[usize]) -> (f64, f64) {
    match name.rsplit('.').next().unwrap_or(name) {
        "running_var" => (0.5, 1.0),
        "cls_token" | "pos_embed" => (0.5, 0.0),
        _ if shape.len() >= 2 => (
            (6.0 / shape[1..].iter().product::<usize>() as f64).sqrt(),
            0.0,
        ),
        "weight" | "gamma" => (0.2, 1.0),
        _ => (0.1, 0.0),
    }
}

/// The value of the parameter or buffer called `name`, f32.
pub(crate) fn parameter(name: &str, shape: &[usize]) -> Result<Tensor> {
    if name.ends_with("num_batches_tracked") {
        return Tensor::zeros(shape, DType::I64, &Device::Cpu);
    }
    let (scale, shift) = scale_and_shift(name, shape);
    let values: Vec<f32> = unit(name, shape.iter().product())
        .map(|u| (u * scale + shift) as f32)
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// An input, uniform in `[-1, 1)`, f32.
pub(crate) fn image(name: &str, shape: &[usize]) -> Result<Tensor> {
    let values: Vec<f32> = unit(name, shape.iter().product())
        .map(|u| u as f32)
        .collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}

/// `[L2 norm, projection on the formula's direction]` of a gradient or buffer.
pub(crate) fn summarise(values: &[f64], name: &str) -> [f64; 2] {
    let norm = values.iter().map(|v| v * v).sum::<f64>().sqrt();
    let probe = unit(&format!("probe.{name}"), values.len());
    [norm, values.iter().zip(probe).map(|(v, p)| v * p).sum()]
}
