//! Convolution, pooling and resizing, over one dimension and over two.

use tallow_graph::op::{
    AdaptiveAvgPool2d, AdaptiveMaxPool2d, AvgPool2d, Constant, Conv2d, Interpolate, Interpolation,
    Literal, MaxPool2d, Mean, Reshape,
};
use tallow_graph::{NodeId, Op};

use super::shape::padded;
use super::{Call, Data, Reader, Value, one};
use crate::Result;

/// A window's sizes as the graph has them, `[vertical, horizontal]`; signals of one dimension are images of one row.
struct Window {
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    /// Top, left, bottom, right.
    pads: [usize; 4],
    ceil: bool,
}

impl Window {
    /// Padding that the operation itself can do: alike on both sides.
    fn even(&self) -> Option<[usize; 2]> {
        let [top, left, bottom, right] = self.pads;
        (top == bottom && left == right).then_some([top, left])
    }

    /// As [`Window::even`], and no more than half the window.
    fn at_most_half(&self) -> Option<[usize; 2]> {
        let half = |axis: usize, pads: &[usize; 2]| pads[axis] <= self.kernel[axis] / 2;
        self.even().filter(|pads| half(0, pads) && half(1, pads))
    }
}

/// `[N, C, L]` as `[N, C, 1, L]`, and whether it was that.
fn as_image(reader: &mut Reader, call: &Call<'_>, x: NodeId) -> Result<(NodeId, bool)> {
    let shape = reader.dims(x);
    match shape.len() {
        4 => Ok((x, false)),
        3 => {
            let shape = vec![shape[0], shape[1], 1, shape[2]];
            Ok((reader.push(Op::Reshape(Reshape { shape }), &[x])?, true))
        }
        rank => {
            let problem = format!("works on {rank} dimensions");
            Err(call.refuse(problem, "it is read for [N, C, L] and [N, C, H, W]"))
        }
    }
}

/// Undoes [`as_image`].
fn as_was(reader: &mut Reader, y: NodeId, signal: bool) -> Result<Vec<Value>> {
    if !signal {
        return one(y);
    }
    let shape = reader.dims(y);
    let shape = vec![shape[0], shape[1], shape[3]];
    one(reader.push(Op::Reshape(Reshape { shape }), &[y])?)
}

/// The attributes that all windows have.
fn window(
    call: &mut Call<'_>,
    size: [usize; 2],
    kernel: [usize; 2],
    signal: bool,
) -> Result<Window> {
    let axes = if signal { 1 } else { 2 };
    let mut pair = |name: &str| -> Result<[usize; 2]> {
        let values = call.ints(name).unwrap_or_else(|| vec![1; axes]);
        let values = call.sizes(&values, name)?;
        match *values.as_slice() {
            [only] if signal => Ok([1, only]),
            [vertical, horizontal] if !signal => Ok([vertical, horizontal]),
            _ => Err(call.refuse(format!("has {name} {values:?}"), "give one a dimension")),
        }
    };
    let (stride, dilation) = (pair("strides")?, pair("dilations")?);
    if stride.contains(&0) || dilation.contains(&0) || kernel.contains(&0) {
        return Err(call.refuse("has a window or step of 0", "give at least 1"));
    }
    let pads = call.ints("pads").unwrap_or_else(|| vec![0; 2 * axes]);
    let pads = match *call.sizes(&pads, "pads")?.as_slice() {
        [left, right] if signal => [0, left, 0, right],
        [top, left, bottom, right] if !signal => [top, left, bottom, right],
        _ => return Err(call.refuse(format!("has pads {pads:?}"), "give two a dimension")),
    };
    let ceil = call.int("ceil_mode", 0) != 0;
    let automatic = call.text("auto_pad", "NOTSET");
    let mut window = Window {
        kernel,
        stride,
        dilation,
        pads,
        ceil,
    };
    match automatic.as_str() {
        "NOTSET" => {}
        "VALID" => window.pads = [0; 4],
        "SAME_UPPER" | "SAME_LOWER" => {
            window.pads = same(&window, size, automatic == "SAME_LOWER");
        }
        other => return Err(call.refuse(format!("has auto_pad {other}"), "give pads")),
    }
    Ok(window)
}

/// Padding for as many outputs as strides fit into the input; the odd one goes in front with `lower`.
fn same(window: &Window, size: [usize; 2], lower: bool) -> [usize; 4] {
    let total = |axis: usize| {
        let span = (window.kernel[axis] - 1).saturating_mul(window.dilation[axis]) + 1;
        let steps = size[axis].div_ceil(window.stride[axis]);
        let needed = (steps - 1) * window.stride[axis] + span;
        needed.saturating_sub(size[axis])
    };
    let split = |total: usize| match lower {
        true => [total.div_ceil(2), total / 2],
        false => [total / 2, total.div_ceil(2)],
    };
    let ([top, bottom], [left, right]) = (split(total(0)), split(total(1)));
    [top, left, bottom, right]
}

