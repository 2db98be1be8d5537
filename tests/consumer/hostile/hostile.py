#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The headers in other people's programs: compiles and runs the program of this folder in every way
of the table in rows.py. A row passes if the program works, with the bits that are promised and the
numbers of the reference, or if it is refused by the sentence that the row expects.

usage: hostile.py [REGEX] [--families REGEX] [--short] [--write] [--install] [--list]
                  [--compiler C++] [--eigen DIR] [--eigen5 DIR] [--jobs N]
  REGEX       the rows to run, by name; all of them if none is given
  --families  of what a row builds only these families of operators, or the row's last one
  --short     only the quick rows, and every eighth header alone, as the suite does
  --write     keep the results in results.json, those of other rows staying as they are
  --install   install the compilers and emulators that the rows name, from Debian
"""

import argparse
import fcntl
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from shutil import which

import rows
from bench import HERE, RESULTS, Bench, Failure, NotRun

PACKAGES = ("g++-11 clang-14 clang-16 clang-19 libclang-rt-19-dev clang-22 lld-19 libc++-19-dev "
            "libc++abi-19-dev qemu-user g++-aarch64-linux-gnu g++-s390x-linux-gnu "
            "g++-arm-linux-gnueabihf").split()


def versions() -> dict:
    """The compilers and emulators that are here, in their own words."""
    found = {}
    for name in ("g++-11 g++-12 g++-13 g++-14 clang++-14 clang++-16 clang++-19 clang++-22 ld.lld-19 "
                 "aarch64-linux-gnu-g++ s390x-linux-gnu-g++ arm-linux-gnueabihf-g++ qemu-x86_64 "
                 "qemu-aarch64 qemu-s390x").split():
        text = subprocess.run([name, "--version"], capture_output=True, text=True,
                              check=False).stdout if which(name) else ""
        found[name] = text.splitlines()[0] if text else "not here"
    return found


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("rows", nargs="?", default=".")
    parser.add_argument("--families", default=".")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--compiler", default="g++-12" if which("g++-12") else "g++")
    parser.add_argument("--eigen", default="/usr/include/eigen3")
    parser.add_argument("--eigen5", default=os.environ.get("FOVEA_EIGEN5", ""))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.install:
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES],
                       check=True, stdin=subprocess.DEVNULL)

    chosen = [row for row in rows.table()
              if re.search(options.rows, row.name) and (row.is_short or not options.short)]
    if options.list:
        print("\n".join(row.name for row in chosen))
        return 0
    counts = defaultdict(int)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        bench = Bench(options, Path(folder))
        for row in chosen:
            counts[run_row(row, bench, options.write)] += 1
    counted = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
    print(f"{len(chosen)} rows in {time.monotonic() - begin:.0f} s: {counted}")
    if options.short and counts["not run"]:
        print("a quick row needs what is not here", file=sys.stderr)
        return 1
    return 1 if counts["failed"] or not chosen else 0


def run_row(row: rows.Row, bench: Bench, write: bool) -> str:
    """Runs a row, prints and keeps its result, and returns its status."""
    begin = time.monotonic()
    try:
        note = row.run(bench)
        status = "refused" if note.startswith("refused") else "passed"
    except NotRun as error:
        status, note = "not run", str(error)
    except (Failure, subprocess.TimeoutExpired) as error:
        status, note = "failed", str(error)
    seconds = time.monotonic() - begin
    print(f"{status:8} {row.name:32} {seconds:6.1f} s  {note}", flush=True)
    if write:
        with open(HERE / "hostile.py", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            keep_result(row, bench, status, note, seconds)
    return status


def keep_result(row: rows.Row, bench: Bench, status: str, note: str, seconds: float) -> None:
    """Puts the result of a row into its place in results.json."""
    keep = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"program": "hostile"}
    keep["versions"] = versions()
    keep["numbers"] = {**keep.get("numbers", {}), **bench.numbers}
    kept = {one["name"]: one for one in keep.get("rows", [])}
    kept[row.name] = {"name": row.name, "how": row.how, "status": status, "note": note,
                      "seconds": round(seconds, 1)}
    keep["rows"] = [kept.get(one.name, {"name": one.name, "how": one.how, "status": "not run",
                                        "note": "not yet", "seconds": 0})
                    for one in rows.table()]
    for name in ("passed", "refused", "failed", "not run"):
        keep[name.replace(" ", "_")] = sum(one["status"] == name for one in keep["rows"])
    keep["seconds"] = round(sum(one["seconds"] for one in keep["rows"]))
    RESULTS.write_text(json.dumps(keep, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
