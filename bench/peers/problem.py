# SPDX-License-Identifier: MIT
"""The numbers of a row: one set of tensors in memory that all libraries read."""

import numpy as np

import rows

# The numpy type that stores each type of numbers; numpy has no bfloat16.
ARRAY_TYPES = {rows.F32: np.float32, rows.BF16: np.uint16, rows.F16: np.float16}


def aligned(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array of zeros that begins at a multiple of 64 bytes, as tensors of frameworks do."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view(dtype).reshape(shape)


def stored(values: np.ndarray, storage: str) -> np.ndarray:
    """Floats as a dense array of a storage, rounded to nearest even."""
    out = aligned(values.shape, ARRAY_TYPES[storage])
    if storage == rows.BF16:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        out[...] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    else:
        out[...] = values
    return out


def floats(values: np.ndarray, storage: str) -> np.ndarray:
    """The float32 of an array of a storage."""
    if storage == rows.BF16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


class Problem:
    """Queries, keys and values of a row, the gradient of its output, and its mask if it has one."""

    def __init__(self, row: rows.Row) -> None:
        self.row = row
        random = np.random.default_rng(1)
        self.query_shape = (1, row.heads, row.query_rows, row.width)
        self.key_shape = (1, row.key_heads, row.keys, row.width)
        self.value_shape = (1, row.key_heads, row.keys, row.value_width)
        self.output_shape = (1, row.heads, row.query_rows, row.value_width)

        def gaussians(shape: tuple[int, ...]) -> np.ndarray:
            return stored(random.standard_normal(shape, np.float32), row.storage)

        self.q = gaussians(self.query_shape)
        self.k = gaussians(self.key_shape)
        self.v = gaussians(self.value_shape)
        self.d_out = gaussians(self.output_shape)
        self.mask: np.ndarray | None = None
        if row.sight == rows.MASK:
            draws = random.integers(rows.HIDDEN_SHARE, size=(1, 1, row.query_rows, row.keys))
            self.mask = aligned(draws.shape, np.bool_)
            self.mask[...] = draws != 0

    def new(self, shape: tuple[int, ...]) -> np.ndarray:
        """Room for a result of the row's type of numbers."""
        return aligned(shape, ARRAY_TYPES[self.row.storage])

    def visible(self, queries: np.ndarray) -> np.ndarray:
        """Which keys the rows of these indices see: [len(queries), keys]."""
        row = self.row
        own = queries[:, None] + (row.keys - row.query_rows)
        keys = np.arange(row.keys)[None, :]
        if row.sight == rows.CAUSAL:
            return keys <= own
        if row.sight == rows.WINDOW:
            return (keys <= own) & (keys > own - row.window)
        if self.mask is not None:
            return self.mask[0, 0, queries]
        return np.ones((len(queries), row.keys), bool)

    def sight_mask(self) -> np.ndarray | None:
        """What is visible as a boolean mask [1, 1, queries, keys], for libraries that have no other
        way to say it; None if all is."""
        if self.row.sight == rows.DENSE:
            return None
        if self.mask is not None:
            return self.mask
        mask = aligned((1, 1, self.row.query_rows, self.row.keys), np.bool_)
        mask[0, 0] = self.visible(np.arange(self.row.query_rows))
        return mask
