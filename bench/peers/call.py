# SPDX-License-Identifier: MIT
"""What a library gives the measurement: a pass that is ready to run, in one or several forms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from problem import Problem


@dataclass
class Call:
    """A pass whose inputs are in place. `run` runs it once; `results` are those of the last run
    as float32, in the layout of agreement.Results."""

    run: Callable[[], object]
    results: Callable[[], list[np.ndarray]]
    # Whatever `run` knows by its address only, so that it lives as long as the call.
    kept: object = None


@dataclass
class Form:
    """One way to say a row in the words of a library. `make` may raise if the library lacks it."""

    name: str
    make: Callable[[], Call]


class Library(Protocol):
    """A library of attention operators."""

    name: str
    version: str

    def forms(self, problem: Problem) -> list[Form]:
        """The ways to compute the problem, of which the fastest is measured. None: it has no such
        pass."""