/// Pads an image with a value.
fn pad_image(reader: &mut Reader, x: NodeId, pads: [usize; 4], value: f32) -> Result<NodeId> {
    let [top, left, bottom, right] = pads;
    let x = padded(reader, x, 2, [top, bottom], value)?;
    padded(reader, x, 3, [left, right], value)
}

fn size(reader: &Reader, x: NodeId) -> [usize; 2] {
    let shape = reader.dims(x);
    [shape[2], shape[3]]
}

pub(super) fn convolution(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let groups = call.int("group", 1);
    let groups = call.sizes(&[groups], "group")?[0];
    let (x, weight) = (call.tensor(reader, 0)?, call.tensor(reader, 1)?);
    let bias = call.optional(reader, 2)?;
    let (mut x, signal) = as_image(reader, call, x)?;
    let (weight, _) = as_image(reader, call, weight)?;
    let kernel = size(reader, weight);
    // What the attribute says is what the weight has.
    call.ignore("kernel_shape");
    let window = window(call, size(reader, x), kernel, signal)?;
    let padding = match window.even() {
        Some(padding) => padding,
        None => {
            x = pad_image(reader, x, window.pads, 0.0)?;
            [0, 0]
        }
    };
    let conv = Conv2d {
        stride: window.stride,
        padding,
        dilation: window.dilation,
        groups,
    };
    let mut inputs = vec![x, weight];
    inputs.extend(bias);
    let y = reader.push(Op::Conv2d(conv), &inputs)?;
    as_was(reader, y, signal)
}

/// The window of a pool, whose size is an attribute.
fn pool(reader: &Reader, call: &mut Call<'_>, x: NodeId, signal: bool) -> Result<Window> {
    let kernel = call.ints("kernel_shape").unwrap_or_default();
    let kernel = match *call.sizes(&kernel, "kernel_shape")?.as_slice() {
        [only] if signal => [1, only],
        [vertical, horizontal] if !signal => [vertical, horizontal],
        _ => {
            return Err(call.refuse(
                format!("has kernel_shape {kernel:?}"),
                "give one a dimension",
            ));
        }
    };
    let window = window(call, size(reader, x), kernel, signal)?;
    if window.dilation != [1, 1] {
        return Err(call.refuse("has dilations", "it is read without"));
    }
    if window.ceil && window.at_most_half().is_none() {
        let problem = "rounds up with padding that differs from side to side, or is large";
        return Err(call.refuse(problem, "pad with an operator of its own"));
    }
    Ok(window)
}

pub(super) fn max_pool(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    call.only("storage_order", 0)?;
    let x = call.tensor(reader, 0)?;
    let (mut x, signal) = as_image(reader, call, x)?;
    let window = pool(reader, call, x, signal)?;
    let padding = match window.at_most_half() {
        Some(padding) => padding,
        None => {
            x = pad_image(reader, x, window.pads, f32::NEG_INFINITY)?;
            [0, 0]
        }
    };
    let pool = MaxPool2d {
        kernel: window.kernel,
        stride: window.stride,
        padding,
        ceil_mode: window.ceil,
    };
    let y = reader.push(Op::MaxPool2d(pool), &[x])?;
    as_was(reader, y, signal)
}

pub(super) fn average_pool(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let counts_padding = call.int("count_include_pad", 0) != 0;
    let x = call.tensor(reader, 0)?;
    let (mut x, signal) = as_image(reader, call, x)?;
    let window = pool(reader, call, x, signal)?;
    let before = size(reader, x);
    let padding = window.at_most_half();
    if padding.is_none() {
        x = pad_image(reader, x, window.pads, 0.0)?;
    }
    let pool = AvgPool2d {
        kernel: window.kernel,
        stride: window.stride,
        padding: padding.unwrap_or([0, 0]),
        ceil_mode: window.ceil,
        count_include_pad: counts_padding,
    };
    let mut y = reader.push(Op::AvgPool2d(pool), &[x])?;
    if padding.is_none() && !counts_padding {
        let factors = factors(reader, y, &window, before)?;
        y = reader.push(Op::Mul, &[y, factors])?;
    }
    as_was(reader, y, signal)
}

/// What makes means over whole windows those over the part that isn't padding.
fn factors(reader: &mut Reader, y: NodeId, window: &Window, before: [usize; 2]) -> Result<NodeId> {
    let out = size(reader, y);
    let share = |axis: usize| -> Vec<f32> {
        let (kernel, stride, pad) = (window.kernel[axis], window.stride[axis], window.pads[axis]);
        let inside = |step: usize| {
            let start = (step * stride).max(pad);
            let end = (step * stride + kernel).min(pad + before[axis]);
            end.saturating_sub(start).max(1)
        };
        let share = |step| kernel as f32 / inside(step) as f32;
        (0..out[axis]).map(share).collect()
    };
    let (rows, columns) = (share(0), share(1));
    let values = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| row * column));
    let values: Vec<f32> = values.collect();
    let value = Literal::from_f32([1, 1, out[0], out[1]], &values);
    reader.push(Op::Constant(Constant { value }), &[])
}

