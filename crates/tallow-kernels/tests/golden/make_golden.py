"""Writes windows.txt: pooling and interpolation by PyTorch, values and gradients.

Needs: torch (2.15 made the committed file). Run in this folder: python make_golden.py

One case a line: `name integers ; y ; indices ; dx`, where the integers are the geometry in the order
of the Rust struct, the input is x[i] = (i * 37 % 101) / 8 - 6, and dy[i] = (i * 29 % 53) / 16 - 1.
"""

import torch
import torch.nn.functional as F


def run(name, numbers, in_shape, compute, dtype=torch.float32):
    count = in_shape[0] * in_shape[1] * in_shape[2]
    x = ((torch.arange(count) * 37 % 101) / 8 - 6).reshape(1, *in_shape).to(dtype).requires_grad_()
    y = compute(x)
    indices = torch.zeros(0)
    if isinstance(y, tuple):
        y, indices = y
    dy = (torch.arange(y.numel()) * 29 % 53) / 16 - 1
    y.backward(dy.reshape(y.shape))
    parts = [y.detach(), indices, x.grad]
    words = [" ".join(f"{v:.8g}" for v in part.flatten().tolist()) for part in parts]
    return " ; ".join([" ".join([name, *map(str, numbers)]), *words])


def pools():
    # planes, in, kernel, stride, padding, dilation, ceil_mode
    geometries = [
        (2, 6, 4, 2, 2, 2, 2, 0, 0, 1, 1, 0),
        (2, 7, 9, 3, 3, 2, 2, 1, 1, 1, 1, 0),
        (1, 7, 9, 3, 3, 2, 2, 1, 1, 1, 1, 1),
        (1, 6, 6, 3, 2, 1, 3, 1, 0, 1, 1, 0),
        (2, 5, 7, 2, 3, 3, 2, 1, 1, 1, 1, 1),
        (1, 4, 5, 3, 3, 2, 2, 0, 0, 1, 1, 1),
        (1, 2, 2, 3, 3, 2, 2, 0, 0, 1, 1, 1),
        (1, 5, 5, 5, 5, 1, 1, 2, 2, 1, 1, 0),
        (3, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0),
        (1, 8, 6, 2, 2, 4, 5, 1, 1, 1, 1, 1),
        (1, 3, 40, 3, 3, 1, 1, 1, 1, 1, 1, 0),
        (1, 3, 41, 3, 3, 1, 2, 1, 1, 1, 1, 0),
        (1, 8, 9, 3, 2, 2, 1, 1, 1, 2, 3, 0),
        (1, 9, 8, 2, 3, 2, 3, 1, 1, 3, 2, 1),
    ]
    for g in geometries:
        planes, ih, iw, kh, kw, sh, sw, ph, pw, dh, dw, ceil = g
        kernel, stride, pad, ceil = (kh, kw), (sh, sw), (ph, pw), bool(ceil)
        yield run("max_pool2d", g, (planes, ih, iw), lambda x: F.max_pool2d(
            x, kernel, stride, pad, (dh, dw), ceil, return_indices=True))
        for include in (False, True):
            if (dh, dw) == (1, 1):
                yield run("avg_pool2d", (*g, int(include)), (planes, ih, iw), lambda x: F.avg_pool2d(
                    x, kernel, stride, pad, ceil, include))


def bins():
    # planes, in, out
    for g in [(2, 7, 7, 1, 1), (2, 6, 8, 3, 2), (1, 7, 5, 3, 4), (1, 3, 4, 5, 7), (2, 6, 6, 6, 6)]:
        planes, ih, iw, oh, ow = g
        yield run("adaptive_avg_pool2d", g, (planes, ih, iw), lambda x: F.adaptive_avg_pool2d(x, (oh, ow)))
        yield run("adaptive_max_pool2d", g, (planes, ih, iw), lambda x: F.adaptive_max_pool2d(
            x, (oh, ow), return_indices=True))


def sizes():
    # planes, in, out, mode: 0 nearest, 1 bilinear, 2 bilinear with aligned corners
    for planes, ih, iw, oh, ow in [
        (2, 3, 4, 6, 8), (1, 5, 3, 7, 10), (1, 9, 8, 4, 3), (1, 4, 4, 1, 1), (1, 1, 1, 3, 2),
        (1, 5, 7, 5, 7), (1, 2, 20, 3, 90), (1, 6, 3, 6, 5),
    ]:
        for mode in (0, 1, 2):
            kwargs = {"mode": "nearest"} if mode == 0 else {"mode": "bilinear", "align_corners": mode == 2}
            # In float32 PyTorch's bilinear weights are off by up to 2e-6.
            yield run("interpolate", (planes, ih, iw, oh, ow, mode), (planes, ih, iw),
                      lambda x: F.interpolate(x, size=(oh, ow), **kwargs),
                      torch.float32 if mode == 0 else torch.float64)


with open("windows.txt", "w") as out:
    for line in [*pools(), *bins(), *sizes()]:
        print(line, file=out)
