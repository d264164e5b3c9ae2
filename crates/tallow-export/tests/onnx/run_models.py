"""Checks ONNX files with onnx's own checker and runs them with onnxruntime.

usage: run_models.py FOLDER

For every NAME.onnx reads NAME.input.npy and NAME.output.npy, and prints one line: `NAME DIFFERENCE LARGEST`, the largest
difference and the largest value expected. Packages: onnx, onnxruntime, numpy.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime

onnxruntime.set_default_logger_severity(3)
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    given = np.load(path.with_suffix(".input.npy"))
    expected = np.load(path.with_suffix(".output.npy"))
    (found,) = session.run(None, {session.get_inputs()[0].name: given})
    assert found.shape == expected.shape, (path.stem, found.shape, expected.shape)
    print(path.stem, np.abs(found - expected).max(), np.abs(expected).max())
