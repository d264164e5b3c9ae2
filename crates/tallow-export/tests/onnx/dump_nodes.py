"""Writes onnx's own node tests into folders.

usage: dump_nodes.py OUT OPERATOR...

For every test of which all operators are named: OUT/NAME/model.onnx, input_0.npy, ..., output_0.npy, ...

What a model has as constants is given to these tests as inputs: shapes, axes, pads, bounds. They are made initializers, since
shapes are static here. So are negative indices of Gather. Package: onnx.
"""

import pathlib
import sys
import warnings

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.case.node import collect_testcases

warnings.simplefilter("ignore")
np.seterr(all="ignore")

# Which inputs of an operator are constants in models.
CONSTANT = {
    "Clip": [1, 2],
    "ConstantOfShape": [0],
    "Dropout": [1, 2],
    "Expand": [1],
    "Pad": [1, 2, 3],
    "ReduceMean": [1],
    "ReduceSum": [1],
    "Reshape": [1],
    "Resize": [1, 2, 3],
    "Slice": [1, 2, 3, 4],
    "Split": [1],
    "Squeeze": [1],
    "Unsqueeze": [1],
}


def array(value, info):
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


out, operators = pathlib.Path(sys.argv[1]), set(sys.argv[2:])
written = 0
for case in collect_testcases(None):
    model = case.model
    used = {node.op_type if not node.domain else node.domain + "." + node.op_type for node in model.graph.node}
    if not used or not used <= operators:
        continue
    try:
        inputs, outputs = case.data_sets[0]
        inputs = [array(v, i) for v, i in zip(inputs, model.graph.input)]
        outputs = [array(v, i) for v, i in zip(outputs, model.graph.output)]
        names = [info.name for info in model.graph.input]
        constant = set()
        for node in model.graph.node:
            for place in CONSTANT.get(node.op_type, []):
                if place < len(node.input):
                    constant.add(node.input[place])
            if node.op_type == "Gather" and (inputs[names.index(node.input[1])] < 0).any():
                constant.add(node.input[1])
        folder = out / case.name
        folder.mkdir(parents=True, exist_ok=True)
        fed = [k for k, name in enumerate(names) if name not in constant]
        for number, k in enumerate(fed):
            np.save(folder / f"input_{number}.npy", np.array(inputs[k], order="C"))
        for k, value in enumerate(outputs):
            np.save(folder / f"output_{k}.npy", np.array(value, order="C"))
        baked = [numpy_helper.from_array(inputs[k], names[k]) for k in range(len(names)) if k not in fed]
        kept = [model.graph.input[k] for k in fed]
        model.graph.initializer.extend(baked)
        del model.graph.input[:]
        model.graph.input.extend(kept)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        written += 1
    except Exception as error:  # a value that is no array: a sequence, an optional
        print("skipped", case.name, type(error).__name__, error)
print("wrote", written)
