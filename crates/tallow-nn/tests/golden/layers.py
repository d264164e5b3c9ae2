"""Golden cases of single layers: inputs, parameters, outputs and gradients, all stored."""

import torch
import torch.nn as nn
from timm.layers import ConvNormAct, LayerScale, Mlp, PatchEmbed
from timm.models.vision_transformer import Attention, Block
from torchvision.models.resnet import BasicBlock, Bottleneck


def rand(shape, generator, scale=1.0):
    return torch.randn(shape, generator=generator, dtype=torch.float32) * scale


def randomise(module, generator):
    """Draws every parameter and buffer: norms near one, variances positive, weights small."""
    state = {}
    for name, tensor in module.state_dict().items():
        last = name.rsplit(".", 1)[-1]
        if last == "num_batches_tracked":
            state[name] = tensor
            continue
        value = rand(tensor.shape, generator, 0.3)
        if last == "running_var":
            value = value.abs() + 0.5
        elif last in ("weight", "gamma") and tensor.dim() == 1:
            value = value + 1.0
        state[name] = value
    module.load_state_dict(state)
    return module


def trace(module, x, train, generator):
    """Runs forward and backward in f64; returns the tensors of the case by role."""
    module = module.double().train(train)
    case = {f"param.{n}": t.clone() for n, t in module.state_dict().items() if t.is_floating_point()}
    case["input"] = x.clone()
    if x.is_floating_point():
        x = x.double().requires_grad_()
    y = module(x)
    states = {}
    if isinstance(y, tuple):  # LSTM: (output, (h, c)); GRU: (output, h)
        y, final = y
        states = {"h_n": final[0], "c_n": final[1]} if isinstance(final, tuple) else {"h_n": final}
    cotangent = rand(y.shape, generator)
    loss = (y * cotangent.double()).sum()
    loss.backward()
    case["output"], case["cotangent"] = y, cotangent
    case.update({f"state.{n}": t for n, t in states.items()})
    if x.is_floating_point():
        case["input_grad"] = x.grad
    case.update({f"grad.{n}": p.grad for n, p in module.named_parameters()})
    if train:
        case.update({f"after.{n}": b for n, b in module.named_buffers() if b.is_floating_point()})
    return {n: t.detach().float().contiguous() if t.is_floating_point() else t for n, t in case.items()}


def conv_norm_act(i, o, kernel=3, **kw):
    return ConvNormAct(i, o, kernel, **kw)


def downsample(i, o, stride):
    return nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))


