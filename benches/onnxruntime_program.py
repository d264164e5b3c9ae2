"""The median time of an ONNX file in onnxruntime, in milliseconds.

    python onnxruntime_program.py FILE "as written" | quantize THREADS

With `quantize`, what `quantize_static` makes of the file is timed: QDQ, unsigned activations, signed weights per channel.
"""

import sys
import time

try:
    import numpy
    import onnxruntime
except ImportError:
    print("no onnxruntime")
    sys.exit()

file, way, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
random = numpy.random.default_rng(0)


def session():
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def noise(net):
    return {i.name: random.standard_normal(i.shape).astype(numpy.float32) for i in net.get_inputs()}


if way == "quantize":
    import os

    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Noise(CalibrationDataReader):
        def __init__(self):
            self.batches = iter([noise(session())])

        def get_next(self):
            return next(self.batches, None)

    # As its documentation asks: batch norms are folded first.
    folded, quantized = file + ".folded", file + ".quantized"
    if not os.path.exists(quantized):
        basic = onnxruntime.SessionOptions()
        basic.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        basic.optimized_model_filepath = folded
        onnxruntime.InferenceSession(file, basic, providers=["CPUExecutionProvider"])
        quantize_static(
            folded,
            quantized,
            Noise(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    file = quantized

net = session()
inputs = noise(net)
net.run(None, inputs)
times, start = [], time.perf_counter()
while len(times) < 5 or time.perf_counter() - start < 4:
    one = time.perf_counter()
    net.run(None, inputs)
    times.append((time.perf_counter() - one) * 1e3)
times.sort()
print(times[len(times) // 2])
