# SPDX-License-Identifier: MIT
"""PyTorch: scaled_dot_product_attention and, for windows, compiled flex_attention."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import rows
from call import Call, Form
from problem import Problem


def _tensor(array: np.ndarray) -> torch.Tensor:
    """The same memory as a tensor; bfloat16 comes as integers of 16 bits."""
    if array.dtype == np.uint16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


# What a form runs.
Compute = Callable[[], torch.Tensor]


def _forward(problem: Problem, way: Callable[..., Compute]) -> Call:
    """A call of way(problem, q, k, v)."""
    compute = way(problem, *_inputs(problem))
    last: list[torch.Tensor] = []

    def run() -> None:
        with torch.no_grad():
            last[:] = [compute()]

    return Call(run, lambda: [last[0].float().numpy()])


class TorchPeer:
    """Reads the tensors where they are."""

    name = "torch"
    version = torch.__version__

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def forms(self, problem: Problem) -> list[Form]:
        row = problem.row
        if row.what == rows.BACKWARD:
            return [Form("autograd of scaled_dot_product_attention", lambda: _backward(problem))]
        ways = {"scaled_dot_product_attention": _sdpa}
        if row.sight == rows.CAUSAL and not row.is_causal_square:
            ways["scaled_dot_product_attention, causal_lower_right"] = _lower_right
        if row.sight == rows.WINDOW:
            ways["flex_attention, compiled"] = _flex
        if row.key_heads == 1 < row.heads and row.query_rows == 1:
            ways["scaled_dot_product_attention, heads as rows"] = _heads_as_rows
        if row.storage != rows.F32 and row.sight in (rows.DENSE, rows.CAUSAL):
            ways["scaled_dot_product_attention of copies in float32"] = _of_floats
        if row.sight == rows.DENSE and row.heads == row.key_heads:
            ways["matmul, softmax, matmul"] = _matmul
        return [Form(name, partial(_forward, problem, way)) for name, way in ways.items()]


def _inputs(problem: Problem) -> list[torch.Tensor]:
    return [_tensor(array) for array in (problem.q, problem.k, problem.v)]


def _attention(problem: Problem) -> Callable[..., torch.Tensor]:
    """scaled_dot_product_attention with what the row sees."""
    row = problem.row
    is_causal = row.is_causal_square
    sight = None if is_causal else problem.sight_mask()
    mask = None if sight is None else torch.from_numpy(sight)
    return partial(F.scaled_dot_product_attention, attn_mask=mask, is_causal=is_causal,
                   enable_gqa=row.heads != row.key_heads)


def _sdpa(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Compute:
    return partial(_attention(problem), q, k, v)


def _of_floats(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Compute:
    attend = _attention(problem)
    return lambda: attend(q.float(), k.float(), v.float()).to(q.dtype)


def _lower_right(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Compute:
    bias = causal_lower_right(problem.row.query_rows, problem.row.keys)
    return partial(F.scaled_dot_product_attention, q, k, v, attn_mask=bias)


def _heads_as_rows(_: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Compute:
    """One query of many heads on one key head is a problem of one head with as many queries."""
    as_rows = q.transpose(1, 2)
    return lambda: F.scaled_dot_product_attention(as_rows, k, v).transpose(1, 2)


def _matmul(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Compute:
    transposed = k.transpose(-1, -2)
    scale = problem.row.width ** -0.5
    return lambda: torch.matmul(torch.softmax(torch.matmul(q * scale, transposed), -1), v)


def _flex(problem: Problem, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Compute:
    row = problem.row

    def is_visible(batch, head, query, key):  # torch traces it
        return (key <= query) & (query - key < row.window)

    blocks = create_block_mask(is_visible, None, None, row.query_rows, row.keys, device="cpu")
    return partial(torch.compile(flex_attention, dynamic=False), q, k, v, block_mask=blocks)


def _backward(problem: Problem) -> Call:
    inputs = [tensor.requires_grad_() for tensor in _inputs(problem)]
    d_out = _tensor(problem.d_out)
    out = F.scaled_dot_product_attention(*inputs, is_causal=problem.row.sight == rows.CAUSAL)
    last: list[torch.Tensor] = []

    def run() -> None:
        last[:] = torch.autograd.grad(out, inputs, d_out, retain_graph=True)

    return Call(run, lambda: [gradient.numpy() for gradient in last])
