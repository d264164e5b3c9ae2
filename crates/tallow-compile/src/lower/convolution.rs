//! Convolutions, channels last. Weights are packed by a call of their own, which inference makes once.

use tallow_graph::op::{Conv2d, FusedConv2d, Grad};
use tallow_kernels::channels_last::conv::{self, Algorithm, Direction, Finish};
use tallow_kernels::conv::Conv2dGeometry;

use super::normalization::clamp;
use super::{Lowered, Pack, Site};
use crate::Result;
use crate::plan::{Choices, ConvolutionSite, Phase};

/// The geometry of a convolution of x with weight.
pub(super) fn geometry(
    site: &Site<'_>,
    op: &Conv2d,
    x: &[usize],
    weight: &[usize],
) -> Result<Conv2dGeometry> {
    let [batch, channels, height, width] = site.image(x)?;
    let [out, _, rows, columns] = site.image(weight)?;
    Conv2dGeometry::new(
        batch,
        channels,
        [height, width],
        out,
        [rows, columns],
        op.stride,
        op.padding,
        op.dilation,
        op.groups,
    )
    .map_err(|error| site.kernel_error(error))
}

/// Adds the call that packs the weight, input number 1, if the algorithm has it packed.
fn packing(
    lowered: Lowered,
    geometry: Conv2dGeometry,
    direction: Direction,
    algorithm: Algorithm,
) -> Lowered {
    if !algorithm.packs() {
        return lowered;
    }
    lowered.packing(Pack {
        input: 1,
        len: conv::packed_len(&geometry, direction, algorithm),
        run: super::kernel(move |io| {
            conv::pack(&geometry, direction, algorithm, io.floats(0), io.out)
        }),
    })
}

pub(super) fn conv2d(site: &Site<'_>, op: &Conv2d, choices: &mut dyn Choices) -> Result<Lowered> {
    let fused = FusedConv2d {
        conv: op.clone(),
        bias: site.inputs.len() > 2,
        residual: false,
        activation: None,
    };
    self::fused(site, &fused, choices)
}

pub(super) fn fused(
    site: &Site<'_>,
    op: &FusedConv2d,
    choices: &mut dyn Choices,
) -> Result<Lowered> {
    let geometry = geometry(site, &op.conv, site.shape(0), site.shape(1))?;
    let algorithm = choices.convolution(&ConvolutionSite {
        geometry,
        phase: Phase::Forward,
        packs: site.packs,
    });
    let (bias, residual) = (op.bias, op.residual);
    let bounds = bounds(op.activation);
    let run = move |io: &mut super::Io<'_>| {
        let finish = Finish {
            bias: bias.then(|| io.floats(2)),
            residual: residual.then(|| io.floats(2 + usize::from(bias))),
            clamp: bounds,
        };
        let (x, packed) = (io.floats(0), io.floats(1));
        conv::forward(
            &geometry,
            algorithm,
            x,
            packed,
            &finish,
            io.out,
            io.workspace,
        )
    };
    let lowered = Lowered::new(run);
    Ok(packing(lowered, geometry, Direction::Forward, algorithm))
}

/// What an activation clamps to.
pub(super) fn bounds(activation: Option<tallow_graph::op::Clamp>) -> Option<[f32; 2]> {
    use tallow_kernels::channels_last::norm::Clamp;
    match clamp(activation) {
        Clamp::None => None,
        Clamp::Relu => Some([0.0, f32::INFINITY]),
        Clamp::Relu6 => Some([0.0, 6.0]),
    }
}

/// From dy, the weight and what is to be added.
pub(super) fn backward_input(
    site: &Site<'_>,
    grad: &Grad,
    op: &Conv2d,
    choices: &mut dyn Choices,
) -> Result<Lowered> {
    let geometry = geometry(site, op, &grad.inputs[0].shape, &grad.inputs[1].shape)?;
    let algorithm = choices.convolution(&ConvolutionSite {
        geometry,
        phase: Phase::BackwardInput,
        packs: site.packs,
    });
    let add = grad.add;
    let run = move |io: &mut super::Io<'_>| {
        let add = add.then(|| io.floats(2));
        let (dy, packed) = (io.floats(0), io.floats(1));
        conv::backward_input(&geometry, algorithm, packed, dy, add, io.out, io.workspace)
    };
    let lowered = Lowered::new(run);
    Ok(packing(
        lowered,
        geometry,
        Direction::BackwardInput,
        algorithm,
    ))
}

/// From dy and x.
pub(super) fn backward_weight(
    site: &Site<'_>,
    grad: &Grad,
    op: &Conv2d,
    choices: &mut dyn Choices,
) -> Result<Lowered> {
    let geometry = geometry(site, op, &grad.inputs[0].shape, &grad.inputs[1].shape)?;
    let algorithm = choices.convolution(&ConvolutionSite {
        geometry,
        phase: Phase::BackwardWeight,
        packs: false,
    });
    Ok(Lowered::new(move |io| {
        let (dy, x) = (io.floats(0), io.floats(1));
        conv::backward_weight(&geometry, algorithm, x, dy, io.out, io.workspace)
    }))
}
