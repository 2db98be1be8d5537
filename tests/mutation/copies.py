# SPDX-License-Identifier: MIT
"""A copy of the sources that is compiled once with all mistakes as switches, and its tests."""

import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mutants
import switches

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "core/config.hpp"  # every header includes it
SUPPORT = "mutation.hpp"  # what it includes of the copy alone
MOST_MEMORY = 12 << 30  # bytes that can be written: a mistake may ask for all there is


@dataclass(frozen=True)
class Switch:
    """A mistake, its number, the line that holds both forms, and what must be defined for it."""

    number: int
    mutant: mutants.Mutant
    text: str
    definition: str


@dataclass(frozen=True)
class Test:
    """The command of a test, and its additional environment."""

    command: list[str]  # the program and its arguments, or those of what starts it on ranks
    program: str
    environment: dict[str, str]

    @property
    def target(self) -> str:
        """What builds it."""
        return Path(self.program).name


def tests_of(lines: list[str], folder: Path) -> dict[str, Test]:
    """Of the tests of a CTestTestfile.cmake those that run a program of this folder. (ctest itself
    does not say what runs a test while it is not built.)"""
    commands = {}
    environments = {}
    for line in lines:
        if added := re.match(r"add_test\(\[=\[(.+?)\]=\] (.*)\)$", line):
            commands[added[1]] = re.findall(r'"([^"]*)"', added[2])
        elif said := re.match(r"set_tests_properties\(\[=\[(.+?)\]=\] .*\bENVIRONMENT \"([^\"]+)\"",
                              line):
            environments[said[1]] = dict(one.split("=", 1) for one in said[2].split(";") if one)
    return {name: Test(command, word, environments.get(name, {}))
            for name, command in commands.items()
            for word in command if Path(word).parent == folder}


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
             "-DFOVEA_BUILD_BENCH=OFF", "-DFOVEA_TEST_PACKAGE=OFF", "-DFOVEA_INSTALL=OFF"],
            cwd=self.folder, check=True, stdout=subprocess.DEVNULL)

    def tests(self, pattern: str) -> list[str]:
        """The tests that can be built and whose names match."""
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
        # The environment may request colours.
        plain = re.sub(r"\x1b\[[0-9;]*[mK]", "", done.stdout)
        return [] if done.returncode == 0 else plain.splitlines()

    def run(self, test: str, seconds: float, **environment: str) -> bool:
        """Whether the test passes, in a separate directory."""
        known = self.known[test]
        # A rank that stops at its first failure would let the others wait.
        stop = ["--gtest_fail_fast"] if known.command[0] == known.program else []
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
            with subprocess.Popen(
                    [*known.command, *stop], cwd=folder,
                    env={**os.environ, **known.environment, "TMPDIR": folder,
                         "TEST_TMPDIR": folder, **environment},
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                    preexec_fn=_limit) as running:
                try:
                    return running.wait(seconds) == 0
                except subprocess.TimeoutExpired:
                    # The launcher of ranks ends them on SIGTERM.
                    running.terminate()
                    try:
                        running.wait(10)
                    except subprocess.TimeoutExpired:
                        running.kill()
                    return False


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def blamed(output: list[str], places: dict[tuple[str, int], Switch], around: int = 4) -> set[int]:
    """The switches that compilers complain of: of each error the one in its line, else the nearest
    in so many lines around it, as calls have several lines, else the first in what it is part of."""
    found: set[int] = set()
    place = re.compile(r"include/fovea/([\w/.]+):(\d+)")
    context: list[int] = []
    for line in output:
        named = [(m[1], int(m[2])) for m in place.finditer(line)]
        here = [places[key].number for key in named if key in places]
        if ": error: " in line:
            near = [places[path, n + by].number for distance in range(1, around + 1)
                    for path, n in named for by in (distance, -distance)
                    if (path, n + by) in places]
            found.update((here or near or context)[:1])
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
        bad = blamed(output, places)
        if not bad:
            (copy.folder / "errors.log").write_text("\n".join(output))
            raise SystemExit(f"mutate.py: see {copy.folder / 'errors.log'}")
        for one in chosen:
            if one.number in bad:
                refuse(one)
        chosen = [one for one in chosen if one.number not in bad]
