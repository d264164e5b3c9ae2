//! What the loss compares outputs with: the labels of a batch, or the probabilities that mixed labels stand for.

use candle_core::Tensor;
use candle_nn::ModuleT;
use tallow_data::{Batch, Mix};
use tallow_tensor::{no_grad, rng};

use super::Trainer;
use crate::{Error, Result};

impl<M: ModuleT> Trainer<M> {
    /// Labels `[N]` u32, or probabilities `[N, classes]` f32 for a mixed batch.
    pub(super) fn targets(&mut self, batch: &Batch) -> Result<Tensor> {
        match &batch.mix {
            None => Ok(batch.labels.clone()),
            Some(Mix::Soft(probabilities)) => Ok(probabilities.clone()),
            Some(Mix::Pair { labels, lambda }) => {
                let classes = self.classes(batch)?;
                mixed(&batch.labels, labels, lambda, classes)
            }
            Some(_) => Err(Error::Setting {
                what: "the mix of a batch",
                expected: "a pair of labels or soft labels".into(),
                found: "a kind of mix that this trainer doesn't know".into(),
            }),
        }
    }

    /// How many classes the model tells apart; asked of the model once.
    fn classes(&mut self, batch: &Batch) -> Result<usize> {
        if let Some(classes) = self.classes {
            return Ok(classes);
        }
        let _guard = no_grad::enter();
        let draws = rng::state();
        let outputs = self.model.forward_t(&batch.images.narrow(0, 0, 1)?, false);
        rng::restore(draws);
        let outputs = outputs?;
        let &[_, classes] = outputs.dims() else {
            return Err(Error::Setting {
                what: "the model's output, for batches with two labels an image,",
                expected: "[N, classes]".into(),
                found: format!("{:?}", outputs.dims()),
            });
        };
        self.classes = Some(classes);
        Ok(classes)
    }
}

/// `lambda` for the first label of each row, the rest for the second.
fn mixed(first: &Tensor, second: &Tensor, lambda: &Tensor, classes: usize) -> Result<Tensor> {
    let first_ids = first.to_vec1::<u32>()?;
    let pairs = first_ids.iter().copied().zip(second.to_vec1::<u32>()?);
    let mut rows = vec![0f32; first_ids.len() * classes];
    for (index, ((a, b), lambda)) in pairs.zip(lambda.to_vec1::<f32>()?).enumerate() {
        for (label, share) in [(a, lambda), (b, 1.0 - lambda)] {
            let label = label as usize;
            if label >= classes {
                return Err(Error::Setting {
                    what: "a label of a mixed batch",
                    expected: format!("a class from 0 to {}", classes.saturating_sub(1)),
                    found: label.to_string(),
                });
            }
            rows[index * classes + label] += share;
        }
    }
    let shape = (first_ids.len(), classes);
    Ok(Tensor::from_vec(rows, shape, first.device())?)
}
