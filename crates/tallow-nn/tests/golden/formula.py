"""Deterministic values that Python and Rust compute alike, so that no weights need to be stored.

Element i of the tensor called `name` is splitmix64(fnv1a64(name) + (i + 1) * golden_gamma), its upper 24 bits
mapped to [-1, 1). `parameter` scales that by what the name and shape say the tensor is. tests/reference/formula.rs
is the same in Rust.
"""

import math

import numpy as np
import torch

GAMMA = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def unit(name, count):
    """`count` f64 values in [-1, 1)."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a64(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(GAMMA)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / float(1 << 23) - 1.0


def scale_and_shift(name, shape):
    """Weights keep the variance of a ReLU network, norms stay near one, variances positive."""
    last = name.rsplit(".", 1)[-1]
    if last == "running_var":
        return 0.5, 1.0
    if last in ("cls_token", "pos_embed"):
        return 0.5, 0.0
    if len(shape) >= 2:
        return math.sqrt(6.0 / math.prod(shape[1:])), 0.0
    if last in ("weight", "gamma"):
        return 0.2, 1.0
    return 0.1, 0.0


def parameter(name, shape):
    """The value of the parameter or buffer called `name`, f32."""
    if name.endswith("num_batches_tracked"):
        return torch.tensor(0, dtype=torch.int64)
    scale, shift = scale_and_shift(name, shape)
    values = unit(name, math.prod(shape)) * scale + shift
    return torch.from_numpy(values.astype(np.float32).reshape(shape))


def image(name, shape):
    """An input, uniform in [-1, 1), f32."""
    return torch.from_numpy(unit(name, math.prod(shape)).astype(np.float32).reshape(shape))


def fill(model):
    """Gives every parameter and buffer of `model` its formula value."""
    state = {name: parameter(name, tuple(t.shape)) for name, t in model.state_dict().items()}
    model.load_state_dict(state, strict=True)
    return model
