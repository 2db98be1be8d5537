#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes small mistakes in the headers, one after the other, and asks whether the tests see them.

Everything happens in a copy of the sources with a build of its own, of the level of this machine
alone. It is compiled once, with all mistakes as switches (switches.py). Each test first runs without
a mistake and says which ones it came by; then each mistake is asked of those tests alone until one
fails or hangs: that kills the mutant. First come quick tests and those that killed others of the
same header or folder. What survives is listed: it is a hole in the tests, or changes nothing that
can be seen, or only a test sees it that was not asked because of --patience. A mistake that does not
compile is not counted.
"""

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mutants
import switches

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "core/config.hpp"  # every header includes it
SUPPORT = "mutation.hpp"  # what it includes of the copy alone
MOST_MEMORY = 12 << 30  # bytes that can be written: a mistake may ask for all there is
ALIVE = ("survived", "survived those asked", "unreached")
SURVIVORS = Path(__file__).resolve().parent / "survivors.tsv"  # those that somebody has read
VERDICTS = {
    "equal": "it computes the same",
    "work": "it does more or less for the same",
    "padding": "it touches memory that is there for it",
    "elsewhere": "tests see it that a run does not ask: over ranks, of other levels, or long ones",
    "hole": "a test is missing",
    "open": "nobody knows yet",
}
UNSEEN = ("equal", "work", "padding")  # what nobody can see in results


@dataclass(frozen=True)
class Switch:
    """A mistake, its number, the line that holds both forms, and what must be defined for it."""

    number: int
    mutant: mutants.Mutant
    text: str
    definition: str


@dataclass(frozen=True)
class Test:
    """What runs a test, and in which environment besides."""

    command: list[str]
    environment: dict[str, str]

    @property
    def target(self) -> str:
        """What builds it."""
        return Path(self.command[0]).name


def tests_of(lines: list[str], folder: Path) -> dict[str, Test]:
    """Of the tests of a CTestTestfile.cmake those that are programs of this folder. (ctest itself
    does not say what runs a test while it is not built.)"""
    commands = {}
    environments = {}
    for line in lines:
        if added := re.match(r"add_test\(\[=\[(.+?)\]=\] (.*)\)$", line):
            commands[added[1]] = re.findall(r'"([^"]*)"', added[2])
        elif said := re.match(r"set_tests_properties\(\[=\[(.+?)\]=\] .*\bENVIRONMENT \"([^\"]+)\"",
                              line):
            environments[said[1]] = dict(one.split("=", 1) for one in said[2].split(";"))
    return {name: Test(command, environments.get(name, {})) for name, command in commands.items()
            if command and Path(command[0]).parent == folder}


class Copy:
    """A copy of the sources with a build in it."""

    def __init__(self, folder: Path, jobs: int, drawn: list[Switch]) -> None:
        self.folder = folder
        self.build = folder / "build" / "mutation"
        self.jobs = jobs
        self.drawn = drawn
        self.known: dict[str, Test] = {}

    @property
    def include(self) -> Path:
        return self.folder / "include" / "fovea"

    def prepare(self) -> None:
        """Copies what git knows, and configures."""
        if not self.folder.exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(self.folder)], check=True)
        subprocess.run(
            ["cmake", "--preset", "test", "-B", str(self.build),
             "-DCMAKE_CXX_FLAGS=-march=native -DFOVEA_NATIVE_ONLY -w -Wno-error",
             "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DFOVEA_BUILD_EXAMPLES=OFF",
             "-DFOVEA_BUILD_BENCH=OFF", "-DFOVEA_TEST_PACKAGE=OFF"],
            cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def tests(self, pattern: str) -> list[str]:
        """The tests that can be built and whose names match. (Over ranks none is asked.)"""
        folder = self.build.resolve() / "tests"
        self.known = tests_of((folder / "CTestTestfile.cmake").read_text().splitlines(), folder)
        chosen = sorted(name for name in self.known if re.search(pattern, name))
        if not chosen:
            raise SystemExit(f"mutate.py: no test matches '{pattern}'")
        return chosen

    def write(self, chosen: list[Switch]) -> None:
        """Writes the headers with these switches; all others become as git knows them."""
        changed: dict[str, list[str]] = {CONFIG: list(self.sound(CONFIG))}
        for one in chosen:
            path, line = one.mutant.path, one.mutant.line - 1
            lines = self.sound(path)
            if lines[line] != one.mutant.before:
                raise RuntimeError(f"{self.folder} is not the tree that mutants were drawn from")
            changed.setdefault(path, list(lines))[line] = one.text
        begin = changed[CONFIG].index("#pragma once") + 1
        changed[CONFIG].insert(begin, f'#include "fovea/{SUPPORT}"')
        # Of all that were drawn, so that it stays as it is when some are left out.
        changed[SUPPORT] = switches.support([one.definition for one in self.drawn]).splitlines()
        known = subprocess.run(["git", "diff", "--name-only", "--relative", "HEAD", "--", "."],
                               cwd=self.include, capture_output=True, text=True, check=True).stdout
        for path in known.split():
            changed.setdefault(path, list(self.sound(path)))
        for path, lines in changed.items():
            text = "\n".join(lines) + "\n"
            file = self.include / path
            # What stays as it is need not be compiled again.
            if not file.exists() or file.read_text() != text:
                file.write_text(text)

    @cache
    def sound(self, path: str) -> list[str]:
        """The lines of a header as git knows it."""
        return subprocess.run(["git", "show", f"HEAD:include/fovea/{path}"], cwd=self.folder,
                              capture_output=True, text=True, check=True).stdout.splitlines()

    def first_errors(self) -> list[str]:
        """What the compiler says of errors in a source that calls every operator: most mistakes that
        do not compile are found by it before everything is built."""
        done = subprocess.run(
            ["g++", "-std=c++20", "-march=native", "-DFOVEA_NATIVE_ONLY", "-w", "-fsyntax-only",
             f"-I{self.folder / 'include'}", "-isystem", "/usr/include/eigen3", "-include",
             "fovea/io.hpp", str(self.folder / "tests/consumer/flags/every_operator.cpp")],
            capture_output=True, text=True, check=False)
        return [] if done.returncode == 0 else done.stderr.splitlines()

    def errors(self, tests: list[str]) -> list[str]:
        """Builds the tests, and returns what the compilers say of errors; nothing is enough."""
        done = subprocess.run(
            ["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target",
             *sorted({self.known[test].target for test in tests}), "--", "-k", "0"],
            capture_output=True, text=True, errors="replace", check=False)
        return [] if done.returncode == 0 else done.stdout.splitlines()

    def run(self, test: str, seconds: float, **environment: str) -> bool:
        """Whether the test passes, in a folder of its own."""
        known = self.known[test]
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
            try:
                return subprocess.run(
                    [*known.command, "--gtest_fail_fast"], cwd=folder,
                    env={**os.environ, **known.environment, "TMPDIR": folder,
                         "TEST_TMPDIR": folder, **environment},
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds,
                    preexec_fn=_limit, check=False).returncode == 0
            except subprocess.TimeoutExpired:
                return False


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def blamed(output: list[str], places: dict[tuple[str, int], Switch], below: int = 0) -> set[int]:
    """The switches that compilers complain of: of each error the first place that holds one, or has
    one in a line below, not further than so many."""
    found: set[int] = set()
    place = re.compile(r"include/fovea/([\w/.]+):(\d+)")
    context: list[int] = []
    for line in output:
        near = ((m[1], int(m[2]) + n) for m in place.finditer(line) for n in range(below + 1))
        here = [places[key].number for key in near if key in places]
        if ": error: " in line:
            found.update((here or context)[:1])
            context = []
        elif re.search(r": In |required from|in 'constexpr'|expansion of", line):
            context += here
    return found


def built(copy: Copy, chosen: list[Switch], tests: list[str],
          refuse: Callable[[Switch], None]) -> list[Switch]:
    """The switches that compile; the tests are built with them. \p refuse hears of the others."""
    while True:
        copy.write(chosen)
        output = copy.first_errors() or copy.errors(tests)
        if not output:
            return chosen
        places = {(one.mutant.path, one.mutant.line): one for one in chosen}
        # A call of several lines is complained of in its first one.
        bad = blamed(output, places) or blamed(output, places, below=4)
        if not bad:
            (copy.folder / "errors.log").write_text("\n".join(output))
            raise SystemExit(f"mutate.py: see {copy.folder / 'errors.log'}")
        for one in chosen:
            if one.number in bad:
                refuse(one)
        chosen = [one for one in chosen if one.number not in bad]


def without_mistakes(copy: Copy, tests: list[str]) -> tuple[dict[str, float], dict[int, list[str]]]:
    """Runs every test as it is. Returns the seconds that each took that passes, and which of these
    come by each switch."""
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
    """Which tests are asked of a mutant first: those that kill soonest, by their seconds and by what
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
        """That the test kills a mutant: of the header as far as it is known, else of the folder."""
        known = 0.1
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
        passes = copy.run(test, 20 + 10 * order.seconds[test], **{switches.NUMBER: str(one.number)})
        order.keep(path, test, not passes)
        if not passes:
            return test
    if not tests:
        return "unreached"
    return "survived" if len(some) == len(tests) else "survived those asked"


