//! Long short-term memory.

use candle_core::{Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_tensor::ops;

use super::RecurrentConfig;
use super::recurrent::{Cell, Recurrent, gate};

/// `nn.LSTM` (Hochreiter and Schmidhuber 1997). With `a = W_ih x + b_ih + W_hh h + b_hh` in four blocks `i f g o`:
/// `c' = sigmoid(f) c + sigmoid(i) tanh(g)`, `h' = sigmoid(o) tanh(c')`.
///
/// `[L, N, C]` to `[L, N, H]`, batch first if configured so, `2 H` if bidirectional.
///
/// Parameters a layer `k`: `weight_ih_lk [4 H, C]`, `weight_hh_lk [4 H, H]`, `bias_ih_lk [4 H]`, `bias_hh_lk [4 H]`, and
/// the same with `_reverse`; all start uniform in `±1 / sqrt(H)`.
#[derive(Debug, Clone)]
pub struct Lstm {
    inner: Recurrent,
}

/// State of an [`Lstm`] between steps, `[layers * directions, N, H]` each.
#[derive(Debug, Clone)]
pub struct LstmState {
    /// The hidden state, `h_n` in PyTorch.
    pub h: Tensor,
    /// The cell state, `c_n` in PyTorch.
    pub c: Tensor,
}

struct LstmCell;

impl Cell for LstmCell {
    const NAME: &'static str = "Lstm";
    const GATES: usize = 4;
    const STATES: usize = 2;

    fn step(input: &Tensor, hidden: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        let (gates, c) = (ops::add(input, hidden)?, &state[1]);
        let size = c.dims()[1];
        let i = ops::sigmoid(&gate(&gates, 0, size)?)?;
        let f = ops::sigmoid(&gate(&gates, 1, size)?)?;
        let g = ops::tanh(&gate(&gates, 2, size)?)?;
        let o = ops::sigmoid(&gate(&gates, 3, size)?)?;
        let c = ops::add(&ops::mul(&f, c)?, &ops::mul(&i, &g)?)?;
        let h = ops::mul(&o, &ops::tanh(&c)?)?;
        Ok(vec![h, c])
    }
}

impl Lstm {
    /// An error if a size is zero or the dropout is not in `0..1`.
    pub fn new(
        input_size: usize,
        hidden_size: usize,
        config: RecurrentConfig,
        vb: VarBuilder,
    ) -> Result<Self> {
        Ok(Self {
            inner: Recurrent::new::<LstmCell>(input_size, hidden_size, config, vb)?,
        })
    }

    /// The outputs and the last state, starting from `state` or from zeros.
    pub fn forward_state(
        &self,
        xs: &Tensor,
        state: Option<&LstmState>,
        train: bool,
    ) -> Result<(Tensor, LstmState)> {
        let initial = state.map(|state| [&state.h, &state.c]);
        let (ys, states) =
            self.inner
                .run::<LstmCell>(xs, initial.as_ref().map(|s| s.as_slice()), train)?;
        Ok((
            ys,
            LstmState {
                h: states[0].clone(),
                c: states[1].clone(),
            },
        ))
    }
}

impl ModuleT for Lstm {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.forward_state(xs, None, train).map(|(ys, _)| ys)
    }
}
