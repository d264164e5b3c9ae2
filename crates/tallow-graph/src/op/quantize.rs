//! Whole numbers in place of floats: quantized values, and convolutions of them.

use serde::{Deserialize, Serialize};

use super::check;
use super::rule::{Attributes, Problem, Rule, Signature};
use super::{Clamp, Conv2d};
use crate::TensorType;

/// `scale * (q - zero_point)` of the whole number `q = round(x / scale) + zero_point` within bounds, halves to even:
/// PyTorch's `fake_quantize_per_tensor_affine` and `fake_quantize_per_channel_affine`, ONNX's `QuantizeLinear` followed by
/// `DequantizeLinear`. Floats in, floats out; a compiler may compute on the whole numbers in between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FakeQuantize {
    /// The difference between neighbouring values: one for all, or one for each index of dimension `axis`.
    pub scales: Vec<f32>,
    /// The dimension that several scales belong to.
    pub axis: usize,
    /// The number that stands for zero.
    pub zero_point: i32,
    /// The least and the largest number.
    pub bounds: [i32; 2],
}

/// What numbers a tensor of activations is made of: `scale * (q - zero_point)`, `q` from 0 to 255.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantized {
    /// The difference between neighbouring values.
    pub scale: f32,
    /// The number that stands for zero.
    pub zero_point: u8,
}

impl FakeQuantize {
    /// Unsigned bytes with one scale, as activations have.
    pub fn activations(quantized: Quantized) -> Self {
        Self {
            scales: vec![quantized.scale],
            axis: 0,
            zero_point: quantized.zero_point.into(),
            bounds: [0, 255],
        }
    }

    /// Signed bytes without -128, with a scale for each index of dimension 0, as weights have.
    pub fn weights(scales: Vec<f32>) -> Self {
        Self {
            scales,
            axis: 0,
            zero_point: 0,
            bounds: [-127, 127],
        }
    }

    /// The numbers of activations, if these are.
    pub fn as_activations(&self) -> Option<Quantized> {
        let zero_point = u8::try_from(self.zero_point).ok()?;
        match *self.scales {
            [scale] if self.bounds == [0, 255] => Some(Quantized { scale, zero_point }),
            _ => None,
        }
    }

    /// Whether the numbers are those of weights: signed bytes around zero, with scales of dimension 0.
    pub fn is_of_weights(&self) -> bool {
        self.axis == 0 && self.zero_point == 0 && self.bounds[0] >= -127 && self.bounds[1] <= 127
    }
}

/// Activations as [`Quantized`] numbers less their zero points, 16 bits each, two channels in the place of a float.
///
/// `[N, C, H, W]` becomes `[N, C / 2, H, W]`, rounded up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QuantizeToWords {
    /// The numbers.
    pub to: Quantized,
}

/// A convolution of [`QuantizeToWords`] and of weights that are rounded to signed bytes:
/// `act(conv2d(x, weight) + bias + residual)`, in floats or in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Int8Conv2d {
    /// The convolution.
    pub conv: Conv2d,
    /// The numbers of x.
    pub x: Quantized,
    /// The scale of each output channel's weights.
    pub weight_scales: Vec<f32>,
    /// Whether there is a bias `[O]`.
    pub bias: bool,
    /// Whether there is a residual, and in what form.
    pub residual: Option<Form>,
    /// The activation that is applied last.
    pub activation: Option<Clamp>,
    /// What comes out.
    pub output: Form,
}

/// How a tensor of activations is held.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// As floats.
    Floats,
    /// As [`QuantizeToWords`] makes them.
    Words(Quantized),
}

impl Form {
    fn channels(self, channels: usize) -> usize {
        match self {
            Self::Floats => channels,
            Self::Words(_) => channels.div_ceil(2),
        }
    }
}

fn check_scales(scales: &[f32]) -> Result<(), Problem> {
    match scales
        .iter()
        .find(|scale| !(scale.is_finite() && **scale > 0.0))
    {
        Some(scale) => Err(Problem::new(
            format!("a scale is {scale}"),
            "give scales above zero",
        )),
        None => Ok(()),
    }
}

