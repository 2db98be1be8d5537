# SPDX-License-Identifier: MIT
"""Whether results are right: a float64 reference for a sample of them, and all of each other."""

import numpy as np

import rows
from problem import Problem, floats

# Rows of a head that the reference of a forward pass is computed for.
SAMPLED_ROWS = 64

# The largest error of an element, as a part of the largest element of its row. Libraries may round
# the weights of 16-bit tensors to 16 bits, too.
TOLERANCES = {rows.F32: 3e-5, rows.BF16: 3e-2, rows.F16: 4e-3}

# Results of a pass: the output, or the gradients of q, k and v. [1, heads, rows, width] each.
Results = list[np.ndarray]


def _weights(problem: Problem, head: int, queries: np.ndarray) -> np.ndarray:
    """The softmax of these rows of a head, in float64."""
    row = problem.row
    q = floats(problem.q[0, head, queries], row.storage).astype(np.float64)
    k = floats(problem.k[0, head * row.key_heads // row.heads], row.storage).astype(np.float64)
    logits = q @ k.T / np.sqrt(row.width)
    logits[~problem.visible(queries)] = -np.inf
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _output_of_a_head(problem: Problem, head: int, queries: np.ndarray) -> np.ndarray:
    row = problem.row
    v = floats(problem.v[0, head * row.key_heads // row.heads], row.storage).astype(np.float64)
    return _weights(problem, head, queries) @ v


def _gradients_of_a_head(problem: Problem, head: int) -> Results:
    """The gradients of q, k and v, which are of float and all have the same heads."""
    q, k, v, d_out = (
        tensor[0, head].astype(np.float64)
        for tensor in (problem.q, problem.k, problem.v, problem.d_out)
    )
    weights = _weights(problem, head, np.arange(problem.row.query_rows))
    d_weights = d_out @ v.T
    mean = (weights * d_weights).sum(axis=1, keepdims=True)
    d_logits = weights * (d_weights - mean) / np.sqrt(problem.row.width)
    return [d_logits @ k, d_logits.T @ q, weights.T @ d_out]


class Reference:
    """The truth of a problem in float64, for some of its rows and heads."""

    def __init__(self, problem: Problem) -> None:
        row = problem.row
        if row.what == rows.BACKWARD:
            self.heads = [0, row.heads - 1]
            self.queries = np.arange(row.query_rows)
            of_heads = [_gradients_of_a_head(problem, head) for head in self.heads]
        else:
            self.heads = list(range(row.heads))
            count = min(SAMPLED_ROWS, row.query_rows)
            self.queries = np.unique(np.linspace(0, row.query_rows - 1, count).astype(int))
            of_heads = [[_output_of_a_head(problem, head, self.queries)] for head in self.heads]
        self.results: Results = [np.stack(parts) for parts in zip(*of_heads)]

    def error(self, results: Results) -> float:
        """The largest error of a library's results (largest_error)."""
        sampled = [tensor[0][np.ix_(self.heads, self.queries)] for tensor in results]
        return largest_error(sampled, self.results)


def largest_error(results: Results, truth: Results) -> float:
    """The largest difference of an element, over the largest element of its row or, if that is
    less, of a middling row of its tensor. Infinite if there is a NaN, or a shape is another."""
    worst = 0.0
    for got, want in zip(results, truth, strict=True):
        if got.shape != want.shape:
            return float("inf")
        rows_largest = np.abs(want).max(axis=-1)
        scale = np.maximum(rows_largest, np.median(rows_largest))
        error = float((np.abs(got - want).max(axis=-1) / scale).max())
        worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst
