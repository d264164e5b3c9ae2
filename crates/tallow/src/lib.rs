//! From a data folder to a trained vision model, on candle.