impl Rule for FakeQuantize {
    fn name(&self) -> &'static str {
        "fake_quantize"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        check_scales(&self.scales)?;
        let channels = inputs[0].shape.get(self.axis).copied();
        if self.scales.len() != 1 && channels != Some(self.scales.len()) {
            return Err(Problem::new(
                format!(
                    "{} scales for dimension {} of {}",
                    self.scales.len(),
                    self.axis,
                    inputs[0]
                ),
                "give one scale, or as many as the dimension is long",
            ));
        }
        let [low, high] = self.bounds;
        if !(low..=high).contains(&self.zero_point)
            || high.checked_sub(low).is_none_or(|n| n > 65_535)
        {
            return Err(Problem::new(
                format!(
                    "numbers from {low} to {high} with zero point {}",
                    self.zero_point
                ),
                "give at most 65536 numbers, the zero point among them",
            ));
        }
        Ok(inputs[0].clone())
    }

    fn flops(&self, _inputs: &[TensorType], output: &TensorType) -> u64 {
        output.elements().saturating_mul(5)
    }

    fn attributes(&self, list: &mut Attributes) {
        match *self.scales {
            [scale] => list.show("scale", scale),
            _ => list.show_text(format!("scales={} of dim {}", self.scales.len(), self.axis)),
        }
        list.show_unless("zero_point", self.zero_point, 0);
        list.show("bounds", self.bounds);
    }
}

impl Rule for QuantizeToWords {
    fn name(&self) -> &'static str {
        "quantize_to_words"
    }

    fn signature(&self) -> Signature {
        Signature::of(&["x"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        check::float("x", &inputs[0])?;
        check_scales(&[self.to.scale])?;
        let [batch, channels, height, width] = check::nchw("x", &inputs[0])?;
        let words = channels.div_ceil(2);
        Ok(TensorType::new(
            inputs[0].dtype,
            [batch, words, height, width],
        ))
    }

    fn flops(&self, inputs: &[TensorType], _output: &TensorType) -> u64 {
        inputs.first().map_or(0, |x| x.elements().saturating_mul(4))
    }

    fn attributes(&self, list: &mut Attributes) {
        list.show("scale", self.to.scale);
        list.show("zero_point", self.to.zero_point);
    }
}

impl Int8Conv2d {
    /// The type of x as floats.
    fn floats(&self, x: &TensorType, weight: &TensorType) -> Result<TensorType, Problem> {
        let [batch, words, height, width] = check::nchw("x", x)?;
        let per_group = weight.shape.get(1).copied().unwrap_or(0);
        let channels = per_group.saturating_mul(self.conv.groups);
        if channels.div_ceil(2) != words {
            return Err(Problem::new(
                format!("x has {words} words a pixel, weight is made for {channels} channels"),
                "give two channels a word",
            ));
        }
        Ok(TensorType::new(x.dtype, [batch, channels, height, width]))
    }
}

impl Rule for Int8Conv2d {
    fn name(&self) -> &'static str {
        "int8_conv2d"
    }

    fn signature(&self) -> Signature {
        Signature::with_optional(&["x", "weight"], &["bias", "residual"])
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<TensorType, Problem> {
        let expected = 2 + usize::from(self.bias) + usize::from(self.residual.is_some());
        if inputs.len() != expected {
            return Err(Problem::new(
                format!("it was given {} inputs", inputs.len()),
                format!("its attributes ask for {expected}"),
            ));
        }
        check_scales(&self.weight_scales)?;
        let mut floats = inputs[..2 + usize::from(self.bias)].to_vec();
        floats[0] = self.floats(&inputs[0], &inputs[1])?;
        let output = self.conv.infer(&floats)?;
        let channels = output.shape[1];
        if self.weight_scales.len() != channels {
            return Err(Problem::new(
                format!(
                    "{} scales for {channels} channels",
                    self.weight_scales.len()
                ),
                "give a scale for each output channel",
            ));
        }
        let of = |form: Form| {
            let mut ty = output.clone();
            ty.shape[1] = form.channels(channels);
            ty
        };
        match (self.residual, inputs.last()) {
            (Some(form), Some(residual)) if *residual != of(form) => Err(Problem::new(
                format!("residual is {residual}, the convolution gives {}", of(form)),
                "give a residual of the output's type",
            )),
            _ => Ok(of(self.output)),
        }
    }

    fn flops(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let rest = output.elements().saturating_mul(inputs.len() as u64 - 1);
        self.macs(inputs, output)
            .saturating_mul(2)
            .saturating_add(rest)
    }

    fn macs(&self, inputs: &[TensorType], output: &TensorType) -> u64 {
        let channels = self.weight_scales.len() as u64;
        let pixels = match (output.shape.first(), output.shape.get(2..)) {
            (Some(&batch), Some(size)) => (batch as u64).saturating_mul(check::count(size)),
            _ => 0,
        };
        let taps = inputs.get(1).map_or(0, |weight| {
            check::count(weight.shape.get(1..).unwrap_or(&[]))
        });
        pixels.saturating_mul(channels).saturating_mul(taps)
    }

    fn attributes(&self, list: &mut Attributes) {
        self.conv.attributes(list);
        list.show_unless("bias", self.bias, false);
        list.show_unless("residual", self.residual, None);
        list.show_unless("activation", self.activation, None);
        list.show_unless("output", self.output, Form::Floats);
    }
}
