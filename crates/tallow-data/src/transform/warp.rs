//! Pictures under an affine map: rotation, translation, scale and shear.
//!
//! What is drawn and when is left to the transforms; this file computes pixels, as Pillow's `Image.transform` does.

use super::Interpolation;
use crate::Image;

/// From the place of a pixel of the result to its place in the picture: `x' = a x + b y + c`, `y' = d x + e y + f`.
pub(super) type Matrix = [f64; 6];

/// torchvision's `_get_inverse_affine_matrix`: angle and shear in degrees, clockwise.
pub(super) fn inverse(
    center: [f64; 2],
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
) -> Matrix {
    let rotation = angle.to_radians();
    let [sx, sy] = shear.map(f64::to_radians);
    let [cx, cy] = center;
    let [tx, ty] = translate;
    let a = (rotation - sy).cos() / sy.cos();
    let b = -(rotation - sy).cos() * sx.tan() / sy.cos() - rotation.sin();
    let c = (rotation - sy).sin() / sy.cos();
    let d = -(rotation - sy).sin() * sx.tan() / sy.cos() + rotation.cos();
    let [m0, m1, m3, m4] = [d, -b, -c, a].map(|value| value / scale);
    [
        m0,
        m1,
        m0 * (-cx - tx) + m1 * (-cy - ty) + cx,
        m3,
        m4,
        m3 * (-cx - tx) + m4 * (-cy - ty) + cy,
    ]
}

/// Pillow's matrix of a rotation by `angle` degrees counter-clockwise, for a picture of `[height, width]`; and the size of
/// the result, which with `expand` is as large as the turned picture.
pub(super) fn rotation(
    angle: f64,
    [height, width]: [usize; 2],
    expand: bool,
) -> (Matrix, [usize; 2]) {
    let round = |value: f64| (value * 1e15).round() / 1e15;
    let radians = -(angle.rem_euclid(360.)).to_radians();
    let (sin, cos) = (round(radians.sin()), round(radians.cos()));
    let (h, w) = (height as f64, width as f64);
    let (cx, cy) = (w / 2., h / 2.);
    let map = |x: f64, y: f64, c: f64, f: f64| [cos * x + sin * y + c, -sin * x + cos * y + f];
    let [mut c, mut f] = map(-cx, -cy, 0., 0.);
    c += cx;
    f += cy;
    let mut size = [height, width];
    if expand {
        let corners = [[0., 0.], [w, 0.], [w, h], [0., h]].map(|[x, y]| map(x, y, c, f));
        let extent = |axis: usize| {
            let values = corners.map(|corner| corner[axis]);
            let most = values.iter().fold(f64::MIN, |m, &v| m.max(v));
            let least = values.iter().fold(f64::MAX, |m, &v| m.min(v));
            most.ceil() - least.floor()
        };
        let (wide, high) = (extent(0), extent(1));
        [c, f] = map(-(wide - w) / 2., -(high - h) / 2., c, f);
        size = [high as usize, wide as usize];
    }
    ([cos, sin, c, -sin, cos, f], size)
}

/// The picture under the inverse of a map, `[height, width]`; `fill` where the map leads out of it.
pub(super) fn warp(
    image: &Image,
    matrix: Matrix,
    size: [usize; 2],
    interpolation: Interpolation,
    fill: u8,
) -> Image {
    let channels = image.channels();
    let mut values = vec![fill; size[0] * size[1] * channels];
    if matrix.iter().all(|value| value.is_finite()) {
        for (y, row) in values.chunks_exact_mut(size[1] * channels).enumerate() {
            match interpolation {
                Interpolation::Nearest => nearest(image, matrix, y, row),
                Interpolation::Bilinear => smooth(image, matrix, y, row, linear),
                Interpolation::Bicubic => smooth(image, matrix, y, row, cubic),
            }
        }
    }
    Image::from_parts(values, size, channels)
}

/// One row of the result, in Pillow's fixed-point arithmetic with 16 bits behind the point.
fn nearest(image: &Image, [a, b, c, d, e, f]: Matrix, y: usize, row: &mut [u8]) {
    let fixed = |value: f64| (value * 65536. + 0.5).floor() as i64;
    let step = [fixed(a), fixed(d)];
    let [down_x, down_y] = [fixed(b), fixed(e)];
    let mut at = [
        fixed(c + a * 0.5 + b * 0.5).saturating_add(down_x.saturating_mul(y as i64)),
        fixed(f + d * 0.5 + e * 0.5).saturating_add(down_y.saturating_mul(y as i64)),
    ];
    for pixel in row.chunks_exact_mut(image.channels()) {
        if let [Ok(x), Ok(y)] = at.map(|place| usize::try_from(place >> 16)) {
            let source = image.pixel(y, x);
            if !source.is_empty() {
                pixel.copy_from_slice(source);
            }
        }
        at = [at[0].saturating_add(step[0]), at[1].saturating_add(step[1])];
    }
}

/// The weights of `N` pixels beside each other for a place `d` behind the middle one of them, from 0 to 1.
fn linear(d: f64) -> [f64; 2] {
    [1. - d, d]
}

/// Keys' cubic with a = -1, which is Pillow's for transformed pictures; for resized ones a is -0.5.
fn cubic(d: f64) -> [f64; 4] {
    let (d2, d3) = (d * d, d * d * d);
    [-d + 2. * d2 - d3, 1. - 2. * d2 + d3, d + d2 - d3, d3 - d2]
}

/// One row of the result, each pixel a weighted sum of `N` by `N`; what lies beyond an edge is as the edge.
fn smooth<const N: usize>(
    image: &Image,
    [a, b, c, d, e, f]: Matrix,
    y: usize,
    row: &mut [u8],
    weights: fn(f64) -> [f64; N],
) {
    let (width, height) = (image.width() as f64, image.height() as f64);
    let clamp = |place: f64, side: usize| (place.max(0.) as usize).min(side - 1);
    let y = y as f64 + 0.5;
    for (x, pixel) in row.chunks_exact_mut(image.channels()).enumerate() {
        let x = x as f64 + 0.5;
        let (place_x, place_y) = (a * x + b * y + c, d * x + e * y + f);
        if !(0. ..width).contains(&place_x) || !(0. ..height).contains(&place_y) {
            continue;
        }
        let (place_x, place_y) = (place_x - 0.5, place_y - 0.5);
        let (left, above) = (place_x.floor(), place_y.floor());
        let (across, down) = (weights(place_x - left), weights(place_y - above));
        let near = |place: f64, i: usize| place + i as f64 - (N / 2 - 1) as f64;
        let columns: [usize; N] = std::array::from_fn(|i| clamp(near(left, i), image.width()));
        let rows: [usize; N] = std::array::from_fn(|i| clamp(near(above, i), image.height()));
        let pixels = rows.map(|row| columns.map(|column| image.pixel(row, column)));
        for (channel, value) in pixel.iter_mut().enumerate() {
            let sum: f64 = pixels
                .iter()
                .zip(down)
                .map(|(pixels, down)| {
                    let row = pixels.iter().zip(across);
                    down * row.map(|(p, w)| w * f64::from(p[channel])).sum::<f64>()
                })
                .sum();
            // Cut off and not rounded, as Pillow does, but for what the weights lack to 1; the cast keeps to 0 and 255.
            *value = (sum + 1e-9) as u8;
        }
    }
}
