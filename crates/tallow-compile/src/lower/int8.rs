//! Quantized convolutions, channels last. Weights are rounded and packed by a call of their own.

use tallow_graph::op::{Form, Int8Conv2d, QuantizeToWords, Quantized};
use tallow_kernels::channels_last::int8::{
    self, Algorithm, Finish, Quantization, Residual, Target,
};
use tallow_kernels::conv::Conv2dGeometry;

use super::convolution::{bounds, geometry};
use super::{Lowered, Pack, Site};
use crate::Result;

fn quantization(quantized: Quantized) -> Quantization {
    Quantization {
        scale: quantized.scale,
        zero_point: quantized.zero_point,
    }
}

pub(super) fn quantize_to_words(site: &Site<'_>, op: &QuantizeToWords) -> Result<Lowered> {
    let [_, channels, ..] = site.image(site.shape(0))?;
    let to = quantization(op.to);
    Ok(Lowered::new(move |io| {
        int8::quantize(to, channels, io.floats(0), io.out)
    }))
}

pub(super) fn conv2d(site: &Site<'_>, op: &Int8Conv2d) -> Result<Lowered> {
    let [batch, _, height, width] = site.image(site.shape(0))?;
    let channels = site.shape(1)[1] * op.conv.groups;
    let x = [batch, channels, height, width];
    let geometry = geometry(site, &op.conv, &x, site.shape(1))?;
    let zero_point = op.x.zero_point;
    let algorithm = if int8::multiplies_fours() && int8::fours_suit(&geometry, zero_point) {
        Algorithm::Fours { zero_point }
    } else if int8::winograd_suits(&geometry) && channels > FEW_CHANNELS {
        Algorithm::Winograd
    } else {
        Algorithm::Direct
    };
    let scales: Vec<f32> = op
        .weight_scales
        .iter()
        .map(|scale| scale * op.x.scale)
        .collect();
    let (bias, residual, output) = (op.bias, op.residual, op.output);
    let clamp = bounds(op.activation);
    let run = move |io: &mut super::Io<'_>| {
        let residual = residual.map(|form| {
            let values = io.floats(2 + usize::from(bias));
            match form {
                Form::Floats => Residual::Floats(values),
                Form::Words(quantized) => Residual::Words(values, quantization(quantized)),
            }
        });
        let finish = Finish {
            scales: &scales,
            bias: bias.then(|| io.floats(2)),
            residual,
            clamp,
        };
        let (x, packed) = (io.floats(0), io.floats(1));
        let target = match output {
            Form::Floats => Target::Floats(io.out),
            Form::Words(quantized) => Target::Words(io.out, quantization(quantized)),
        };
        int8::forward(
            &geometry,
            algorithm,
            x,
            packed,
            &finish,
            target,
            io.workspace,
        )
    };
    Ok(Lowered::new(run).packing(pack(geometry, algorithm, op.weight_scales.clone())))
}

/// Channels that Winograd's algorithm isn't worth its transforms for.
const FEW_CHANNELS: usize = 15;

fn pack(geometry: Conv2dGeometry, algorithm: Algorithm, scales: Vec<f32>) -> Pack {
    Pack {
        input: 1,
        len: int8::packed_len(&geometry, algorithm),
        run: super::kernel(move |io| {
            let w = io.floats(0);
            let filter = (w.len() / scales.len().max(1)).max(1);
            let filters = w.chunks_exact(filter).zip(&scales);
            let numbers = filters.flat_map(|(filter, scale)| {
                let nearest =
                    move |w: &f32| (w / scale).round_ties_even().clamp(-127.0, 127.0) as i8;
                filter.iter().map(nearest)
            });
            let numbers: Vec<i8> = numbers.collect();
            int8::pack(&geometry, algorithm, &numbers, io.out, io.workspace)
        }),
    }
}