@dataclass(frozen=True)
class Reason:
    """Why no test has seen a mistake."""

    verdict: str  # one of VERDICTS
    text: str


def known_survivors() -> dict[tuple[str, str, str], Reason]:
    """By header, line and what the mistake makes of it."""
    lines = [line.split("\t") for line in SURVIVORS.read_text().splitlines()[1:]]
    return {(path, before, after): Reason(verdict, text)
            for path, before, after, verdict, text in lines}


def mistake_of(result: dict) -> tuple[str, str, str]:
    """What was asked, as Mutant.mistake says it."""
    return result["name"].split(":")[0], result["before"].strip(), result["after"].strip()


def reason_of(result: dict, known: dict[tuple[str, str, str], Reason]) -> Reason | None:
    """What is known of a survivor."""
    return known.get(mistake_of(result))


def summary(results: list[dict], known: dict[tuple[str, str, str], Reason]) -> str:
    """How many were killed, of all and of those that can be seen."""
    fates = Counter(r["fate"] for r in results)
    alive = [r for r in results if r["fate"] in ALIVE]
    reasons = [reason_of(r, known) for r in alive]
    unseen = sum(1 for reason in reasons if reason and reason.verdict in UNSEEN)
    counted = len(results) - fates["invalid"]
    killed = counted - len(alive)
    return (f"{killed} of {counted} mutants killed "
            f"({100 * killed / max(1, counted):.1f} %), {fates['survived']} survived, "
            f"{fates['survived those asked']} survived the tests that were asked, "
            f"{fates['unreached']} are never reached, {fates['invalid']} do not compile; "
            f"{unseen} of the survivors cannot be seen: of the others "
            f"{100 * killed / max(1, counted - unseen):.1f} % are killed")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutate.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--floors", default=",".join(mutants.FLOORS),
                        help="comma-separated: " + ",".join(mutants.FLOORS))
    parser.add_argument("--count", type=int, default=1000, help="mutants in all (1000)")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn (1)")
    parser.add_argument("--again", type=Path, metavar="FILE",
                        help="first ask those again that survived another run, whose results.json\n"
                             "this is, but for those that nobody could see; of what that run has\n"
                             "asked nothing is drawn")
    parser.add_argument("--tests", default=".", help="only tests whose names match this (.)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers and tests at once (2)")
    parser.add_argument("--patience", type=float, default=float("inf"), metavar="SECONDS",
                        help="ask a mutant of tests that take so long in all, and no more (no end)")
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation",
                        help="the copy (build/mutation); results.json in it grows, and a run that\n"
                             "was stopped goes on")
    options = parser.parse_args(arguments)
    unknown = set(options.floors.split(",")) - set(mutants.FLOORS)
    if unknown:
        parser.error(f"no such floor: {', '.join(sorted(unknown))}")
    return options


