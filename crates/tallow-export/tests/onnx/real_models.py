"""Runs networks out of packages with onnxruntime, on noise.

usage: real_models.py OUT

For each that is there: OUT/NAME.onnx, OUT/NAME.input.npy and OUT/NAME.output.npy. Packages: onnxruntime, numpy, and
rapidocr-onnxruntime (which way up a line of text is: a MobileNet for images of 48 by 192).
"""

import importlib.util
import pathlib
import shutil
import sys

import numpy as np
import onnxruntime

onnxruntime.set_default_logger_severity(3)
MODELS = [("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", (1, 3, 48, 192))]
out = pathlib.Path(sys.argv[1])
for package, path, shape in MODELS:
    found = importlib.util.find_spec(package)
    if found is None:
        print("skipped: no package", package)
        continue
    model = pathlib.Path(found.origin).parent / path
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = np.random.default_rng(3).normal(size=shape).astype(np.float32)
    (result,) = session.run(None, {session.get_inputs()[0].name: given})
    shutil.copy(model, out / (package + ".onnx"))
    np.save(out / (package + ".input.npy"), given)
    np.save(out / (package + ".output.npy"), result)
