//! Convolution written as its definition, in f64.

use tallow_kernels::conv::Conv2dGeometry;

/// Calls `f` with the positions in input, weight and output of every product of a convolution.
fn for_products(g: &Conv2dGeometry, mut f: impl FnMut(usize, usize, usize)) {
    let [height, width] = g.in_size;
    let [out_height, out_width] = g.out_size();
    let (channels, filters) = (g.in_channels / g.groups, g.out_channels / g.groups);
    for output in 0..g.batch * g.out_channels * out_height * out_width {
        let (plane, pixel) = (
            output / (out_height * out_width),
            output % (out_height * out_width),
        );
        let (image, filter) = (plane / g.out_channels, plane % g.out_channels);
        for term in 0..channels * g.kernel[0] * g.kernel[1] {
            let (channel, tap) = (
                term / (g.kernel[0] * g.kernel[1]),
                term % (g.kernel[0] * g.kernel[1]),
            );
            let y = pixel / out_width * g.stride[0] + tap / g.kernel[1] * g.dilation[0];
            let x = pixel % out_width * g.stride[1] + tap % g.kernel[1] * g.dilation[1];
            let inside = |at: usize, axis: usize, size: usize| {
                (g.padding[axis]..g.padding[axis] + size).contains(&at)
            };
            if inside(y, 0, height) && inside(x, 1, width) {
                let channel = image * g.in_channels + filter / filters * channels + channel;
                let row = channel * height + y - g.padding[0];
                let weight = filter * channels * g.kernel[0] * g.kernel[1] + term;
                f(row * width + x - g.padding[1], weight, output);
            }
        }
    }
}

pub(crate) fn forward(g: &Conv2dGeometry, x: &[f32], w: &[f32], bias: &[f32]) -> Vec<f64> {
    let [height, width] = g.out_size();
    let outputs = 0..g.batch * g.out_channels * height * width;
    let mut y: Vec<f64> = outputs
        .map(|output| f64::from(bias[output / (height * width) % g.out_channels]))
        .collect();
    for_products(g, |i, j, output| {
        y[output] += f64::from(x[i]) * f64::from(w[j])
    });
    y
}

pub(crate) fn backward_input(g: &Conv2dGeometry, w: &[f32], dy: &[f32]) -> Vec<f64> {
    let mut dx = vec![0.0; g.batch * g.in_channels * g.in_size[0] * g.in_size[1]];
    for_products(g, |i, j, output| {
        dx[i] += f64::from(w[j]) * f64::from(dy[output])
    });
    dx
}

pub(crate) fn backward_weight(g: &Conv2dGeometry, x: &[f32], dy: &[f32]) -> Vec<f64> {
    let taps = g.kernel[0] * g.kernel[1];
    let mut dw = vec![0.0; g.out_channels * g.in_channels / g.groups * taps];
    for_products(g, |i, j, output| {
        dw[j] += f64::from(x[i]) * f64::from(dy[output])
    });
    dw
}

pub(crate) fn backward_bias(g: &Conv2dGeometry, dy: &[f32]) -> Vec<f64> {
    let [height, width] = g.out_size();
    let mut db = vec![0.0; g.out_channels];
    for (output, value) in dy.iter().enumerate() {
        db[output / (height * width) % g.out_channels] += f64::from(*value);
    }
    db
}
