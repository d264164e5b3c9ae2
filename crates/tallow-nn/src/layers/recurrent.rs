//! What LSTM and GRU share: layers, directions, PyTorch's parameter names, and the walk over time. The cells
//! themselves are in `lstm.rs` and `gru.rs`.

use candle_core::{Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_tensor::{ops, scope};

use super::Dropout;
use crate::error::Site;
use crate::init;

/// Settings of [`Lstm`](super::Lstm) and [`Gru`](super::Gru), with the defaults of `nn.LSTM` and `nn.GRU`.
#[derive(Debug, Clone, Copy)]
pub struct RecurrentConfig {
    /// Layers on top of each other; 1.
    pub num_layers: usize,
    /// Whether there are biases; true.
    pub bias: bool,
    /// Whether sequences are `[N, L, C]` and not `[L, N, C]`; false.
    pub batch_first: bool,
    /// Dropout between the layers; 0.
    pub dropout: f64,
    /// Whether a second set of weights reads the sequence backwards; false.
    pub bidirectional: bool,
}

impl Default for RecurrentConfig {
    fn default() -> Self {
        Self {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
        }
    }
}

/// The formula of one step.
pub(crate) trait Cell {
    /// PyTorch's class name.
    const NAME: &'static str;
    /// Blocks of `hidden_size` rows in the weights.
    const GATES: usize;
    /// Tensors carried from step to step; the first is the output.
    const STATES: usize;

    /// The next state from `input = W_ih x + b_ih` and `hidden = W_hh h + b_hh`, `[N, GATES * H]` each.
    fn step(input: &Tensor, hidden: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>>;
}

/// Columns of gate `index` in `[N, GATES * H]`.
pub(crate) fn gate(gates: &Tensor, index: usize, hidden_size: usize) -> Result<Tensor> {
    ops::slice(gates, 1, index * hidden_size, (index + 1) * hidden_size)
}

/// One direction of one layer.
#[derive(Debug, Clone)]
struct Direction {
    weight_ih: Tensor,
    weight_hh: Tensor,
    biases: Option<[Tensor; 2]>,
    reverse: bool,
}

/// All directions of all layers, in the order of PyTorch's states: layer by layer, forward before backward.
#[derive(Debug, Clone)]
pub(crate) struct Recurrent {
    directions: Vec<Direction>,
    config: RecurrentConfig,
    dropout: Dropout,
    input_size: usize,
    hidden_size: usize,
    path: String,
}

impl Recurrent {
    pub(crate) fn new<C: Cell>(
        input_size: usize,
        hidden_size: usize,
        config: RecurrentConfig,
        vb: VarBuilder,
    ) -> Result<Self> {
        let path = vb.prefix();
        let site = Site::new(C::NAME, &path);
        site.positive(&[
            ("input_size", input_size),
            ("hidden_size", hidden_size),
            ("num_layers", config.num_layers),
        ])?;
        site.drop_rate("dropout", config.dropout)?;
        let ways = if config.bidirectional { 2 } else { 1 };
        let rows = C::GATES * hidden_size;
        let start = init::uniform_fan_in(hidden_size);
        let mut directions = Vec::with_capacity(config.num_layers * ways);
        for layer in 0..config.num_layers {
            let width = if layer == 0 {
                input_size
            } else {
                hidden_size * ways
            };
            for suffix in ["", "_reverse"].into_iter().take(ways) {
                let name = |kind| format!("{kind}_l{layer}{suffix}");
                let bias = |kind| vb.get_with_hints(rows, &name(kind), start);
                directions.push(Direction {
                    weight_ih: vb.get_with_hints((rows, width), &name("weight_ih"), start)?,
                    weight_hh: vb.get_with_hints((rows, hidden_size), &name("weight_hh"), start)?,
                    biases: if config.bias {
                        Some([bias("bias_ih")?, bias("bias_hh")?])
                    } else {
                        None
                    },
                    reverse: !suffix.is_empty(),
                });
            }
        }
        let dropout = Dropout::new(config.dropout)?;
        Ok(Self {
            directions,
            config,
            dropout,
            input_size,
            hidden_size,
            path,
        })
    }

    /// Outputs and last states; `initial` holds `C::STATES` tensors `[layers * directions, N, H]`, zeros if absent.
    pub(crate) fn run<C: Cell>(
        &self,
        xs: &Tensor,
        initial: Option<&[&Tensor]>,
        train: bool,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let _scope = scope::enter(&self.path);
        let xs = self.time_first::<C>(xs)?;
        let batch = xs.dims()[1];
        self.check_initial::<C>(initial, batch)?;
        let ways = if self.config.bidirectional { 2 } else { 1 };
        let mut finals = Vec::with_capacity(self.directions.len());
        let mut ys = xs;
        for (layer, directions) in self.directions.chunks(ways).enumerate() {
            if layer > 0 {
                ys = self.dropout.forward_t(&ys, train)?;
            }
            let mut outputs = Vec::with_capacity(ways);
            for (way, direction) in directions.iter().enumerate() {
                let state = self.initial_state::<C>(initial, layer * ways + way, &ys)?;
                let (output, last) = self.scan::<C>(direction, &ys, state)?;
                outputs.push(output);
                finals.push(last);
            }
            ys = concat(&outputs, 2)?;
        }
        let states = (0..C::STATES).map(|s| self.stack(finals.iter().map(|last| &last[s]), batch));
        let states = states.collect::<Result<Vec<_>>>()?;
        let ys = if self.config.batch_first {
            ops::transpose(&ys, 0, 1)?
        } else {
            ys
        };
        Ok((ys, states))
    }

    /// The input as `[L, N, C]`.
    fn time_first<C: Cell>(&self, xs: &Tensor) -> Result<Tensor> {
        let layout = if self.config.batch_first {
            "[N, L,"
        } else {
            "[L, N,"
        };
        match xs.dims() {
            [a, b, width] if *width == self.input_size && a * b > 0 => {}
            dims => {
                let expected = format!("{layout} {}] and not empty", self.input_size);
                return Site::new(C::NAME, &self.path).input(format!("{dims:?}"), expected);
            }
        }
        if self.config.batch_first {
            ops::transpose(xs, 0, 1)
        } else {
            Ok(xs.clone())
        }
    }

    fn check_initial<C: Cell>(&self, initial: Option<&[&Tensor]>, batch: usize) -> Result<()> {
        let expected = [self.directions.len(), batch, self.hidden_size];
        match initial
            .unwrap_or_default()
            .iter()
            .find(|state| state.dims() != expected)
        {
            Some(state) => Site::new(C::NAME, &self.path).input(
                format!("an initial state of {:?}", state.dims()),
                format!("of {expected:?}"),
            ),
            None => Ok(()),
        }
    }

    fn initial_state<C: Cell>(
        &self,
        initial: Option<&[&Tensor]>,
        index: usize,
        like: &Tensor,
    ) -> Result<Vec<Tensor>> {
        let shape = [like.dims()[1], self.hidden_size];
        match initial {
            Some(states) => states
                .iter()
                .map(|s| ops::reshape(&ops::slice(s, 0, index, index + 1)?, &shape))
                .collect(),
            None => (0..C::STATES)
                .map(|_| Tensor::zeros(&shape, like.dtype(), like.device()))
                .collect(),
        }
    }

    /// One direction over the whole sequence `[L, N, C]`: outputs `[L, N, H]` and the last state.
    fn scan<C: Cell>(
        &self,
        direction: &Direction,
        xs: &Tensor,
        mut state: Vec<Tensor>,
    ) -> Result<(Tensor, Vec<Tensor>)> {
        let (length, batch) = (xs.dims()[0], xs.dims()[1]);
        let [bias_ih, bias_hh] = match &direction.biases {
            Some([ih, hh]) => [Some(ih), Some(hh)],
            None => [None, None],
        };
        let inputs = ops::linear(xs, &direction.weight_ih, bias_ih)?;
        let mut outputs = Vec::with_capacity(length);
        for step in 0..length {
            let t = if direction.reverse {
                length - 1 - step
            } else {
                step
            };
            let input = ops::reshape(
                &ops::slice(&inputs, 0, t, t + 1)?,
                &[batch, C::GATES * self.hidden_size],
            )?;
            let hidden = ops::linear(&state[0], &direction.weight_hh, bias_hh)?;
            state = C::step(&input, &hidden, &state)?;
            outputs.push(ops::reshape(&state[0], &[1, batch, self.hidden_size])?);
        }
        if direction.reverse {
            outputs.reverse();
        }
        Ok((concat(&outputs, 0)?, state))
    }

    /// `[N, H]` each to `[count, N, H]`.
    fn stack<'a>(&self, states: impl Iterator<Item = &'a Tensor>, batch: usize) -> Result<Tensor> {
        let rows = states.map(|state| ops::reshape(state, &[1, batch, self.hidden_size]));
        concat(&rows.collect::<Result<Vec<_>>>()?, 0)
    }
}

fn concat(parts: &[Tensor], dim: usize) -> Result<Tensor> {
    match parts {
        [only] => Ok(only.clone()),
        _ => ops::concat(&parts.iter().collect::<Vec<_>>(), dim),
    }
}
