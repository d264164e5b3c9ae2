"""Makes the numbers that LAMB, Muon, clipping and the later schedules are compared with.

Needs: torch 2.15, run as `python make_optimize.py` in this folder. Writes optimize.json.

LAMB is no part of torch; `lamb` below is You et al. 2020, algorithm 2, with bias correction, in f64. `torch.optim.Muon`
iterates in bfloat16; "muon" is the same optimizer with that one conversion taken out, in f64, and "muon_bfloat16" is
PyTorch's as it is.
"""

import inspect
import json
import warnings

import torch
from torch.optim import SGD, AdamW, Muon, _muon
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    MultiStepLR,
    PolynomialLR,
    ReduceLROnPlateau,
    SequentialLR,
)

from make_golden import BASE, rates

warnings.filterwarnings("ignore")
BFLOAT16 = _muon._zeropower_via_newtonschulz
source = inspect.getsource(BFLOAT16).replace("dtype=torch.bfloat16, ", "")
assert "bfloat16" not in source
exec(source, exact := dict(vars(_muon)))
EXACT = exact["_zeropower_via_newtonschulz"]


def lamb(w, gradients, lr, betas, eps, decay, adapt):
    w = torch.tensor(w, dtype=torch.float64)
    m, v, out = torch.zeros_like(w), torch.zeros_like(w), []
    for t, g in enumerate(gradients, 1):
        g = torch.tensor(g, dtype=torch.float64)
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        u = (m / (1 - betas[0] ** t)) / ((v / (1 - betas[1] ** t)).sqrt() + eps) + decay * w
        trust = w.norm() / u.norm() if adapt and w.norm() > 0 and u.norm() > 0 else 1.0
        w = w - lr * trust * u
        out.append(w.tolist())
    return out


def muon(newton_schulz, start, gradients, **settings):
    _muon._zeropower_via_newtonschulz = newton_schulz
    w = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = Muon([w], **settings)
    out = []
    for gradient in gradients:
        w.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        out.append(w.detach().tolist())
    return out


def clip(gradients, limit, by_value):
    parameters = [torch.nn.Parameter(torch.zeros(len(g), dtype=torch.float64)) for g in gradients]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
    if by_value:
        torch.nn.utils.clip_grad_value_(parameters, limit)
        norm = None
    else:
        norm = torch.nn.utils.clip_grad_norm_(parameters, limit, error_if_nonfinite=True).item()
    return {"norm": norm, "clipped": [p.grad.tolist() for p in parameters]}


def groups(start, gradients):
    """Two parameters, the second a group with a rate and a decay of its own."""
    a, b = (torch.nn.Parameter(torch.tensor(start, dtype=torch.float64)) for _ in range(2))
    out = {}
    for name, make in {
        "adamw": lambda g: AdamW(g, lr=0.05, weight_decay=0.1),
        "sgd": lambda g: SGD(g, lr=0.05, momentum=0.9, weight_decay=0.1),
    }.items():
        a, b = (torch.nn.Parameter(torch.tensor(start, dtype=torch.float64)) for _ in range(2))
        optimizer = make([{"params": [a]}, {"params": [b], "lr": 0.0125, "weight_decay": 0.0}])
        steps = []
        for gradient in gradients:
            a.grad = torch.tensor(gradient, dtype=torch.float64)
            b.grad = a.grad.clone()
            optimizer.step()
            steps.append([a.detach().tolist(), b.detach().tolist()])
        out[name] = steps
    return out


def plateau(metrics, mode, **settings):
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    schedule = ReduceLROnPlateau(optimizer, mode=mode, **settings)
    out = []
    for metric in metrics:
        schedule.step(metric)
        out.append(optimizer.param_groups[0]["lr"])
    return out


SCHEDULES = {
    "multi_step": lambda o: MultiStepLR(o, milestones=[3, 4, 11], gamma=0.3),
    "exponential": lambda o: ExponentialLR(o, gamma=0.9),
    "cosine_restarts": lambda o: CosineAnnealingWarmRestarts(o, T_0=5),
    "cosine_restarts_growing": lambda o: CosineAnnealingWarmRestarts(o, T_0=3, T_mult=2, eta_min=0.01),
    "polynomial": lambda o: PolynomialLR(o, total_iters=20, power=2.0),
    "sequence": lambda o: SequentialLR(
        o,
        [
            ConstantLR(o, factor=1.0, total_iters=1),
            ExponentialLR(o, gamma=0.8),
            CosineAnnealingLR(o, T_max=10),
        ],
        milestones=[4, 10],
    ),
}
LOSSES = [1.0, 0.9, 0.95, 0.91, 0.92, 0.9, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.49999, 0.49998]
ACCURACIES = [0.1, 0.2, 0.2, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]


def main():
    torch.manual_seed(1)
    randn = lambda *shape: torch.randn(*shape, dtype=torch.float64).tolist()
    start, gradients = randn(5), randn(8, 5)
    matrices = {}
    for name, shape in {"wide": (3, 7), "tall": (8, 2)}.items():
        w, g = randn(*shape), randn(5, *shape)
        settings = {"lr": 0.1, "weight_decay": 0.05}
        matrices[name] = {
            "start": w,
            "gradients": g,
            "muon": muon(EXACT, w, g, **settings),
            "muon_plain": muon(EXACT, w, g, nesterov=False, momentum=0.8, **settings),
            "muon_rms": muon(EXACT, w, g, adjust_lr_fn="match_rms_adamw", **settings),
            "muon_bfloat16": muon(BFLOAT16, w, g, **settings),
        }
    pair = randn(2, 4)
    document = {
        "start": start,
        "gradients": gradients,
        "lamb": lamb(start, gradients, 0.1, (0.8, 0.95), 1e-6, 0.05, True),
        "lamb_plain": lamb(start, gradients, 0.1, (0.9, 0.999), 1e-6, 0.0, False),
        "groups": groups(start, gradients),
        "matrices": matrices,
        "clip": {
            "gradients": pair,
            "norm_1": clip(pair, 1.0, False),
            "norm_100": clip(pair, 100.0, False),
            "value_half": clip(pair, 0.5, True),
        },
        "base": BASE,
        "rates": {name: rates(make) for name, make in SCHEDULES.items()},
        "losses": LOSSES,
        "plateau_loss": plateau(LOSSES, "min", factor=0.5, patience=1, cooldown=2, min_lr=0.05),
        "accuracies": ACCURACIES,
        "plateau_accuracy": plateau(ACCURACIES, "max", factor=0.1, patience=2),
    }
    with open("optimize.json", "w") as file:
        json.dump(document, file)
        file.write("\n")


if __name__ == "__main__":
    main()
