# SPDX-License-Identifier: MIT
"""One row: the fastest variant of every library, checked, then timed, alternating."""

from collections.abc import Callable
from typing import Any

import numpy as np

import agreement
import timing
from call import Call, Library
from fovea_library import FoveaLibrary
from problem import Problem
from rows import Row

# A row's figures, as in the JSON.
Figures = dict[str, Any]

# Whom a row is about to call, in case that it ends the process.
Announce = Callable[[str], None]


class _Candidates:
    """The libraries that can compute a problem, each in its fastest form."""

    def __init__(self, problem: Problem, libraries: list[Library], announce: Announce) -> None:
        self.calls: dict[str, Call] = {}
        self.once: dict[str, float] = {}
        self.forms: dict[str, str] = {}
        self.notes: list[str] = []
        for library in libraries:
            announce(library.name)
            self._choose(problem, library)

    def _choose(self, problem: Problem, library: Library) -> None:
        """Selects the fastest variant; one that raises is omitted with a note."""
        forms = library.forms(problem)
        for form in forms:
            try:
                call = form.make()
                seconds = timing.seconds_of(call.run)
                # An only form is not chosen by its time: a slow one need not run again.
                if len(forms) > 1 or seconds < timing.SLOW_SECONDS:
                    seconds = timing.best_of_three(call.run)
                call.results()
            except Exception as error:  # noqa: BLE001: a library may raise what it likes
                reason = " ".join(str(error).split())[:200] or type(error).__name__
                self.notes.append(f"{library.name}, {form.name}: {reason}")
                continue
            if seconds < self.once.get(library.name, float("inf")):
                self.calls[library.name] = call
                self.once[library.name] = seconds
                self.forms[library.name] = form.name


def measure(row: Row, fovea: FoveaLibrary, peers: list[Library], rounds: int, threads: int,
            announce: Announce) -> Figures:
    """Checks and times a row. Raises if fovea cannot compute it."""
    problem = Problem(row)
    candidates = _Candidates(problem, [fovea, *peers], announce)
    if fovea.name not in candidates.calls:
        raise RuntimeError("; ".join(candidates.notes))
    announce("")
    errors, wrong = _check(problem, candidates)
    runs = {name: call.run for name, call in candidates.calls.items()}
    turns = timing.Turns(runs, candidates.once, threads)
    rounds = turns.rounds(rounds)
    peak = fovea.peak()
    times = turns.times(rounds, peak.burst)
    figures: Figures = {
        "name": row.name(threads), "pass": row.what, "storage": row.storage, "sight": row.sight,
        "heads": row.heads, "key_heads": row.key_heads, "queries": row.query_rows,
        "keys": row.keys, "width": row.width, "value_width": row.value_width,
        "threads": threads, "rounds": rounds,
        "useful_flops": row.flops, "peak_gflops": peak.best * 1e-9,
        "sustained_gflops": peak.sustained * 1e-9,
    }
    base = times[fovea.name]
    for name, of_library in times.items():
        rate_of_thread = row.flops / (of_library.median * threads)
        figures |= {
            f"{name}_form": candidates.forms[name],
            f"{name}_calls": of_library.calls,
            f"{name}_milliseconds": of_library.median * 1e3,
            f"{name}_best_tenth_milliseconds": of_library.best_tenth * 1e3,
            f"{name}_peak_fraction": rate_of_thread / peak.best,
            f"{name}_sustained_fraction": rate_of_thread / peak.sustained,
            f"{name}_error": errors[name] if np.isfinite(errors[name]) else None,
            f"{name}_agrees": name not in wrong,
        }
        if name != fovea.name:
            figures[f"{name}_ratio"] = timing.ratio_of_rounds(of_library, base)
            figures[f"{name}_best_tenth_ratio"] = of_library.best_tenth / base.best_tenth
    rivals = [name for name in times if name != fovea.name]
    if rivals:
        best = min(rivals, key=lambda name: figures[f"{name}_ratio"])
        figures |= {"best_peer": best, "best_peer_ratio": figures[f"{best}_ratio"],
                    "best_peer_best_tenth_ratio": figures[f"{best}_best_tenth_ratio"]}
    return figures | {"notes": candidates.notes + wrong_notes(wrong, errors)}


def wrong_notes(wrong: list[str], errors: dict[str, float]) -> list[str]:
    """A sentence for each library whose results are wrong."""
    return [f"{name}: results are wrong by {errors[name]:.1e} of the largest element of a row"
            for name in wrong]


def _check(problem: Problem, candidates: _Candidates) -> tuple[dict[str, float], list[str]]:
    """The error of each library, and who is beyond what is tolerated: a sample of the results
    against float64, and all of them against the first library whose sample is right."""
    tolerance = agreement.TOLERANCES[problem.row.storage]
    reference = agreement.Reference(problem)
    results = {name: call.results() for name, call in candidates.calls.items()}
    errors = {name: reference.error(of_library) for name, of_library in results.items()}
    right = [name for name in results if errors[name] <= tolerance]
    for name in right[1:]:
        errors[name] = max(errors[name],
                           agreement.largest_error(results[name], results[right[0]]))
    return errors, [name for name in results if not errors[name] <= tolerance]