def asked_again(able: list[mutants.Mutant], before: list[dict],
                known: dict[tuple[str, str, str], Reason]) -> list[mutants.Mutant]:
    """Those that survived before and could be seen, as far as they can still be made: each in the
    nearest line, at most one of a line."""
    places: dict[tuple[str, str, str], list[mutants.Mutant]] = {}
    for mutant in able:
        places.setdefault(mutant.mistake, []).append(mutant)
    chosen: dict[tuple[str, int], mutants.Mutant] = {}
    for result in before:
        reason = reason_of(result, known)
        if result["fate"] not in ALIVE or (reason and reason.verdict in UNSEEN):
            continue
        line = int(result["name"].split(":")[1].split()[0])
        free = [m for m in places.get(mistake_of(result), []) if (m.path, m.line) not in chosen]
        if free:
            nearest = min(free, key=lambda m: abs(m.line - line))
            chosen[nearest.path, nearest.line] = nearest
    return list(chosen.values())


def drawn(options: argparse.Namespace) -> list[Switch]:
    """The mistakes that are made: of all those that can be switched."""
    include = ROOT / "include" / "fovea"
    found = [m for floor in options.floors.split(",") for m in mutants.mutants_of(include, floor)]
    lines = {path: (include / path).read_text().splitlines() for path in {m.path for m in found}}
    able = [m for m in found if switches.switched(lines[m.path], m, 0)]
    before = json.loads(options.again.read_text()) if options.again else []
    chosen = asked_again(able, before, known_survivors())
    asked = {mistake_of(result) for result in before}
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
