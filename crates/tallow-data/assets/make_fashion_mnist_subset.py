#!/usr/bin/env python3
"""Writes the class-balanced subset of Fashion-MNIST that lies beside this script.

    apt-get install dataset-fashion-mnist python3-numpy
    python3 make_fashion_mnist_subset.py [SOURCE_DIR]

SOURCE_DIR holds the four original files (default: /usr/share/datasets/fashion-mnist, where Debian's package
dataset-fashion-mnist puts them). The first TRAIN_PER_CLASS training and TEST_PER_CLASS test images of each class
are taken, in their original order, and dealt out in turn (class 0, 1, .. 9, 0, 1, ..), so that any first part of
the subset is balanced as well. The output is the same bytes on every run with the same zlib, and the same pixels
with any.
"""
import gzip
import os
import struct
import sys

import numpy as np

TRAIN_PER_CLASS = 800
TEST_PER_CLASS = 100
CLASSES = 10
LIMIT = 4_000_000  # bytes, all files together

HERE = os.path.dirname(os.path.abspath(__file__))


def read_idx(path):
    """One gzipped idx file of unsigned bytes as an array."""
    with gzip.open(path, "rb") as file:
        data = file.read()
    zero, kind, rank = struct.unpack(">HBB", data[:4])
    assert (zero, kind) == (0, 8), f"{path}: not an idx file of unsigned bytes"
    shape = struct.unpack(f">{rank}I", data[4 : 4 + 4 * rank])
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def write_idx(path, array):
    """Writes one gzipped idx file; returns its size in bytes."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(header + np.ascontiguousarray(array).tobytes())
    return os.path.getsize(path)


def balanced(labels, per_class):
    """Indices of the first `per_class` samples of each class, dealt out in turn."""
    columns = [np.flatnonzero(labels == c)[:per_class] for c in range(CLASSES)]
    assert all(len(column) == per_class for column in columns)
    return np.stack(columns, axis=1).reshape(-1)


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/datasets/fashion-mnist"
    total = 0
    for part, per_class in (("train", TRAIN_PER_CLASS), ("t10k", TEST_PER_CLASS)):
        images = read_idx(os.path.join(source, f"{part}-images-idx3-ubyte.gz"))
        labels = read_idx(os.path.join(source, f"{part}-labels-idx1-ubyte.gz"))
        chosen = balanced(labels, per_class)
        for kind, array in (("images-idx3", images[chosen]), ("labels-idx1", labels[chosen])):
            name = f"fashion-mnist-subset-{part}-{kind}-ubyte.gz"
            size = write_idx(os.path.join(HERE, name), array)
            total += size
            print(f"{name}: {array.shape}, {size} bytes")
    print(f"total {total} bytes")
    assert total <= LIMIT, f"over the limit of {LIMIT} bytes"


if __name__ == "__main__":
    main()
