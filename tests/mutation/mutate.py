#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes small changes to the headers, and lists those that no test detects.

This uses a copy of the sources with a separate build for the level of this machine. It is compiled
once, with all mutants as switches (switches.py). Each test first runs without a mutant and reports
the switches that it reaches; then each mutant is run with only the tests that reach it, until one
fails or hangs, which kills the mutant. Quick tests, and those that killed others of the same header
or directory, run first. Survivors are listed: a hole in the tests, no observable change, or only
detected by a test that was skipped because of --patience. Mutants that do not compile are not
counted.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import mutants
import switches
from copies import ROOT, Copy, Switch, built
from fates import ALIVE, asked_again, known_survivors, mistake_of, reason_of, summary


def without_mistakes(copy: Copy, tests: list[str]) -> tuple[dict[str, float], dict[int, list[str]]]:
    """Runs every test without mutants. Returns the seconds of each test that passes, and which of
    these reach each switch."""
    seconds: dict[str, float] = {}
    reached: dict[int, list[str]] = {}

    def run(test: str) -> tuple[str, float, set[int]]:
        with tempfile.NamedTemporaryFile(prefix="reached-") as file:
            begun = time.monotonic()
            passes = copy.run(test, 3600, **{switches.REACHED: file.name})
            numbers = {int(n) for n in Path(file.name).read_text().split()}
            return test, time.monotonic() - begun if passes else -1, numbers

    with ThreadPoolExecutor(copy.jobs) as pool:
        for test, took, numbers in pool.map(run, tests):
            if took < 0:
                print(f"not asked, since it fails without a mistake: {test}", flush=True)
                continue
            seconds[test] = took
            for number in numbers:
                reached.setdefault(number, []).append(test)
    return seconds, reached


def known_without_mistakes(copy: Copy, tests: list[str],
                           file: Path) -> tuple[dict[str, float], dict[int, list[str]]]:
    """The same, kept in a file for a run that was stopped."""
    if not file.exists():
        file.write_text(json.dumps([tests, *without_mistakes(copy, tests)]))
    known, seconds, reached = json.loads(file.read_text())
    if known != tests:
        raise SystemExit(f"mutate.py: {file} is of other tests; remove it to run these")
    return seconds, {int(number): some for number, some in reached.items()}


class Order:
    """Which tests a mutant runs first: those that kill soonest, by their seconds and by what
    became of other mutants of the same header and of the same folder."""

    def __init__(self, seconds: dict[str, float], patience: float) -> None:
        self.seconds = seconds
        self.patience = patience
        self.tries: Counter[tuple[str, str]] = Counter()
        self.kills: Counter[tuple[str, str]] = Counter()

    def keep(self, path: str, test: str, killed: bool) -> None:
        for place in (path, os.path.dirname(path)):
            self.tries[place, test] += 1
            self.kills[place, test] += killed

    def likelihood(self, path: str, test: str) -> float:
        """That the test kills a mutant: of the header as far as it is known, else of the folder;
        before that, those of the header's name and of its folder."""
        stem = path.split(".")[0]
        known = 0.1
        if test.startswith(os.path.dirname(stem)):
            known = 0.5 if test.startswith(stem) else 0.2
        for place in (os.path.dirname(path), path):
            known = (self.kills[place, test] + known) / (self.tries[place, test] + 1)
        return known

    def of(self, path: str, tests: list[str]) -> list[str]:
        """The first of these tests that together take as long as patience lasts, at least one."""
        left = self.patience
        some: list[str] = []
        for test in sorted(tests, key=lambda t: self.seconds[t] / self.likelihood(path, t)):
            if self.seconds[test] <= left:
                left -= self.seconds[test]
                some.append(test)
        return some or sorted(tests, key=self.seconds.__getitem__)[:1]


