//! Graphs from runs of models: what is recorded, what breaks a graph, what hides behind candle's tape.

use candle_core::{Device, Result, Tensor};
use candle_nn::{Init, ModuleT, VarBuilder};
use tallow_tensor::graph::{Graph, Op};
use tallow_tensor::ops::{self, BatchNormArgs, Conv2dConfig};
use tallow_tensor::{Break, Error, params, scope};

mod breaks;
mod hidden;
mod operations;
mod recording;

pub(crate) type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

pub(crate) const NORMAL: Init = Init::Randn {
    mean: 0.0,
    stdev: 0.5,
};

/// Convolution, batch normalisation, `activation`, mean over positions, linear.
pub(crate) struct Net {
    conv: Tensor,
    scale: Tensor,
    shift: Tensor,
    pub(crate) mean: Tensor,
    var: Tensor,
    head: Tensor,
    activation: fn(&Tensor) -> Result<Tensor>,
}

impl Net {
    pub(crate) fn new(
        vb: VarBuilder<'_>,
        activation: fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Self> {
        let bn = vb.pp("body.bn");
        Ok(Self {
            conv: vb
                .pp("body.conv")
                .get_with_hints((4, 3, 3, 3), "weight", NORMAL)?,
            scale: bn.get_with_hints(4, "weight", Init::Const(1.0))?,
            shift: bn.get_with_hints(4, "bias", NORMAL)?,
            mean: params::buffer(&bn, 4, "running_mean", 0.1)?,
            var: params::buffer(&bn, 4, "running_var", 1.0)?,
            head: vb.pp("head").get_with_hints((2, 4), "weight", NORMAL)?,
            activation,
        })
    }
}

impl ModuleT for Net {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let xs = {
            let _body = scope::enter("body");
            let xs = {
                let _conv = scope::enter("body.conv");
                let config = Conv2dConfig {
                    padding: [1, 1],
                    ..Default::default()
                };
                ops::conv2d(xs, &self.conv, None, &config)?
            };
            let xs = {
                let _bn = scope::enter("body.bn");
                let args = BatchNormArgs {
                    weight: &self.scale,
                    bias: &self.shift,
                    running_mean: &self.mean,
                    running_var: &self.var,
                    eps: 1e-5,
                    momentum: 0.1,
                };
                ops::batch_norm(&xs, &args, train)?
            };
            let xs = (self.activation)(&xs)?;
            let _pool = scope::enter("body.pool");
            ops::mean(&xs, &[2, 3], false)?
        };
        let _head = scope::enter("head");
        ops::linear(&xs, &self.head, None)
    }
}

pub(crate) fn image() -> Result<Tensor> {
    let values: Vec<f32> = (0..2 * 3 * 6 * 6)
        .map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0)
        .collect();
    Tensor::from_vec(values, (2, 3, 6, 6), &Device::Cpu)
}

pub(crate) fn vector(values: &[f32]) -> Result<Tensor> {
    Tensor::new(values, &Device::Cpu)
}

pub(crate) fn operations(graph: &Graph) -> Vec<&'static str> {
    let sources = |op: &Op| matches!(op, Op::Input(_) | Op::Param(_) | Op::Constant(_));
    let nodes = graph.nodes.iter().filter(|node| !sources(&node.op));
    nodes.map(|node| node.op.name()).collect()
}

pub(crate) fn breaks<T>(result: tallow_tensor::Result<T>) -> Vec<Break> {
    match result {
        Err(Error::GraphBreaks(breaks)) => breaks,
        Err(other) => panic!("not a graph break: {other}"),
        Ok(_) => Vec::new(),
    }
}
