"""Writes ops.safetensors: inputs, outputs and gradients of every operation, computed by PyTorch in f64.

    python3 -m venv venv && ./venv/bin/pip install torch safetensors numpy
    ./venv/bin/python crates/tallow-tensor/tests/golden/ops.py

Keys: CASE/in0.. (inputs), CASE/out, CASE/weights (the loss is sum(out * weights)), CASE/grad0.. (of the loss, by each
floating-point input that takes one). The cases of tests/ops/ have the same names.
"""

import pathlib

import safetensors.torch
import torch
import torch.nn.functional as F

torch.manual_seed(42)
tensors = {}


def randn(*shape, scale=1.0):
    return torch.randn(shape, dtype=torch.float64) * scale


def steps(*shape):
    """Small integers, so that windows hold ties."""
    return torch.randint(0, 3, shape).to(torch.float64)


def case(name, run, *inputs, constant=()):
    inputs = [x.clone() for x in inputs]
    for i, x in enumerate(inputs):
        tensors[f"{name}/in{i}"] = x.clone()
        if x.is_floating_point() and i not in constant:
            x.requires_grad_()
    out = run(*inputs)
    weights = randn(*out.shape)
    (out * weights).sum().backward()
    tensors[f"{name}/out"] = out.detach()
    tensors[f"{name}/weights"] = weights
    for i, x in enumerate(inputs):
        if x.requires_grad:
            tensors[f"{name}/grad{i}"] = x.grad


def activations():
    xs = randn(5, 13, scale=3.0)
    case("relu", F.relu, xs)
    case("relu6", F.relu6, xs)
    case("gelu", F.gelu, xs)
    case("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), xs)
    case("silu", F.silu, xs)
    case("sigmoid", torch.sigmoid, xs)
    case("tanh", torch.tanh, xs)
    case("hardswish", F.hardswish, xs)
    corners = torch.tensor([-3.0, 0.0, 3.0, 6.0, -0.0, -100.0, 100.0], dtype=torch.float64)
    for name, run in [
        ("relu", F.relu),
        ("relu6", F.relu6),
        ("gelu", F.gelu),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")),
        ("silu", F.silu),
        ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh),
        ("hardswish", F.hardswish),
    ]:
        case(f"{name}_corners", run, corners)


