"""Writes the small files of torch.save in `torch/`, and what is in them as `torch/expected.json`.

    python make_torch_files.py        # needs torch 2; written with 2.15
"""

import collections
import json
import pathlib

import torch

FOLDER = pathlib.Path(__file__).parent / "torch"


def state_dict():
    torch.manual_seed(0)
    base = torch.arange(24, dtype=torch.float32) / 8 - 1
    bn = torch.nn.BatchNorm1d(2)
    state = collections.OrderedDict()
    state["fc.weight"] = torch.nn.Parameter(base[:6].view(2, 3))
    state["fc.bias"] = base[6:8]  # a part of the same storage
    state["transposed"] = base.view(4, 6).t()
    state["every.second"] = base[1::2]
    state["scalar"] = torch.tensor(2.5)
    state["empty"] = torch.zeros(0, 3)
    for name, dtype in {
        "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
        "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
    }.items():
        values = [0, 1, 2, 100] if dtype in (torch.uint8, torch.bool) else [-2, 0, 1, 100]
        state[f"types.{name}"] = torch.tensor(values).to(dtype)
    for name, value in bn.state_dict().items():
        state[f"bn.{name}"] = value
    return state


def main():
    FOLDER.mkdir(exist_ok=True)
    state = state_dict()
    training = {"epoch": 3, "lr": 0.1, "names": ["a", "b"], "state_dict": state,
                "optimizer": torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1).state_dict()}
    for container, zipped in [("zip", True), ("legacy", False)]:
        save = lambda what, name: torch.save(what, FOLDER / f"{name}.{container}.pth", _use_new_zipfile_serialization=zipped)
        save(state, "state")
        save(training, "training")
        if zipped:  # the old container holds the source of its classes too
            save(torch.nn.Linear(2, 1), "module")
    expected = {name: {"shape": list(value.shape), "values": value.detach().double().flatten().tolist()}
                for name, value in state.items()}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
