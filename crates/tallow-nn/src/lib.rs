//! Layers and vision models for candle, with PyTorch-compatible parameter names.