def arithmetic():
    a, b, narrow = randn(2, 3, 4), randn(2, 3, 4), randn(3, 1)
    for name, run in [("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div)]:
        offset = 3.0 if name == "div" else 0.0
        case(name, run, a, b + offset)
        case(f"{name}_broadcast_right", run, a, narrow + offset)
        case(f"{name}_broadcast_left", run, narrow, a + offset)
        case(f"{name}_channels", run, randn(2, 3, 4, 5), randn(3, 1, 1) + offset)
    case("add_scalar", lambda x: x + 2.5, a)
    case("mul_scalar", lambda x: x * -1.5, a)
    case("mul_scalar_zero", lambda x: x * 0.0, a)


def convolutions():
    def conv(name, x, w, bias, **config):
        if bias:
            case(name, lambda x, w, b: F.conv2d(x, w, b, **config), x, w, randn(w.shape[0]))
        else:
            case(name, lambda x, w: F.conv2d(x, w, None, **config), x, w)

    conv("conv2d", randn(2, 3, 7, 6), randn(4, 3, 3, 3), True, padding=1)
    conv("conv2d_no_bias", randn(2, 3, 7, 6), randn(4, 3, 3, 3), False, padding=1)
    conv("conv2d_pointwise", randn(2, 5, 4, 3), randn(6, 5, 1, 1), False)
    conv("conv2d_pointwise_stride", randn(2, 5, 5, 7), randn(6, 5, 1, 1), False, stride=2)
    conv("conv2d_stride", randn(2, 3, 8, 8), randn(4, 3, 3, 3), False, stride=2, padding=1)
    conv("conv2d_unread_lines", randn(2, 3, 8, 7), randn(4, 3, 3, 3), True, stride=2)
    conv("conv2d_stem", randn(1, 3, 15, 17), randn(4, 3, 7, 7), False, stride=2, padding=3)
    conv("conv2d_dilation", randn(2, 3, 9, 9), randn(4, 3, 3, 3), False, padding=2, dilation=2)
    conv("conv2d_groups", randn(2, 4, 6, 6), randn(6, 2, 3, 3), True, padding=1, groups=2)
    conv("conv2d_depthwise", randn(2, 5, 6, 6), randn(5, 1, 3, 3), True, padding=1, groups=5)
    conv("conv2d_depthwise_stride", randn(2, 5, 7, 6), randn(10, 1, 3, 3), False, padding=1, stride=2, groups=5)
    conv("conv2d_uneven", randn(2, 3, 7, 9), randn(4, 3, 2, 3), True, stride=(2, 1), padding=(0, 2), dilation=(1, 2))
    conv("conv2d_more_padding_than_input", randn(1, 2, 1, 1), randn(3, 2, 1, 1), False, stride=3, padding=1)
    conv("conv2d_many_channels", randn(2, 20, 10, 9), randn(18, 20, 3, 3), False, padding=1)
    conv("conv2d_patches", randn(2, 3, 8, 8), randn(10, 3, 4, 4), True, stride=4)


def products():
    case("linear", F.linear, randn(6, 5), randn(4, 5), randn(4))
    case("linear_no_bias", F.linear, randn(6, 5), randn(4, 5))
    case("linear_tokens", F.linear, randn(2, 3, 5), randn(4, 5), randn(4))
    case("linear_vector", F.linear, randn(5), randn(4, 5), randn(4))
    case("matmul", torch.matmul, randn(3, 4), randn(4, 5))
    case("matmul_batched", torch.matmul, randn(2, 3, 3, 4), randn(2, 3, 4, 5))
    case("matmul_broadcast", torch.matmul, randn(2, 1, 3, 4), randn(5, 4, 2))
    case("matmul_shared_right", torch.matmul, randn(2, 3, 4), randn(4, 2))
    attend = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5)
    case("attention", attend, randn(2, 3, 5, 4), randn(2, 3, 6, 4), randn(2, 3, 6, 7))
    ids = torch.tensor([[3, 0, 3], [1, 3, 0]])
    case("embedding", F.embedding, ids, randn(5, 4))


def normalizations():
    def train(x, w, b, m, v):
        return F.batch_norm(x, m.clone(), v.clone(), w, b, True, 0.1, 1e-5)

    def evaluate(x, w, b, m, v):
        return F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5)

    vectors = lambda c: (randn(c), randn(c), randn(c), randn(c).square() + 0.5)
    for name, shape in [("", (4, 3, 5, 2)), ("_features", (6, 3)), ("_sequence", (4, 3, 5))]:
        case(f"batch_norm_train{name}", train, randn(*shape) + 2.0, *vectors(3), constant=(3, 4))
        case(f"batch_norm_eval{name}", evaluate, randn(*shape), *vectors(3), constant=(3, 4))
    layer = lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5)
    case("layer_norm", layer, randn(2, 3, 8) + 1.0, randn(8), randn(8))
    case("layer_norm_two_dims", layer, randn(2, 3, 4, 5), randn(4, 5), randn(4, 5))
    case("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b, 1e-5), randn(2, 6, 4, 3), randn(6), randn(6))
    case("group_norm_features", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5), randn(3, 6), randn(6), randn(6))


