"""Golden cases of whole models: parameters and inputs come from formula.py, so only results are stored."""

import json
import math

import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from timm.layers import ConvNormAct

from formula import fill, image, unit

FULL = 2000  # gradients up to this many elements are stored whole


class SimpleCifar(nn.Module):
    """Three ConvNormAct, global average pool, linear."""

    def __init__(self, in_channels=3, num_classes=10):
        super().__init__()
        plan = [(in_channels, 64, 1), (64, 128, 2), (128, 256, 2)]
        self.features = nn.Sequential(
            *[ConvNormAct(i, o, 3, stride=s, padding=1, act_layer=nn.ReLU6) for i, o, s in plan])
        self.fc = nn.Linear(256, num_classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class LeNet5(nn.Module):
    """The PyTorch tutorial's LeNet-5, with the padding that 28x28 images need."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = F.max_pool2d(self.relu(self.conv1(x)), 2)
        x = F.max_pool2d(self.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(self.relu(self.fc2(self.relu(self.fc1(x)))))


def resnet18_cifar():
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


def vit_tiny():
    return timm.create_model("vit_tiny_patch16_224")


def alexnet():
    return torchvision.models.alexnet(num_classes=10, dropout=0.0)


CASES = [  # (model, constructor, mode, input shape)
    ("lenet5", LeNet5, "eval", (4, 1, 28, 28)),
    ("simple_cifar", SimpleCifar, "eval", (4, 3, 16, 16)),
    ("simple_cifar", SimpleCifar, "train", (4, 3, 16, 16)),
    ("alexnet", alexnet, "eval", (2, 3, 96, 96)),
    ("resnet18", torchvision.models.resnet18, "eval", (2, 3, 32, 32)),
    ("resnet18", torchvision.models.resnet18, "train", (4, 3, 64, 64)),
    ("resnet18_cifar", resnet18_cifar, "eval", (2, 3, 16, 16)),
    ("resnet18_cifar", resnet18_cifar, "train", (4, 3, 16, 16)),
    ("resnet50", torchvision.models.resnet50, "eval", (2, 3, 32, 32)),
    ("resnet50", torchvision.models.resnet50, "train", (4, 3, 32, 32)),  # ill-conditioned: compare in f64
    ("vit_tiny", vit_tiny, "eval", (2, 3, 224, 224)),
]


def image_of(model, seed, shape):
    return image(f"{model}.input.{seed}", shape).double()


def margin(model, x):
    """How far the nearest input of any ReLU or ReLU6 is from its kink, in standard deviations of its layer."""
    gaps = []

    def hook(module, inputs):
        z = inputs[0]
        gap = torch.minimum(z.abs(), (z - 6).abs()) if isinstance(module, nn.ReLU6) else z.abs()
        gaps.append(float(gap.min() / z.std()))

    kinks = [m for m in model.modules() if isinstance(m, (nn.ReLU, nn.ReLU6))]
    handles = [m.register_forward_pre_hook(hook) for m in kinks]
    with torch.no_grad():
        model(x)
    for handle in handles:
        handle.remove()
    return min(gaps, default=math.inf)


def choose_seed(name, build, train, shape, candidates=48):
    """The input whose activations stay farthest from the kinks: a value on the other side of one, by rounding alone,
    changes gradients by 1e-3, and would hide what the comparison is for."""
    model = fill(build()).double().train(train)
    margins = [margin(model, image_of(name, seed, shape)) for seed in range(candidates)]
    best = max(range(candidates), key=margins.__getitem__)
    print(f"{name} {'train' if train else 'eval'}: input {best}, margin {margins[best]:.1e}", flush=True)
    return best


def summarise(tensor, name):
    """[L2 norm, projection on the formula's direction for `name`]: a checksum of every element."""
    flat = tensor.double().flatten()
    probe = torch.from_numpy(unit(f"probe.{name}", flat.numel()))
    return torch.stack([flat.norm(), flat @ probe])


def trace(name, build, mode, shape):
    train = mode == "train"
    searched = (name, mode) not in (("vit_tiny", "eval"), ("resnet50", "train"))
    seed = choose_seed(name, build, train, shape) if searched else 0
    model = fill(build()).double().train(train)
    x = image_of(name, seed, shape).requires_grad_()
    logits = model(x)
    labels = torch.arange(shape[0]) * 3 % logits.shape[1]
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    case = {"logits": logits, "loss": loss, "summary.input": summarise(x.grad, "input")}
    for n, p in model.named_parameters():
        case[f"summary.{n}"] = summarise(p.grad, n)
        if p.numel() <= FULL and any(key in n for key in ("fc", "head", "bn1", "blocks.0", "conv1", "features.0")):
            case[f"grad.{n}"] = p.grad
    if train:
        for n, b in model.named_buffers():
            if b.is_floating_point():
                case[f"after.{n}"] = summarise(b, n)
    case = {n: t.detach().float().contiguous() for n, t in case.items()}
    case["input_seed"] = torch.tensor(seed, dtype=torch.int64)
    return case


def make():
    files = {}
    for name, build, mode, shape in CASES:
        for role, tensor in trace(name, build, mode, shape).items():
            files.setdefault(name, {})[f"{mode}/{role}"] = tensor
    return files


def state_dicts():
    """{model: [[name, shape], ..]} in the original's order, with the buffers."""
    originals = {f"resnet{n}": getattr(torchvision.models, f"resnet{n}")() for n in (18, 34, 50)}
    originals["alexnet"] = torchvision.models.alexnet()
    originals["vit_tiny"] = timm.create_model("vit_tiny_patch16_224")
    originals["vit_small"] = timm.create_model("vit_small_patch16_224")
    return {m: [[n, list(t.shape)] for n, t in o.state_dict().items()] for m, o in originals.items()}


def write_state_dicts(path):
    lines = []
    for model, entries in state_dicts().items():
        body = ",\n  ".join(json.dumps(entry) for entry in entries)
        lines.append(f" {json.dumps(model)}: [\n  {body}\n ]")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def write_resnet18(path):
    """A torchvision ResNet-18 with its own random weights, an input and its logits, for TALLOW_RESNET18."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = torchvision.models.resnet18().train()
    with torch.no_grad():
        for _ in range(2):  # running statistics that are not zero and one
            model(torch.randn(8, 3, 96, 96))
        model.eval()
        x = torch.randn(2, 3, 224, 224)
        save_file(model.state_dict(), path)
        save_file({"input": x, "logits": model(x)}, path.with_suffix(".logits.safetensors"))
