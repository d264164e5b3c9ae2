#!/usr/bin/env python3
"""The cases of benches/step.rs in PyTorch: one JSON line a case.

    torch_step.py MODE CASE

MODE is eager, eager_channels_last, compile, compile_channels_last, compile_max_autotune or
compile_max_autotune_channels_last, each with _bf16 behind it for autocast to bfloat16. `cargo xtask bench --vs torch` runs it with the Python that TALLOW_PYTHON names, finds
the fastest mode of a case, and alternates with that one. glibc is told to keep freed memory, PyTorch's best setting.
"""
import json
import os
import resource
import statistics
import sys
import time

THREADS = int(os.environ.get("RAYON_NUM_THREADS", str(os.cpu_count())))
os.environ["OMP_NUM_THREADS"] = str(THREADS)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(THREADS)


def conv_norm_act(inputs, outputs, stride):
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


def simple_cifar():
    return nn.Sequential(
        conv_norm_act(3, 64, 1),
        conv_norm_act(64, 128, 2),
        conv_norm_act(128, 256, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(256, 10),
    )


def resnet18_cifar():
    from torchvision.models import resnet18

    model = resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


def resnet18_imagenet():
    from torchvision.models import resnet18

    return resnet18()


# Model, whether it trains, batch, pixels, classes.
CASES = {
    "A-train": (simple_cifar, True, 128, 32, 10),
    "B-train": (resnet18_cifar, True, 32, 32, 10),
    "C-train": (resnet18_imagenet, True, 8, 224, 1000),
    "C-inf1": (resnet18_imagenet, False, 1, 224, 1000),
    "C-inf8": (resnet18_imagenet, False, 8, 224, 1000),
    "A-inf1": (simple_cifar, False, 1, 32, 10),
    "A-inf128": (simple_cifar, False, 128, 32, 10),
}


def compiled(model, mode, train):
    if not mode.startswith("compile"):
        return model
    if "max_autotune" not in mode:
        return torch.compile(model)
    if not train:
        import torch._inductor.config as config

        config.freezing = True
    return torch.compile(model, mode="max-autotune")


def make_step(case, mode):
    make, train, batch, pixels, classes = CASES[case]
    torch.manual_seed(0)
    model = make().train(train)
    images = torch.randn(batch, 3, pixels, pixels)
    labels = torch.arange(batch) % classes
    if "channels_last" in mode:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    net = compiled(model, mode, train)
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode.endswith("_bf16"))
    if not train:

        def infer():
            with torch.no_grad(), autocast:
                return net(images)

        return infer, batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast:
            loss = F.cross_entropy(net(images), labels)
        loss.backward()
        optimizer.step()

    return step, batch


def main():
    mode, case = sys.argv[1], sys.argv[2]
    step, batch = make_step(case, mode)
    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    for _ in range(2):
        step()
    times = []
    end = time.perf_counter() + 6
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 200):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    median = statistics.median(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    line = {
        "framework": "torch-" + torch.__version__.split("+")[0],
        "mode": mode,
        "model": case[0],
        "phase": "train" if CASES[case][1] else "infer",
        "batch": batch,
        "threads": THREADS,
        "images_per_s": batch / median * 1e3,
        "ms_median": median,
        "ms_min": min(times),
        "n": len(times),
        "first_step_s": first,
        "rss_peak_mb": round(peak),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
