#!/usr/bin/env python3
"""Makes the numbers that the tests of this crate compare with, from PyTorch, torchvision and timm.

    pip install torch torchvision timm safetensors
    python make_golden.py                  # rewrites layers/, models/ and state_dicts.json beside this file
    python make_golden.py --resnet18 PATH  # writes a real torchvision state dict (45 MB) and its logits beside it:
                                           # TALLOW_RESNET18=PATH cargo test -p tallow-nn --test state_dict

Everything is computed in f64 and stored in f32. Made with torch 2.15.0, torchvision 0.29.2, timm 1.0.31.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

import layers
import models

HERE = Path(__file__).parent


def write(folder, files):
    (HERE / folder).mkdir(exist_ok=True)
    for name, tensors in files.items():
        save_file(dict(sorted(tensors.items())), HERE / folder / f"{name}.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resnet18", type=Path, help="write only a real ResNet-18 state dict there")
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    if args.resnet18:
        models.write_resnet18(args.resnet18)
        return
    write("layers", layers.make())
    models.write_state_dicts(HERE / "state_dicts.json")
    write("models", models.make())


if __name__ == "__main__":
    main()
