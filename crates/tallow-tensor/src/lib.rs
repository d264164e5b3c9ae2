//! Operations with gradients on candle tensors, capture, parameters, keyed randomness.
