//! Rows of a table by number.

use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use tallow_tensor::{ops, scope};

use crate::error::Site;
use crate::init;

/// `nn.Embedding`: row `ids[..]` of the weight, `u32` ids of any shape `[..]` to `[.., D]`. An id beyond the table is an
/// error.
///
/// Parameters: `weight [K, D]`, starting standard normal.
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Tensor,
    path: String,
}

impl Embedding {
    /// A table of `num_embeddings` rows of size `dim`. An error if either is zero.
    pub fn new(num_embeddings: usize, dim: usize, vb: VarBuilder) -> Result<Self> {
        let path = vb.prefix();
        Site::new("Embedding", &path)
            .positive(&[("num_embeddings", num_embeddings), ("dim", dim)])?;
        let weight = vb.get_with_hints((num_embeddings, dim), "weight", init::STANDARD_NORMAL)?;
        Ok(Self { weight, path })
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let _scope = scope::enter(&self.path);
        ops::embedding(ids, &self.weight)
    }
}
