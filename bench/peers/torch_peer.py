# SPDX-License-Identifier: MIT
"""PyTorch: scaled_dot_product_attention and, for windows, compiled flex_attention."""

from collections.abc import Callable

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


def _without_gradients(compute: Callable[[], torch.Tensor]) -> Call:
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
        forms = [Form("scaled_dot_product_attention", lambda: _sdpa(problem))]
        if row.sight == rows.CAUSAL and not row.is_causal_square:
            forms.append(Form("scaled_dot_product_attention, causal_lower_right",
                              lambda: _lower_right(problem)))
        if row.sight == rows.WINDOW:
            forms.append(Form("flex_attention, compiled", lambda: _flex(problem)))
        if row.key_heads == 1 < row.heads and row.query_rows == 1:
            forms.append(Form("scaled_dot_product_attention, heads as rows",
                              lambda: _heads_as_rows(problem)))
        if row.storage != rows.F32 and row.sight in (rows.DENSE, rows.CAUSAL):
            forms.append(Form("scaled_dot_product_attention of copies in float32",
                              lambda: _of_floats(problem)))
        if row.sight == rows.DENSE and row.heads == row.key_heads:
            forms.append(Form("matmul, softmax, matmul", lambda: _matmul(problem)))
        return forms


def _inputs(problem: Problem) -> list[torch.Tensor]:
    return [_tensor(array) for array in (problem.q, problem.k, problem.v)]


def _sdpa(problem: Problem) -> Call:
    row = problem.row
    q, k, v = _inputs(problem)
    is_causal = row.is_causal_square
    sight = None if is_causal else problem.sight_mask()
    mask = None if sight is None else torch.from_numpy(sight)
    is_grouped = row.heads != row.key_heads
    return _without_gradients(
        lambda: F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=is_causal, enable_gqa=is_grouped))


def _lower_right(problem: Problem) -> Call:
    q, k, v = _inputs(problem)
    bias = causal_lower_right(problem.row.query_rows, problem.row.keys)
    return _without_gradients(lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias))


def _heads_as_rows(problem: Problem) -> Call:
    """One query of many heads on one key head is a problem of one head with as many queries."""
    q, k, v = _inputs(problem)
    as_rows = q.transpose(1, 2)
    return _without_gradients(
        lambda: F.scaled_dot_product_attention(as_rows, k, v).transpose(1, 2))


def _of_floats(problem: Problem) -> Call:
    row = problem.row
    q, k, v = _inputs(problem)
    is_causal = row.is_causal_square
    mask = None if is_causal or row.sight == rows.DENSE else torch.from_numpy(problem.sight_mask())
    return _without_gradients(
        lambda: F.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), attn_mask=mask, is_causal=is_causal).to(q.dtype))


def _matmul(problem: Problem) -> Call:
    q, k, v = _inputs(problem)
    transposed = k.transpose(-1, -2)
    scale = problem.row.width ** -0.5
    return _without_gradients(
        lambda: torch.matmul(torch.softmax(torch.matmul(q * scale, transposed), -1), v))


def _flex(problem: Problem) -> Call:
    row = problem.row
    q, k, v = _inputs(problem)

    def is_visible(batch, head, query, key):  # torch traces it
        return (key <= query) & (query - key < row.window)

    blocks = create_block_mask(is_visible, None, None, row.query_rows, row.keys, device="cpu")
    compiled = torch.compile(flex_attention, dynamic=False)
    return _without_gradients(lambda: compiled(q, k, v, block_mask=blocks))


def _backward(problem: Problem) -> Call:
    inputs = [tensor.requires_grad_() for tensor in _inputs(problem)]
    d_out = _tensor(problem.d_out)
    out = F.scaled_dot_product_attention(*inputs, is_causal=problem.row.sight == rows.CAUSAL)
    last: list[torch.Tensor] = []

    def run() -> None:
        last[:] = torch.autograd.grad(out, inputs, d_out, retain_graph=True)

    return Call(run, lambda: [gradient.numpy() for gradient in last])
