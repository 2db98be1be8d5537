# SPDX-License-Identifier: MIT
"""fovea by the C functions of library.cpp."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np

import rows
from call import Call, Form
from problem import Problem, aligned, floats

_STORAGES = {rows.F32: 0, rows.BF16: 1, rows.F16: 2}


class _Row(ctypes.Structure):
    """PeersRow of library.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64)
          for name in ("heads", "key_heads", "queries", "keys", "width", "value_width")),
        ("left", ctypes.c_int64),
        ("right", ctypes.c_int64),
        ("storage", ctypes.c_int32),
    ]


def _c_row(row: rows.Row) -> _Row:
    left = row.window - 1 if row.sight == rows.WINDOW else -1
    right = 0 if row.sight in (rows.CAUSAL, rows.WINDOW) else -1
    return _Row(row.heads, row.key_heads, row.query_rows, row.keys, row.width, row.value_width,
                left, right, _STORAGES[row.storage])


def _address(array: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


class FoveaLibrary:
    """The shared object, with its own threads."""

    name = "fovea"

    def __init__(self, path: Path, threads: int) -> None:
        """Raises OSError if there is no such library, RuntimeError if it cannot be used."""
        self._c = ctypes.CDLL(str(path))
        for name in ("error", "facts"):
            self._function(name).restype = ctypes.c_char_p
        for name in ("pool", "decoder"):
            self._function(name).restype = ctypes.c_void_p
        self.facts = self._read_facts()
        self.version = self.facts["fovea"]
        self._pool = ctypes.c_void_p(self._c.fovea_peers_pool(threads))
        if not self._pool:
            raise RuntimeError(self._error())

    def close(self) -> None:
        """Ends the threads."""
        self._c.fovea_peers_pool_delete(self._pool)

    def peak(self) -> "PeakSample":
        """A sample of the peak of one thread, without a burst yet."""
        return PeakSample(self._c.fovea_peers_peak_burst)

    def forms(self, problem: Problem) -> list[Form]:
        """The one form of each pass."""
        make = {rows.FORWARD: self._forward, rows.BACKWARD: self._backward,
                rows.DECODE: self._decode}[problem.row.what]
        return [Form(problem.row.what, lambda: make(problem))]

    def _forward(self, problem: Problem) -> Call:
        out = problem.new(problem.output_shape)
        run = self._forward_run(problem, out, None)
        return Call(run, lambda: [floats(out, problem.row.storage)], problem)

    def _forward_run(self, problem: Problem, out: np.ndarray,
                     lse: np.ndarray | None) -> Callable[[], None]:
        row, forward = _c_row(problem.row), self._c.fovea_peers_forward
        tensors = (problem.q, problem.k, problem.v, problem.mask, out, lse)
        arguments = (self._pool, ctypes.byref(row), *map(_address, tensors))
        return lambda: self._check(forward(*arguments))

    def _backward(self, problem: Problem) -> Call:
        out = problem.new(problem.output_shape)
        lse = aligned((*problem.query_shape[:3], 1), np.float32)
        self._forward_run(problem, out, lse)()
        grads = [problem.new(shape) for shape in (problem.query_shape, problem.key_shape,
                                                  problem.value_shape)]
        row, backward = _c_row(problem.row), self._c.fovea_peers_backward
        tensors = (problem.q, problem.k, problem.v, out, lse, problem.d_out, *grads)
        arguments = (self._pool, ctypes.byref(row), *map(_address, tensors))
        return Call(lambda: self._check(backward(*arguments)), lambda: grads, tensors)

    def _decode(self, problem: Problem) -> Call:
        decoder = _Decoder(self, problem)
        out = problem.new(problem.output_shape)
        step = self._c.fovea_peers_step
        arguments = (decoder.handle, self._pool, _address(problem.q), _address(out))
        return Call(lambda: self._check(step(*arguments)),
                    lambda: [floats(out, problem.row.storage)], (decoder, problem))

    def _function(self, name: str):
        return getattr(self._c, "fovea_peers_" + name)

    def _error(self) -> str:
        return (self._c.fovea_peers_error() or b"").decode() or "out of memory"

    def _check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self._error())

    def _read_facts(self) -> dict[str, str]:
        text = self._c.fovea_peers_facts()
        if text is None:
            raise RuntimeError(self._error())
        return dict(line.split("\t", 1) for line in text.decode().splitlines())


class PeakSample:
    """bench::PeakSample (bench/measure/probe.hpp): the peak of multiply-adds over a run, in flops
    per second of one thread. The library has one at a time."""

    def __init__(self, add_burst: Callable[..., None]) -> None:
        self._add_burst = add_burst
        self._is_new = True
        self._best = ctypes.c_double()
        self._sustained = ctypes.c_double()

    def burst(self) -> None:
        """Measures for some milliseconds."""
        self._add_burst(self._is_new, ctypes.byref(self._best), ctypes.byref(self._sustained))
        self._is_new = False

    @property
    def best(self) -> float:
        """Of the best slice of each burst, in the mean."""
        return self._best.value

    @property
    def sustained(self) -> float:
        """Of all slices."""
        return self._sustained.value


class _Decoder:
    """A decoder that is deleted with the call that uses it."""

    def __init__(self, library: FoveaLibrary, problem: Problem) -> None:
        self._library = library
        make = library._function("decoder")
        row = _c_row(problem.row)
        self.handle = ctypes.c_void_p(
            make(ctypes.byref(row), _address(problem.k), _address(problem.v)))
        if not self.handle:
            raise RuntimeError(library._error())

    def __del__(self) -> None:
        self._library._function("decoder_delete")(self.handle)