def cases():
    """(file, case, module, input shape or tensor, train). Train matters to batch norm alone."""
    yield "conv2d", "3x3_padding1", nn.Conv2d(3, 5, 3, padding=1), (2, 3, 7, 6), True
    yield "conv2d", "7x7_stride2_padding3_no_bias", nn.Conv2d(3, 4, 7, 2, 3, bias=False), (2, 3, 12, 11), True
    yield "conv2d", "1x1", nn.Conv2d(6, 4, 1), (2, 6, 5, 5), True
    yield "conv2d", "dilation2", nn.Conv2d(3, 4, 3, dilation=2, padding=2), (1, 3, 8, 8), True
    yield "conv2d", "groups2_stride2", nn.Conv2d(4, 6, 3, 2, 1, groups=2), (2, 4, 7, 7), True
    yield "conv2d", "depthwise", nn.Conv2d(6, 6, 3, padding=1, groups=6), (2, 6, 6, 6), True
    yield "conv2d", "rectangular", nn.Conv2d(2, 3, (1, 5), (1, 2), (0, 2)), (2, 2, 4, 9), True
    yield "linear", "matrix", nn.Linear(7, 5), (4, 7), True
    yield "linear", "no_bias", nn.Linear(7, 5, bias=False), (4, 7), True
    yield "linear", "tokens", nn.Linear(6, 8), (2, 3, 6), True
    for mode in (True, False):
        name = "train" if mode else "eval"
        yield "batch_norm2d", name, nn.BatchNorm2d(4), (3, 4, 5, 5), mode
        yield "batch_norm2d", f"{name}_eps_momentum", nn.BatchNorm2d(4, eps=1e-3, momentum=0.3), (3, 4, 2, 5), mode
        yield "conv_norm_act", f"relu_{name}", conv_norm_act(3, 8), (2, 3, 6, 6), mode
        yield ("conv_norm_act", f"relu6_stride2_{name}", conv_norm_act(3, 8, stride=2, padding=1, act_layer=nn.ReLU6),
               (2, 3, 8, 8), mode)
        yield ("conv_norm_act", f"no_act_1x1_{name}", conv_norm_act(4, 6, 1, apply_act=False), (2, 4, 5, 5), mode)
        yield "basic_block", f"identity_{name}", BasicBlock(8, 8), (2, 8, 6, 6), mode
        yield "basic_block", f"downsample_{name}", BasicBlock(6, 8, 2, downsample(6, 8, 2)), (2, 6, 8, 8), mode
        yield "bottleneck", f"identity_{name}", Bottleneck(16, 4), (2, 16, 6, 6), mode
        yield "bottleneck", f"downsample_{name}", Bottleneck(8, 4, 2, downsample(8, 16, 2)), (2, 8, 8, 8), mode
    yield "layer_norm", "tokens", nn.LayerNorm(8), (2, 3, 8), True
    yield "layer_norm", "eps_1e-6", nn.LayerNorm(8, eps=1e-6), (5, 8), True
    yield "group_norm", "groups2", nn.GroupNorm(2, 6), (2, 6, 4, 5), True
    yield "group_norm", "groups3_eps", nn.GroupNorm(3, 6, eps=1e-3), (2, 6, 3, 3), True
    yield "layer_scale", "tokens", LayerScale(6), (2, 4, 6), True
    yield from activations()
    yield from pools()
    yield "patch_embed", "patch4", PatchEmbed(8, 4, 3, 6), (2, 3, 8, 8), True
    yield "mlp", "gelu", Mlp(6, 12), (2, 5, 6), True
    yield "attention", "heads2", Attention(8, 2, qkv_bias=True), (2, 5, 8), True
    yield "attention", "no_qkv_bias", Attention(8, 4), (2, 5, 8), True
    yield "attention", "qk_norm", Attention(8, 2, qkv_bias=True, qk_norm=True, norm_layer=norm6), (2, 5, 8), True
    yield "vit_block", "plain", Block(8, 2, qkv_bias=True), (2, 5, 8), True
    yield "vit_block", "layer_scale", Block(8, 2, 2.0, qkv_bias=True, init_values=1e-5), (2, 5, 8), True
    ids = torch.tensor([[1, 4, 4], [0, 6, 1]], dtype=torch.int64)
    yield "embedding", "repeated_ids", nn.Embedding(7, 5), ids, True
    for name, layer in (("lstm", nn.LSTM), ("gru", nn.GRU)):
        yield name, "one_layer", layer(5, 4), (6, 3, 5), True
        yield name, "two_layers_batch_first", layer(5, 4, 2, batch_first=True), (3, 6, 5), True
        yield name, "bidirectional_two_layers", layer(5, 4, 2, bidirectional=True), (4, 2, 5), True
        yield name, "no_bias", layer(5, 4, bias=False), (4, 2, 5), True


def norm6(dim, **kw):
    return nn.LayerNorm(dim, eps=1e-6, **kw)


def activations():
    table = {
        "relu": nn.ReLU(), "relu6": nn.ReLU6(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU(approximate="tanh"),
        "silu": nn.SiLU(), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh(), "hardswish": nn.Hardswish(),
    }
    for name, module in table.items():
        yield "activation", name, module, (4, 3, 5), True


def pools():
    size = (2, 3, 7, 8)
    yield "pool", "max_2", nn.MaxPool2d(2), size, True
    yield "pool", "max_3_stride2_padding1", nn.MaxPool2d(3, 2, 1), size, True
    yield "pool", "max_3_stride2_ceil", nn.MaxPool2d(3, 2, ceil_mode=True), size, True
    yield "pool", "avg_2", nn.AvgPool2d(2), size, True
    yield "pool", "avg_3_stride2_padding1", nn.AvgPool2d(3, 2, 1), size, True
    yield "pool", "avg_3_exclude_pad", nn.AvgPool2d(3, 2, 1, count_include_pad=False), size, True
    yield "pool", "avg_3_stride2_ceil", nn.AvgPool2d(3, 2, 1, ceil_mode=True), size, True
    yield "pool", "adaptive_avg_1", nn.AdaptiveAvgPool2d(1), size, True
    yield "pool", "adaptive_avg_3x5", nn.AdaptiveAvgPool2d((3, 5)), size, True
    yield "pool", "adaptive_max_3x5", nn.AdaptiveMaxPool2d((3, 5)), size, True


def make():
    """{file: {"case/role": tensor}}"""
    files = {}
    for index, (file, case, module, source, train) in enumerate(cases()):
        generator = torch.Generator().manual_seed(1000 + index)
        randomise(module, generator)
        scale = 4.0 if file == "activation" else 1.0  # beyond 6 for relu6, beyond 3 for hardswish
        x = rand(source, generator, scale) if isinstance(source, tuple) else source
        for role, tensor in trace(module, x, train, generator).items():
            files.setdefault(file, {})[f"{case}/{role}"] = tensor
    return files
