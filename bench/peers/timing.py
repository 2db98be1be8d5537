# SPDX-License-Identifier: MIT
"""Times calls in turns, so that a busy moment of the machine is everybody's."""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Runs = dict[str, Callable[[], object]]

# Waiting threads of ONNX Runtime and OpenMP spin for some milliseconds; then they sleep.
PAUSE_SECONDS = 0.01
# After that pause the system wakes several threads on one processor, and separates them later.
WARM_SECONDS_OF_THREADS = 0.01
# A round calls each candidate for about this time, but no more often than this.
ROUND_SECONDS = 0.03
MOST_CALLS = 30
# A candidate this slow takes no notice of a call before that warms caches and pages; with several
# threads, which have to find their processors, one that is this slow.
SLOW_SECONDS = 0.3
SLOW_SECONDS_OF_THREADS = 3
# A row whose rounds take longer than this together has fewer of them, but no fewer than a figure
# needs.
ROW_SECONDS = 30
LEAST_ROUNDS = 7


@dataclass
class Times:
    """Seconds of the single calls of one candidate, by rounds."""

    rounds: list[list[float]]

    @property
    def calls(self) -> int:
        return sum(map(len, self.rounds))

    @property
    def median(self) -> float:
        """The median of the rounds, each of which is the median of its calls."""
        return statistics.median(self.round_medians)

    @property
    def round_medians(self) -> list[float]:
        return [statistics.median(calls) for calls in self.rounds]

    @property
    def best_tenth(self) -> float:
        """The time that a tenth of the calls does not exceed (the best call, if they are few)."""
        calls = sorted(time for calls in self.rounds for time in calls)
        return calls[math.ceil(len(calls) / 10) - 1]


def ratio_of_rounds(times: Times, base: Times) -> float:
    """How often the time of `base` goes into the other's: each round alone, then the median."""
    return statistics.median(
        a / b for a, b in zip(times.round_medians, base.round_medians, strict=True))


def seconds_of(run: Callable[[], object]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def best_of_three(run: Callable[[], object]) -> float:
    """Seconds of a call that was called before; of a slow one a single call says enough."""
    best = float("inf")
    for _ in range(3):
        seconds = seconds_of(run)
        best = min(best, seconds)
        if seconds >= SLOW_SECONDS:
            break
    return best


class Turns:
    """Times candidates in alternating order, so that none always follows the same one.

    `once` says how long a call takes, about. Before its calls of a round a candidate is called
    once, for it has lost its caches to the others. In rows of several threads there is a pause
    before whatever is timed, in which the threads of the others go to sleep, and calls before are
    repeated until the threads have found their processors.
    """

    def __init__(self, runs: Runs, once: dict[str, float], threads: int) -> None:
        self._runs = runs
        self._threads = threads
        slow = SLOW_SECONDS if threads == 1 else SLOW_SECONDS_OF_THREADS
        self._is_warmed = {name: once[name] < slow for name in runs}
        self._calls = {name: max(1, min(MOST_CALLS, round(ROUND_SECONDS / once[name])))
                       for name in runs}
        self._round_seconds = sum(
            (self._calls[name] + self._is_warmed[name]) * once[name] for name in runs)

    def rounds(self, asked: int) -> int:
        """How many of the requested rounds fit into the time limit."""
        return min(asked, max(LEAST_ROUNDS, int(ROW_SECONDS / self._round_seconds)))

    def times(self, rounds: int, before_round: Callable[[], object]) -> dict[str, Times]:
        """Goes round so often."""
        times = {name: Times([]) for name in self._runs}
        order = list(self._runs)
        for _ in range(rounds):
            self._pause()
            before_round()
            for name in order:
                run = self._runs[name]
                self._pause()
                if self._is_warmed[name]:
                    self._warm(run)
                times[name].rounds.append([seconds_of(run) for _ in range(self._calls[name])])
            order.reverse()
        return times

    def _warm(self, run: Callable[[], object]) -> None:
        least = WARM_SECONDS_OF_THREADS if self._threads > 1 else 0
        end = time.perf_counter() + least
        run()
        while time.perf_counter() < end:
            run()

    def _pause(self) -> None:
        if self._threads > 1:
            time.sleep(PAUSE_SECONDS)
