# SPDX-License-Identifier: MIT
"""OpenVINO: its operation ScaledDotProductAttention as a compiled model of one node."""

import numpy as np
import openvino as ov
from openvino import opset13

import rows
from call import Call, Form
from problem import Problem, floats

_TYPES = {rows.F32: ov.Type.f32, rows.BF16: ov.Type.bf16, rows.F16: ov.Type.f16}
# Without this hint the plugin may compute float tensors in bfloat16.
_PRECISIONS = {rows.F32: "f32", rows.BF16: "bf16", rows.F16: "f16"}


def _shared(array: np.ndarray, element: ov.Type) -> ov.Tensor:
    """The same memory as a tensor of OpenVINO."""
    if array.dtype == np.uint16:  # numpy has no bfloat16
        return ov.Tensor(array, ov.Shape(array.shape), element)
    return ov.Tensor(array, shared_memory=True)


class OpenvinoPeer:
    """Reads the tensors where they are, and writes to an array of ours."""

    name = "openvino"
    version = ov.__version__.split("-")[0]  # without the number of the build

    def __init__(self, threads: int) -> None:
        self._core = ov.Core()
        self._properties = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": "1",
            "PERFORMANCE_HINT": "LATENCY",
            # We pin the process ourselves, where threads are to be pinned.
            "ENABLE_CPU_PINNING": False,
        }

    def forms(self, problem: Problem) -> list[Form]:
        if problem.row.what == rows.BACKWARD:
            return []
        return [Form("ScaledDotProductAttention", lambda: self._make(problem))]

    def _make(self, problem: Problem) -> Call:
        row = problem.row
        element = _TYPES[row.storage]
        arrays = [problem.q, problem.k, problem.v]
        parameters = [opset13.parameter(list(array.shape), element) for array in arrays]
        is_causal = row.is_causal_square
        mask = None if is_causal else problem.sight_mask()
        if mask is not None:
            arrays.append(mask)
            parameters.append(opset13.parameter(list(mask.shape), ov.Type.boolean))
        node = opset13.scaled_dot_product_attention(*parameters, causal=is_causal)
        model = ov.Model([opset13.result(node)], parameters, "attention")
        properties = {**self._properties, "INFERENCE_PRECISION_HINT": _PRECISIONS[row.storage]}
        request = self._core.compile_model(model, "CPU", properties).create_infer_request()
        out = problem.new(problem.output_shape)
        for index, array in enumerate(arrays):
            is_mask = array is mask
            request.set_input_tensor(index, _shared(array, ov.Type.boolean if is_mask else element))
        request.set_output_tensor(0, _shared(out, element))
        return Call(request.infer, lambda: [floats(out, row.storage)], arrays)