def pools():
    x = randn(2, 3, 7, 8)
    case("max_pool2d", lambda x: F.max_pool2d(x, 2), x)
    case("max_pool2d_stem", lambda x: F.max_pool2d(x, 3, 2, 1), x)
    case("max_pool2d_overlapping", lambda x: F.max_pool2d(x, 3, 1, 1), x)
    case("max_pool2d_uneven", lambda x: F.max_pool2d(x, (3, 2), (1, 2), (1, 0)), x)
    case("max_pool2d_ceil", lambda x: F.max_pool2d(x, 3, 2, 0, ceil_mode=True), x)
    case("max_pool2d_ceil_pad", lambda x: F.max_pool2d(x, 2, 2, 1, ceil_mode=True), x)
    case("max_pool2d_ties", lambda x: F.max_pool2d(x, 3, 2, 1), steps(2, 2, 7, 7))
    case("max_pool2d_negative", lambda x: F.max_pool2d(x, 3, 2, 1), -x.abs() - 1.0)
    case("avg_pool2d", lambda x: F.avg_pool2d(x, 2), x)
    case("avg_pool2d_overlapping", lambda x: F.avg_pool2d(x, 3, 1), x)
    case("avg_pool2d_pad", lambda x: F.avg_pool2d(x, 3, 2, 1), x)
    case("avg_pool2d_pad_uncounted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), x)
    ceil = dict(ceil_mode=True)
    case("avg_pool2d_ceil", lambda x: F.avg_pool2d(x, 3, 2, 0, **ceil), x)
    case("avg_pool2d_ceil_pad", lambda x: F.avg_pool2d(x, 2, 2, 1, **ceil), x)
    case("avg_pool2d_ceil_pad_uncounted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, **ceil), x)
    case("avg_pool2d_uneven", lambda x: F.avg_pool2d(x, (3, 2), (1, 2), (1, 0)), x)
    case("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 5)), x)
    case("adaptive_avg_pool2d_global", lambda x: F.adaptive_avg_pool2d(x, 1), x)
    case("adaptive_avg_pool2d_larger", lambda x: F.adaptive_avg_pool2d(x, (9, 8)), x)
    case("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 5)), x)
    case("adaptive_max_pool2d_larger", lambda x: F.adaptive_max_pool2d(x, (9, 8)), x)
    case("adaptive_max_pool2d_ties", lambda x: F.adaptive_max_pool2d(x, (3, 2)), steps(2, 2, 7, 7))
    bilinear = lambda size, corners: lambda x: F.interpolate(x, size, mode="bilinear", align_corners=corners)
    case("interpolate_nearest_up", lambda x: F.interpolate(x, (14, 19)), x)
    case("interpolate_nearest_down", lambda x: F.interpolate(x, (3, 5)), x)
    case("interpolate_bilinear_up", bilinear((14, 19), False), x)
    case("interpolate_bilinear_down", bilinear((3, 5), False), x)
    case("interpolate_bilinear_corners", bilinear((14, 5), True), x)
    case("interpolate_bilinear_one", bilinear((1, 1), True), x)


def losses():
    xs = randn(3, 5, 4)
    for dim in range(3):
        case(f"softmax_{dim}", lambda x, dim=dim: F.softmax(x, dim), xs)
        case(f"log_softmax_{dim}", lambda x, dim=dim: F.log_softmax(x, dim), xs)
    case("softmax_ties", lambda x: F.softmax(x, 1), steps(3, 6))
    case("softmax_large", lambda x: F.softmax(x, 1), randn(3, 6, scale=100.0))
    case("log_softmax_large", lambda x: F.log_softmax(x, 1), randn(3, 6, scale=100.0))
    logits, classes = randn(6, 5, scale=2.0), torch.tensor([0, 4, 2, 2, 1, 4])
    case("cross_entropy", F.cross_entropy, logits, classes)
    case("cross_entropy_smooth", lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), logits, classes)
    ignoring = torch.tensor([0, -100, 2, 2, -100, 4])
    case("cross_entropy_ignore", F.cross_entropy, logits, ignoring)
    case(
        "cross_entropy_ignore_smooth",
        lambda x, t: F.cross_entropy(x, t, ignore_index=2, label_smoothing=0.2),
        logits,
        classes,
    )
    soft = F.softmax(randn(6, 5), 1)
    case("cross_entropy_soft", F.cross_entropy, logits, soft, constant=(1,))
    case(
        "cross_entropy_soft_smooth",
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1),
        logits,
        soft,
        constant=(1,),
    )


def shapes():
    xs = randn(2, 3, 4, 5)
    case("concat", lambda a, b, c: torch.cat([a, b, c], 1), randn(2, 3, 4), randn(2, 1, 4), randn(2, 2, 4))
    case("concat_one", lambda a: torch.cat([a], 1), randn(2, 3))
    case("concat_batch", lambda a, b: torch.cat([a, b], 0), randn(2, 3), randn(1, 3))
    case("reshape", lambda x: x.reshape(6, 20), xs)
    case("flatten", lambda x: x.flatten(1), xs)
    case("permute", lambda x: x.permute(2, 0, 3, 1), xs)
    case("transpose", lambda x: x.transpose(1, 3), xs)
    case("slice", lambda x: x[:, :, 1:3], xs)
    case("expand", lambda x: x.expand(4, 3, 5), randn(3, 1))
    case("mean", lambda x: x.mean((2, 3)), xs)
    case("mean_keep", lambda x: x.mean((1,), keepdim=True), xs)
    case("mean_all", lambda x: x.mean((0, 1, 2, 3)), xs)
    case("mean_last", lambda x: x.mean((3,)), xs)
    case("mean_split", lambda x: x.mean((0, 2)), xs)
    case("sum", lambda x: x.sum((2, 3)), xs)
    case("sum_keep", lambda x: x.sum((0, 3), keepdim=True), xs)
    case("sum_tokens", lambda x: x.sum((1,)), randn(2, 3, 4))


for group in [activations, arithmetic, convolutions, products, normalizations, pools, losses, shapes]:
    group()
path = pathlib.Path(__file__).with_name("ops.safetensors")
safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path)
print(f"{path}: {len(tensors)} tensors, {path.stat().st_size / 1024:.0f} KiB")
