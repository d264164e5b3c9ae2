//! Batches, the eager step and comparisons, for the tests beside.

#![allow(dead_code, reason = "each test uses a part")]

use candle_core::backprop::GradStore;
use candle_core::{Device, Tensor};
use tallow_tensor::rng::Stream;

/// Images that look like noise, and labels in turn.
pub(crate) fn batch(shape: [usize; 4], classes: u32) -> (Tensor, Tensor) {
    let mut stream = Stream::new(11);
    let values: Vec<f32> = (0..shape.iter().product())
        .map(|_| stream.normal() as f32)
        .collect();
    let images = Tensor::from_vec(values, &shape, &Device::Cpu).unwrap();
    let labels: Vec<u32> = (0..shape[0] as u32)
        .map(|i| (i * 7 + 1) % classes)
        .collect();
    let labels = Tensor::new(labels, &Device::Cpu).unwrap();
    (images, labels)
}

/// What candle's tape gives.
pub(crate) struct Eager {
    pub(crate) loss: f64,
    pub(crate) outputs: Tensor,
    pub(crate) gradients: GradStore,
}

pub(crate) fn eager_step(
    images: &Tensor,
    labels: &Tensor,
    forward: &impl Fn(&Tensor, &Tensor) -> candle_core::Result<(Tensor, Tensor)>,
) -> Eager {
    let (loss, outputs) = forward(images, labels).unwrap();
    Eager {
        gradients: loss.backward().unwrap(),
        loss: f64::from(loss.to_scalar::<f32>().unwrap()),
        outputs: outputs.detach(),
    }
}

/// Fails unless the largest difference is at most `tolerance` of the largest value.
pub(crate) fn close(name: &str, found: &Tensor, expected: &Tensor, tolerance: f64) {
    close_at(name, found, expected, tolerance, 1e-6);
}

/// As [`close`], with `scale` as the least that the difference is compared with.
pub(crate) fn close_at(name: &str, found: &Tensor, expected: &Tensor, tolerance: f64, scale: f32) {
    assert_eq!(found.dims(), expected.dims(), "{name}");
    let values = |t: &Tensor| t.detach().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (found, expected) = (values(found), values(expected));
    let largest = expected.iter().fold(scale, |m, v| m.max(v.abs()));
    let worst = found.iter().zip(&expected).map(|(a, b)| (a - b).abs());
    let worst = worst.fold(
        0f32,
        |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) },
    );
    let relative = f64::from(worst / largest);
    assert!(
        relative <= tolerance,
        "{name}: {relative:e} of {largest} is more than {tolerance:e}"
    );
}
