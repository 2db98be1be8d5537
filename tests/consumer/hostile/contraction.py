# SPDX-License-Identifier: MIT
"""Finds the lines of the headers where the compiler fuses a product with a sum that was not written
as one: results would depend on how far a program is optimised."""

import re
from collections import Counter
from pathlib import Path

from bench import HERE, ROOT, Bench, Failure

FLAGS = ["-std=c++20", "-O2", "-DFOVEA_NATIVE_ONLY", "-g1", "-S"]
FUSED = re.compile(r"vfn?m(add|sub)|fn?m(add|sub)\b|fml[as]\b")  # of x86-64 and AArch64
# A function that counts multiply-adds says how much work a call is; no number of a result is its.
WORK = re.compile(r"\bdouble products\w*\(")


def fused_lines(assembly: str) -> Counter:
    """How many fused operations each line of a file became, by (path, line)."""
    files: dict[str, str] = {}
    count: Counter = Counter()
    place = ("", 0)
    for text in map(str.strip, assembly.splitlines()):
        if named := re.match(r'\.file\s+(\d+) "([^"]*)"(?: "([^"]*)")?', text):
            # Paths may be relative to the folder of the compiler, which is this program's.
            files[named[1]] = str(Path.cwd() / named[2] / (named[3] or ""))
        elif at := re.match(r"\.loc\s+(\d+) (\d+)", text):
            place = (files.get(at[1], ""), int(at[2]))
        elif FUSED.match(text):
            count[place] += 1
    return count


def counts_work(path: str, line: int) -> bool:
    """Whether the line, from 1, is of a function that counts multiply-adds."""
    lines = Path(path).read_text().splitlines()[:line]
    for above in reversed(lines):
        if WORK.search(above):
            return True
        if re.match(r"(  )?\}", above) and above is not lines[-1]:  # the function before
            return False
    return False


def unwritten(bench: Bench, source: Path, include: Path) -> tuple[int, list[str]]:
    """The fused operations of a source, and the lines of headers in `include` that have more of
    them if the compiler may make some."""
    machine = bench.must([*bench.here, "-dumpmachine"])
    march = ["-march=x86-64-v3"] if machine.startswith("x86_64") else []

    def fused(contract: str) -> Counter:
        to = bench.new_folder() / "source.s"
        bench.must([*bench.here, *FLAGS, *march, f"-ffp-contract={contract}", f"-I{include}",
                    *bench.includes(), str(source), "-o", str(to)])
        return fused_lines(to.read_text(errors="replace"))

    written, all_of_them = bench.pool.map(fused, ["off", "fast"])
    more = [f"{path.removeprefix(f'{include}/')}:{line}" for path, line in sorted(all_of_them)
            if path.startswith(f"{include}/") and not counts_work(path, line)
            and all_of_them[path, line] > written[path, line]]
    return sum(written.values()), more


def nothing_is_fused(bench: Bench, families: list[str]) -> str:
    """The answer of a row of the table."""
    total = 0
    for family in bench.chosen(families):
        written, more = unwritten(bench, HERE / f"{family}.cpp", ROOT / "include")
        if more:
            raise Failure(f"{family}: the compiler fuses products with sums in {', '.join(more)}")
        total += written
    if total == 0:
        raise Failure("nothing is fused anywhere, so this shows nothing")
    return f"{total} fused operations of {' '.join(families)}, all of them written"


PLANTED = """#include <fovea/core/rounded.hpp>
inline double planted(double a, double b, double c) { return a * b + c; }
inline double kept(double a, double b, double c) { return fovea::rounded(a * b) + c; }
inline double products(double a, double b, double c) {
  return a * b + c;
}
inline double after(double a, double b, double c) { return a * b - c; }
"""


def planted_is_seen(bench: Bench) -> str:
    """Lines that are fused are found, but for those of amounts of work."""
    include = bench.new_folder()
    (include / "planted.hpp").write_text(PLANTED)
    source = include / "planted.cpp"
    source.write_text("#include <planted.hpp>\n"
                      "double (*all[])(double, double, double) = {planted, kept, products, "
                      "after};\n")
    _, more = unwritten(bench, source, include)
    if more != ["planted.hpp:2", "planted.hpp:7"]:
        raise Failure(f"what is fused on lines 2 and 7 was seen on {more}")
    return "what is planted is seen, what is rounded is not fused"
