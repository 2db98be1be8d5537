# SPDX-License-Identifier: MIT
"""Compiles units of the program in this folder, links, runs and judges them: what the rows of the
table are made of."""

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
RESULTS = HERE / "results.json"
REFERENCE = "compilers/g++-12"  # its numbers are those that all rows must give
FAMILIES = ["softmax", "linear", "indexed", "baselines", "half", "layers", "io", "spectral"]
# Of the sum of magnitudes: what roundings may add up to, no more.
TOLERANCE = 2e-5


class NotRun(Exception):
    """What the row needs is not here."""


class Failure(Exception):
    """The row does not do what it should."""


class Bench:
    """What rows build with, and where."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.here = options.compiler.split()
        self.eigen = options.eigen
        self.eigen5 = options.eigen5
        self.families = options.families
        self.is_short = options.short
        self.folder = folder
        self.pool = ThreadPoolExecutor(options.jobs)
        self.numbers = json.loads(RESULTS.read_text())["numbers"] if RESULTS.exists() else {}
        self.objects: dict[str, Path] = {}
        self.programs: dict[str, Path] = {}

    def chosen(self, families: list[str]) -> list[str]:
        """Those of a row's families that are to be built."""
        return [name for name in families if re.search(self.families, name)] or families[-1:]

    def new_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder))

    def call(self, command: list[str], **more) -> subprocess.CompletedProcess:
        """Runs a command, or finds that it is not here."""
        if not which(command[0]):
            raise NotRun(f"no {command[0]} here")
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, check=False,
                              **{"stderr": subprocess.STDOUT, **more})

    def must(self, command: list[str], **more) -> str:
        done = self.call(command, **more)
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if "error" in line.lower()]
            first = (errors or done.stdout.splitlines() or ["no output"])[0]
            raise Failure(f"{Path(command[0]).name} ended with {done.returncode}: {first}")
        return done.stdout

    def includes(self, eigen: str | None = None) -> list[str]:
        return [f"-I{ROOT / 'include'}", "-isystem", eigen or self.eigen]

    def object_of(self, compiler: list[str], flags: list[str], unit: str, suffix: str = "",
                  eigen: str | None = None) -> Path:
        """Compiles a unit of the program, once for each way to."""
        command = [*compiler, *flags, *self.includes(eigen), "-c", str(HERE / f"{unit}.cpp")]
        if suffix:
            command.append(f"-DHOSTILE_SUFFIX={suffix}")
        key = " ".join(command)
        if key not in self.objects:
            to = self.new_folder() / f"{unit}{suffix}.o"
            self.must([*command, "-o", str(to)])
            self.objects[key] = to
        return self.objects[key]

    def objects_of(self, compiler: list[str], flags: list[str], units: list[str], suffix: str = "",
                   eigen: str | None = None) -> list[Path]:
        jobs = [self.pool.submit(self.object_of, compiler, flags, unit, suffix, eigen)
                for unit in units]
        return [job.result() for job in jobs]

    def main_of(self, compiler: list[str], flags: list[str], units: list[str]) -> Path:
        """The main function that calls units of these names."""
        folder = self.new_folder()
        calls = " ".join(f"f({unit})" for unit in units)
        (folder / "units.hpp").write_text(f"#define HOSTILE_UNITS(f) {calls}\n")
        self.must([*compiler, *flags, f"-I{folder}", "-c", str(HERE / "main.cpp"),
                   "-o", str(folder / "main.o")])
        return folder / "main.o"

    def run(self, program: Path, emulator: list[str] | None = None) -> str:
        """What the program prints."""
        environment = {name: value for name, value in os.environ.items() if name != "FOVEA_ISA"}
        command = [*(emulator or []), str(program)]
        # qemu warns on stderr of features of a processor that it has not.
        errors = program.with_suffix(".errors")
        with errors.open("w") as to:
            done = self.call(command, env=environment, cwd=program.parent, timeout=900, stderr=to)
        if done.returncode != 0:
            said = errors.read_text().splitlines() or ["nothing"]
            raise Failure(f"the program ended with {done.returncode} and said: {said[-1]}")
        return done.stdout

    def judge(self, output: str, units: list[str]) -> str:
        """Holds what a program printed to what is promised, and says what was seen."""
        seen = defaultdict(set)  # the bits of each unit and level, over all threads
        fused = defaultdict(set)  # the bits of each family at the levels with fused multiply-adds
        levels = set()
        lines = [line.split() for line in output.splitlines()]
        if len(lines) != 9 * len(units):
            raise Failure(f"{len(lines)} lines; expected {9 * len(units)}")
        same = True
        for name, _, level, _, bits, total, size in lines:
            family = name.split("__")[0]
            levels.add(int(level))
            seen[name, level].add(bits)
            if int(level) > 1:
                fused[family].add(bits)
            number = self.numbers.get(family)
            if number is None:
                raise Failure(f"no numbers of {family} to compare with: run the row {REFERENCE} "
                              "with --write")
            if not abs(float(total) - number["sum"]) <= TOLERANCE * number["size"]:
                raise Failure(f"{name} at level {level}: the sum is {total}; expected about "
                              f"{number['sum']}")
            same = same and bits in number["bits"]
        for what, bits in [*seen.items(), *fused.items()]:
            if len(bits) != 1:
                raise Failure(f"{what}: {len(bits)} different results; expected one")
        names = {1: "baseline", 3: "v3", 4: "v4"}
        at = ", ".join(names[level] for level in sorted(levels))
        bits = "the reference's bits" if same else "bits of its own"
        families = list(dict.fromkeys(unit.split("__")[0] for unit in units))
        return f"{' '.join(families)} at {at}: {bits}"

    def program(self, compiler: list[str], flags: list[str], units: list[str],
                link: list[str] | None = None, emulator: list[str] | None = None,
                eigen: str | None = None) -> str:
        """Builds a program of units, runs and judges it."""
        units = self.chosen(units)
        objects = self.objects_of(compiler, flags, units, "", eigen)
        objects.append(self.main_of(compiler, flags, units))
        return self.link_and_judge(compiler, flags, [str(o) for o in objects], units, link, emulator)

    def link_and_judge(self, compiler: list[str], flags: list[str], objects: list[str],
                       units: list[str], link: list[str] | None = None,
                       emulator: list[str] | None = None) -> str:
        program = self.new_folder() / "program"
        fftw = ["-lfftw3f", "-lfftw3"] if any(u.startswith("spectral") for u in units) else []
        self.must([*compiler, *flags, *objects, "-o", str(program), *(link or []), *fftw,
                   "-pthread"])
        return self.judge(self.run(program, emulator), units)

    def compile_text(self, compiler: list[str], flags: list[str], text: str,
                     eigen: str | None = None) -> subprocess.CompletedProcess:
        """The front end's answer to a source."""
        source = self.new_folder() / "source.cpp"
        source.write_text(text)
        return self.call([*compiler, *flags, "-fsyntax-only", "-Wfatal-errors",
                          *self.includes(eigen), str(source)])

    def accepted(self, compiler: list[str], flags: list[str], text: str,
                 eigen: str | None = None) -> str:
        """The source must compile."""
        done = self.compile_text(compiler, flags, text, eigen)
        if done.returncode != 0:
            errors = [line for line in done.stdout.splitlines() if "error" in line] or ["?"]
            raise Failure(errors[0])
        return "compiles"

    def refused(self, compiler: list[str], flags: list[str], text: str, message: str) -> str:
        """The source must not compile, and say why."""
        done = self.compile_text(compiler, flags, text)
        if done.returncode == 0:
            raise Failure("it compiled")
        if message not in done.stdout:
            errors = [line for line in done.stdout.splitlines() if "error" in line] or ["?"]
            raise Failure(f"it does not say '{message}', but: {errors[0]}")
        return f"refused: \"{message}\""


def numbers_of(output: str) -> dict:
    """What the reference's program printed, by family."""
    numbers: dict[str, dict] = {}
    for line in output.splitlines():
        name, _, _, _, bits, total, size = line.split()
        number = numbers.setdefault(name, {"sum": float(total), "size": float(size), "bits": []})
        if bits not in number["bits"]:
            number["bits"].append(bits)
    return numbers
