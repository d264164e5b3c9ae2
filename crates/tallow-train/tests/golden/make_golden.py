"""Makes the numbers that schedules and optimizers are compared with.

Needs: torch 2.15 (any recent version gives the same), run as `python make_golden.py` in this folder.
Writes schedules.json (a rate for every step) and optimizers.json (the parameter after every update, in f64).
"""

import json
import warnings

import torch
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LinearLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

warnings.filterwarnings("ignore")

STEPS = 24
BASE = 0.3


def rates(make, steps=STEPS):
    """The rate at each step of a schedule that `make` builds for an optimizer."""
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = SGD([parameter], lr=BASE)
    schedule = make(optimizer)
    out = []
    for step in range(steps):
        out.append(optimizer.param_groups[0]["lr"])
        if step + 1 < steps:
            optimizer.step()
            schedule.step()
    return out


def warmup(optimizer, steps, factor, then):
    first = LinearLR(optimizer, start_factor=factor, total_iters=steps)
    return SequentialLR(optimizer, [first, then(optimizer)], milestones=[steps])


SCHEDULES = {
    "step": lambda o: StepLR(o, step_size=7, gamma=0.1),
    "cosine": lambda o: CosineAnnealingLR(o, T_max=STEPS),
    "cosine_to": lambda o: CosineAnnealingLR(o, T_max=STEPS, eta_min=0.02),
    "one_cycle": lambda o: OneCycleLR(o, max_lr=BASE, total_steps=STEPS),
    "one_cycle_linear": lambda o: OneCycleLR(
        o,
        max_lr=BASE,
        total_steps=STEPS,
        pct_start=0.25,
        anneal_strategy="linear",
        div_factor=10,
        final_div_factor=100,
    ),
    "warmup_constant": lambda o: LinearLR(o, start_factor=0.2, total_iters=6),
    "warmup_step": lambda o: warmup(o, 5, 0.1, lambda o: StepLR(o, step_size=4, gamma=0.5)),
    "warmup_cosine": lambda o: warmup(o, 5, 0.1, lambda o: CosineAnnealingLR(o, T_max=20)),
}

OPTIMIZERS = {
    "adamw": lambda p: AdamW(p, lr=0.05),
    "adamw_settings": lambda p: AdamW(
        p, lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1
    ),
    "sgd": lambda p: SGD(p, lr=0.1),
    "sgd_weight_decay": lambda p: SGD(p, lr=0.1, weight_decay=0.05),
    "sgd_momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "sgd_dampening": lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.01),
    "sgd_nesterov": lambda p: SGD(p, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.01),
}


def trajectory(make, start, gradients):
    """The parameter after each update with the given gradients."""
    parameter = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = make([parameter])
    out = []
    for gradient in gradients:
        parameter.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
        out.append(parameter.detach().tolist())
    return out


def main():
    schedules = {name: rates(make) for name, make in SCHEDULES.items()}
    with open("schedules.json", "w") as file:
        json.dump({"base": BASE, "rates": schedules}, file, indent=1)
        file.write("\n")

    torch.manual_seed(0)
    start = torch.randn(5, dtype=torch.float64).tolist()
    gradients = torch.randn(12, 5, dtype=torch.float64).tolist()
    parameters = {
        name: trajectory(make, start, gradients) for name, make in OPTIMIZERS.items()
    }
    with open("optimizers.json", "w") as file:
        json.dump(
            {"start": start, "gradients": gradients, "parameters": parameters}, file
        )
        file.write("\n")


if __name__ == "__main__":
    main()
