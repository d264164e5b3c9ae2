//! Gated recurrent unit.

use candle_core::{Result, Tensor};
use candle_nn::{ModuleT, VarBuilder};
use tallow_tensor::ops;

use super::RecurrentConfig;
use super::recurrent::{Cell, Recurrent, gate};

/// `nn.GRU` (Cho et al. 2014). With `a = W_ih x + b_ih` and `b = W_hh h + b_hh` in three blocks `r z n`:
/// `r = sigmoid(a_r + b_r)`, `z = sigmoid(a_z + b_z)`, `n = tanh(a_n + r b_n)`, `h' = (1 - z) n + z h`.
///
/// `[L, N, C]` to `[L, N, H]`, batch first if configured so, `2 H` if bidirectional.
///
/// Parameters a layer `k`: `weight_ih_lk [3 H, C]`, `weight_hh_lk [3 H, H]`, `bias_ih_lk [3 H]`, `bias_hh_lk [3 H]`, and
/// the same with `_reverse`; all start uniform in `±1 / sqrt(H)`.
#[derive(Debug, Clone)]
pub struct Gru {
    inner: Recurrent,
}

struct GruCell;

impl Cell for GruCell {
    const NAME: &'static str = "Gru";
    const GATES: usize = 3;
    const STATES: usize = 1;

    fn step(input: &Tensor, hidden: &Tensor, state: &[Tensor]) -> Result<Vec<Tensor>> {
        let h = &state[0];
        let size = h.dims()[1];
        let both = |index| ops::add(&gate(input, index, size)?, &gate(hidden, index, size)?);
        let r = ops::sigmoid(&both(0)?)?;
        let z = ops::sigmoid(&both(1)?)?;
        let n = ops::add(
            &gate(input, 2, size)?,
            &ops::mul(&r, &gate(hidden, 2, size)?)?,
        )?;
        let n = ops::tanh(&n)?;
        // (1 - z) n + z h, with one multiplication less
        Ok(vec![ops::add(&n, &ops::mul(&z, &ops::sub(h, &n)?)?)?])
    }
}

impl Gru {
    /// An error if a size is zero or the dropout is not in `0..1`.
    pub fn new(
        input_size: usize,
        hidden_size: usize,
        config: RecurrentConfig,
        vb: VarBuilder,
    ) -> Result<Self> {
        Ok(Self {
            inner: Recurrent::new::<GruCell>(input_size, hidden_size, config, vb)?,
        })
    }

    /// The outputs and the last hidden state `[layers * directions, N, H]`, starting from `state` or from zeros.
    pub fn forward_state(
        &self,
        xs: &Tensor,
        state: Option<&Tensor>,
        train: bool,
    ) -> Result<(Tensor, Tensor)> {
        let initial = state.map(|h| [h]);
        let (ys, states) =
            self.inner
                .run::<GruCell>(xs, initial.as_ref().map(|s| s.as_slice()), train)?;
        Ok((ys, states[0].clone()))
    }
}

impl ModuleT for Gru {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.forward_state(xs, None, train).map(|(ys, _)| ys)
    }
}
