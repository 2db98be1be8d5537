# SPDX-License-Identifier: MIT
"""Finds the lines of the headers where GCC fuses a product with a sum that was not written as one:
results would depend on how far a program is optimised."""

import re
from collections import Counter
from pathlib import Path

from bench import HERE, ROOT, Bench, Failure

# Of these files such lines say how much work a call is, which no number of a result depends on.
WORK = ["attention/linear/operator.hpp", "attention/linear/terms.hpp", "attention/nystroem.hpp",
        "attention/sinkhorn.hpp"]
FLAGS = ["-std=c++20", "-O2", "-march=x86-64-v3", "-DFOVEA_NATIVE_ONLY", "-g1", "-S"]


def fused_lines(assembly: str) -> Counter:
    """How many fused operations each line of a header became."""
    files: dict[str, str] = {}
    count: Counter = Counter()
    line = ""
    for text in map(str.strip, assembly.splitlines()):
        if named := re.match(r'\.file (\d+) "([^"]*)"(?: "([^"]*)")?', text):
            files[named[1]] = named[3] or named[2]
        elif at := re.match(r"\.loc (\d+) (\d+)", text):
            line = f"{files.get(at[1], '?')}:{at[2]}"
        elif re.match(r"vfn?m(add|sub)", text):
            count[line] += 1
    return count


def unwritten(bench: Bench, source: Path) -> tuple[int, list[str]]:
    """The fused operations of a source, and the lines of headers that have more of them if the
    compiler may make some."""
    def fused(contract: str) -> Counter:
        to = bench.new_folder() / "source.s"
        bench.must([*bench.here, *FLAGS, f"-ffp-contract={contract}", *bench.includes(), str(source),
                    "-o", str(to)])
        return fused_lines(to.read_text(errors="replace"))

    written, all_of_them = bench.pool.map(fused, ["off", "fast"])
    headers = f"{ROOT / 'include' / 'fovea'}/"
    more = [line.removeprefix(headers) for line in sorted(all_of_them)
            if line.startswith(headers) and all_of_them[line] > written[line]]
    return sum(written.values()), [line for line in more if line.split(":")[0] not in WORK]


def nothing_is_fused(bench: Bench, families: list[str]) -> str:
    """The answer of a row of the table."""
    total = 0
    for family in bench.chosen(families):
        written, more = unwritten(bench, HERE / f"{family}.cpp")
        if more:
            raise Failure(f"{family}: GCC fuses what {more[0]} computes")
        total += written
    if total == 0:
        raise Failure("nothing is fused anywhere, so this shows nothing")
    return f"{total} fused operations of {' '.join(families)}, all of them written"


def planted_is_seen(bench: Bench) -> str:
    """A line that is fused is found."""
    source = bench.new_folder() / "planted.cpp"
    source.write_text("#include <fovea/core/rounded.hpp>\n"
                      f'#line 7 "{ROOT / "include" / "fovea" / "planted.hpp"}"\n'
                      "double planted(double a, double b, double c) { return a * b + c; }\n"
                      "double kept(double a, double b, double c) {\n"
                      "  return fovea::rounded(a * b) + c;\n}\n")
    _, more = unwritten(bench, source)
    if more != ["planted.hpp:7"]:
        raise Failure(f"what is fused on one line was seen on {more}")
    return "what is planted is seen, what is rounded is not fused"
