# SPDX-License-Identifier: MIT
"""ONNX Runtime: models of one node, by each of its three attention operators that can say the
row. Two of them want tokens first, [batch, rows, heads * width]; that copy is not timed."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import rows
from call import Call, Form
from problem import Problem, floats

_TYPES = {rows.F32: TensorProto.FLOAT, rows.BF16: TensorProto.BFLOAT16,
          rows.F16: TensorProto.FLOAT16}
_CONTRIBUTED = "com.microsoft"

# Attention, and MultiHeadAttention if causal, keep the logits of all heads, the former several
# times. Where those take more bytes than this, only the other forms are tried, so that the machine
# does not run out of memory.
_MOST_LOGITS = 1 << 30

# Tensors by the name of the node's input; an input that is not there is an empty name.
Inputs = dict[str, np.ndarray]


def _tokens_first(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(1, array.shape[2], -1)


def _heads_first(array: np.ndarray, heads: int) -> np.ndarray:
    tokens = array.shape[1]
    return array.reshape(1, tokens, heads, -1).transpose(0, 2, 1, 3)


class OnnxruntimePeer:
    """Binds inputs and outputs once, so that a run copies nothing."""

    name = "onnxruntime"
    version = onnxruntime.__version__

    def __init__(self, threads: int) -> None:
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads
        self._options.inter_op_num_threads = 1
        self._options.log_severity_level = 3

    def forms(self, problem: Problem) -> list[Form]:
        row = problem.row
        if row.what == rows.BACKWARD:
            return []
        is_long = 4 * row.heads * row.query_rows * row.keys > _MOST_LOGITS
        forms = [] if is_long else [Form("Attention", lambda: self._attention(problem))]
        is_plain = row.sight == rows.DENSE or (row.is_causal_square and not is_long)
        if is_plain and row.heads == row.key_heads:
            forms.append(Form("MultiHeadAttention", lambda: self._multi_head(problem)))
        is_last_row = row.what == rows.DECODE and row.query_rows == 1
        if row.sight in (rows.CAUSAL, rows.WINDOW) or is_last_row:
            forms.append(Form("GroupQueryAttention", lambda: self._group_query(problem)))
        return forms

    def _attention(self, problem: Problem) -> Call:
        """The operator of ONNX itself, which takes heads first."""
        row = problem.row
        inputs = {"q": problem.q, "k": problem.k, "v": problem.v}
        is_causal = row.is_causal_square
        mask = None if is_causal else problem.sight_mask()
        if mask is not None:
            inputs["mask"] = mask
        out = problem.new(problem.output_shape)
        return self._call(row, "Attention", "", inputs, [out], is_causal=int(is_causal))

    def _multi_head(self, problem: Problem) -> Call:
        row = problem.row
        inputs = self._tokens(problem)
        out = problem.new((1, row.query_rows, row.heads * row.value_width))
        return self._call(row, "MultiHeadAttention", _CONTRIBUTED, inputs, [out],
                          num_heads=row.heads, unidirectional=int(row.is_causal_square))

    def _group_query(self, problem: Problem) -> Call:
        """It is always causal. Its cache holds what was before the queries, and it writes the keys
        and values of their positions to it."""
        row = problem.row
        cache = [problem.new(shape) for shape in (problem.key_shape, problem.value_shape)]
        inputs = self._tokens(problem)
        past = [np.empty(0), np.empty(0)]
        if row.query_rows < row.keys:
            past = cache
            for array, of_cache in zip((problem.k, problem.v), cache):
                of_cache[:, :, : -row.query_rows] = array[:, :, : -row.query_rows]
            for name in ("k", "v"):
                inputs[name] = inputs[name][:, -row.query_rows :]
        inputs |= {"past_k": past[0], "past_v": past[1],
                   "last": np.array([row.keys - 1], np.int32),
                   "total": np.array([row.keys], np.int32)}
        out = problem.new((1, row.query_rows, row.heads * row.value_width))
        window = row.window if row.sight == rows.WINDOW else -1
        return self._call(row, "GroupQueryAttention", _CONTRIBUTED, inputs, [out, *cache],
                          num_heads=row.heads, kv_num_heads=row.key_heads,
                          local_window_size=window)

    @staticmethod
    def _tokens(problem: Problem) -> Inputs:
        return {name: _tokens_first(array)
                for name, array in (("q", problem.q), ("k", problem.k), ("v", problem.v))}

    def _call(self, row: rows.Row, operator: str, domain: str, inputs: Inputs,
              outputs: list[np.ndarray], **attributes: int) -> Call:
        """Runs a model of this one node. Empty inputs are those that the node does without. The
        first output is the result, heads first or tokens first."""
        numbers = _TYPES[row.storage]
        element = {np.dtype(np.bool_): TensorProto.BOOL, np.dtype(np.int32): TensorProto.INT32}
        given = {name: array for name, array in inputs.items() if array.size > 0}

        def info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
            kind = element.get(array.dtype, numbers)
            return helper.make_tensor_value_info(name, kind, list(array.shape))

        def results() -> list[np.ndarray]:
            out = outputs[0] if outputs[0].ndim == 4 else _heads_first(outputs[0], row.heads)
            return [floats(out, row.storage)]

        named_outputs = {f"out{i}": array for i, array in enumerate(outputs)}
        node = helper.make_node(
            operator, [name if name in given else "" for name in inputs], list(named_outputs),
            domain=domain, **attributes)
        graph = helper.make_graph(
            [node], "attention", [info(*item) for item in given.items()],
            [info(*item) for item in named_outputs.items()])
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(_CONTRIBUTED, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), self._options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for bind, arrays in ((binding.bind_input, given), (binding.bind_output, named_outputs)):
            for name, array in arrays.items():
                bind(name, "cpu", 0, element.get(array.dtype, numbers), array.shape,
                     array.ctypes.data)
        return Call(lambda: session.run_with_iobinding(binding), results, (inputs, outputs))