pub(super) fn global_average(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    let rank = reader.dims(x).len();
    let op = match rank {
        4 => Op::AdaptiveAvgPool2d(AdaptiveAvgPool2d { out: [1, 1] }),
        _ => Op::Mean(Mean {
            dims: (2..rank).collect(),
            keep_dim: true,
        }),
    };
    one(reader.push(op, &[x])?)
}

pub(super) fn global_max(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(reader, 0)?;
    let (x, signal) = as_image(reader, call, x)?;
    let op = Op::AdaptiveMaxPool2d(AdaptiveMaxPool2d { out: [1, 1] });
    let y = reader.push(op, &[x])?;
    as_was(reader, y, signal)
}

/// Images to another size: the nearest pixel, or the mean of four.
pub(super) fn resize(reader: &mut Reader, call: &mut Call<'_>) -> Result<Vec<Value>> {
    let mode = call.text("mode", "nearest");
    let coordinates = call.text("coordinate_transformation_mode", "half_pixel");
    let nearest = call.text("nearest_mode", "round_prefer_floor");
    for name in ["cubic_coeff_a", "extrapolation_value"] {
        call.ignore(name);
    }
    call.only("antialias", 0)?;
    call.only("exclude_outside", 0)?;
    let x = call.tensor(reader, 0)?;
    let shape = reader.dims(x);
    let [batch, channels, height, width] = *shape.as_slice() else {
        return Err(call.refuse(format!("works on {shape:?}"), "it is read for [N, C, H, W]"));
    };
    let to = target(call, &shape)?;
    let [_, _, rows, columns] = to;
    if [to[0], to[1]] != [batch, channels] {
        return Err(call.refuse("resizes more than height and width", "resize those alone"));
    }
    let grows = rows.is_multiple_of(height) && columns.is_multiple_of(width);
    let mode = match (mode.as_str(), coordinates.as_str(), nearest.as_str()) {
        ("nearest", "asymmetric", "floor") => Interpolation::Nearest,
        // By whole factors these pick the same pixel.
        ("nearest", "half_pixel", "round_prefer_floor" | "round_prefer_ceil") if grows => {
            Interpolation::Nearest
        }
        ("linear", "align_corners", _) => Interpolation::Bilinear {
            align_corners: true,
        },
        ("linear", "half_pixel", _) => Interpolation::Bilinear {
            align_corners: false,
        },
        ("linear", "pytorch_half_pixel", _) if rows > 1 && columns > 1 => Interpolation::Bilinear {
            align_corners: false,
        },
        _ => {
            let problem = format!("has mode {mode}, {coordinates}, {nearest}");
            return Err(call.refuse(problem, "docs/onnx.md lists the modes that are read"));
        }
    };
    let size = [rows, columns];
    one(reader.push(Op::Interpolate(Interpolate { size, mode }), &[x])?)
}

/// The shape to reach, from sizes or from scales that lead to whole numbers.
fn target(call: &mut Call<'_>, from: &[usize]) -> Result<[usize; 4]> {
    call.only("keep_aspect_ratio_policy", 0)?;
    let axes = call.ints("axes");
    let axes = axes.unwrap_or_else(|| (0..from.len() as i64).collect());
    let sizes = call
        .known_ints(3, "sizes")?
        .filter(|sizes| !sizes.is_empty());
    let mut to = from.to_vec();
    let wanted: Vec<usize> = match sizes {
        Some(sizes) => call.sizes(&sizes, "sizes")?,
        None => {
            let scales = call.known(2, "scales")?;
            let Some(Data::Floats(scales)) = scales.as_deref().map(|scales| &scales.data) else {
                return Err(call.refuse("has neither sizes nor scales", "give one of them"));
            };
            let mut wanted = Vec::with_capacity(scales.len());
            for (&axis, &scale) in axes.iter().zip(scales) {
                let exact = from[call.axis(axis, from.len())?] as f32 * scale;
                if exact.fract() != 0.0 || !(1.0..=1e6).contains(&exact) {
                    let problem = format!("scales by {scale}, not to a whole number of pixels");
                    return Err(call.refuse(problem, "give sizes"));
                }
                wanted.push(exact as usize);
            }
            wanted
        }
    };
    if wanted.len() != axes.len() {
        return Err(call.refuse("has sizes for other dimensions", "give one a dimension"));
    }
    for (&axis, size) in axes.iter().zip(wanted) {
        to[call.axis(axis, from.len())?] = size;
    }
    <[usize; 4]>::try_from(to).map_err(|_| call.refuse("is no image", "give [N, C, H, W]"))
}
