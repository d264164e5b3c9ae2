//! Operations with gradients on candle tensors, capture, parameters, keyed randomness.

pub mod inplace;
pub mod ops;