def fate_of(copy: Copy, one: Switch, tests: list[str], order: Order) -> str:
    """"survived", "survived those asked", "unreached", or the test that killed it."""
    path = one.mutant.path
    some = order.of(path, tests)
    for test in some:
        passes = copy.run(test, 10 + 10 * order.seconds[test], **{switches.NUMBER: str(one.number)})
        order.keep(path, test, not passes)
        if not passes:
            return test
    if not tests:
        return "unreached"
    return "survived" if len(some) == len(tests) else "survived those asked"


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutate.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--directories", default=",".join(mutants.DIRECTORIES),
                        help="comma-separated: " + ",".join(mutants.DIRECTORIES))
    parser.add_argument("--count", type=int, default=1000, help="number of mutants (1000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random selection (1)")
    parser.add_argument("--again", type=Path, metavar="FILE",
                        help="results.json of another run: first repeat its survivors, except those\n"
                             "listed as not observable; none of its other mutants are drawn")
    parser.add_argument("--unlisted", action="store_true",
                        help="draw no mutant that survivors.tsv lists")
    parser.add_argument("--tests", default=".", help="only tests whose names match this (.)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers and tests at once (2)")
    parser.add_argument("--patience", type=float, default=float("inf"), metavar="SECONDS",
                        help="run tests for at most this long per mutant (unlimited)")
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation",
                        help="the copy (build/mutation); an interrupted run continues from its\n"
                             "results.json")
    options = parser.parse_args(arguments)
    unknown = set(options.directories.split(",")) - set(mutants.DIRECTORIES)
    if unknown:
        parser.error(f"no such directory: {', '.join(sorted(unknown))}")
    return options


def drawn(options: argparse.Namespace) -> list[Switch]:
    """The mistakes that are made: of all those that can be switched."""
    include = ROOT / "include" / "fovea"
    found = [m for directory in options.directories.split(",") for m in mutants.mutants_of(include, directory)]
    lines = {path: (include / path).read_text().splitlines() for path in {m.path for m in found}}
    able = [m for m in found if switches.switched(lines[m.path], m, 0)]
    before = json.loads(options.again.read_text()) if options.again else []
    known = known_survivors()
    chosen = asked_again(able, before, known)
    asked = {mistake_of(result) for result in before} | (set(known) if options.unlisted else set())
    taken = {(m.path, m.line) for m in chosen}
    rest = [m for m in able if m.mistake not in asked and (m.path, m.line) not in taken]
    chosen += mutants.drawn(rest, options.count, options.seed)
    print(f"{len(chosen)} of {len(able)} mistakes that can be switched, of {len(found)}", flush=True)
    return [Switch(number, m, *switches.switched(lines[m.path], m, number))
            for number, m in enumerate(chosen)]


class Results:
    """The fates that are known, in a file that grows."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.all: list[dict] = json.loads(file.read_text()) if file.exists() else []
        self.fates = {r["name"] + r["after"]: r["fate"] for r in self.all}

    def of(self, one: Switch) -> str | None:
        return self.fates.get(one.mutant.name + one.mutant.after)

    def keep(self, one: Switch, fate: str, took: float = 0) -> None:
        mutant = one.mutant
        self.fates[mutant.name + mutant.after] = fate
        self.all.append({"name": mutant.name, "before": mutant.before, "after": mutant.after,
                         "fate": fate, "seconds": round(took, 1)})
        self.file.write_text(json.dumps(self.all, indent=1) + "\n")
        print(f"{mutant.name}: {fate}", flush=True)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    chosen = drawn(options)
    if options.list:
        for one in chosen:
            print(f"{one.mutant.name}\n  - {one.mutant.before.strip()}\n  + {one.mutant.after.strip()}")
        return 0
    if shutil.which("cmake") is None:
        print("mutate.py: needs cmake", file=sys.stderr)
        return 2
    results = Results(options.folder / "results.json")
    copy = Copy(options.folder / "sources", options.jobs, chosen)
    copy.prepare()
    tests = copy.tests(options.tests)
    able = built(copy, [one for one in chosen if results.of(one) != "invalid"], tests,
                 lambda one: results.keep(one, "invalid"))
    seconds, reached = known_without_mistakes(copy, tests, options.folder / "base.json")
    print(f"{len(seconds)} tests pass without a mistake, in {sum(seconds.values()):.0f} s", flush=True)

    order = Order(seconds, options.patience)
    for result in results.all:
        if result["fate"] in seconds:
            order.keep(result["name"].split(":")[0], result["fate"], killed=True)

    def run(one: Switch) -> tuple[Switch, str, float]:
        begun = time.monotonic()
        fate = fate_of(copy, one, reached.get(one.number, []), order)
        return one, fate, time.monotonic() - begun

    with ThreadPoolExecutor(options.jobs) as pool:
        asking = [pool.submit(run, one) for one in able if results.of(one) is None]
        for answer in as_completed(asking):
            results.keep(*answer.result())
    known = known_survivors()
    for result in results.all:
        if result["fate"] not in ALIVE:
            continue
        reason = reason_of(result, known)
        print(f"{result['fate']}: {result['name']}\n  - {result['before'].strip()}\n"
              f"  + {result['after'].strip()}\n  "
              + (f"{reason.verdict}: {reason.text}" if reason else "nobody has said why"))
    print(summary(results.all, known))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
