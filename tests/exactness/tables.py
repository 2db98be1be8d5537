#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Puts together what the test programs left in a folder (FOVEA_EXACTNESS).

    tables.py FOLDER OUT.json operators|functions KEY=VALUE...

Of operators the worst error in R of each pass for each type and level, and how many results each
property compared by bits; of functions the worst error in ulp. The pairs stand at the top of the
file: what was run, and where. A number of elements is of all levels and types together.
"""

import collections
import json
import math
import pathlib
import re
import sys

# The first that a case's name begins with is its operator.
OPERATORS = [
    ("full", "full, causal"), ("causal_window", "window"), ("causal", "full, causal"),
    ("local", "window"), ("window", "window"), ("strided", "strided"), ("fixed", "fixed"),
    ("longformer", "Longformer"), ("big_bird", "BigBird"), ("block_list", "lists of blocks and tokens"),
    ("tokens", "lists of blocks and tokens"), ("dilated", "dilated window"), ("indexed", "indexed"),
    ("smart_bird", "Smart Bird"), ("fsat", "FSAT"), ("linear", "linear"), ("delta", "delta rule"),
    ("fmm", "FMM"), ("performer", "Performer"), ("synthesizer", "Synthesizer"),
    ("factorised_synthesizer", "Synthesizer"), ("random_synthesizer", "Synthesizer"),
    ("luna", "Luna"), ("fat", "FAT"), ("block_window", "window of blocks"),
    # Cases that tests of a family make for themselves.
    ("given", "BigBird"), ("own", "linear"), ("relu", "linear"), ("elu", "linear"),
    ("linformer", "Linformer"), ("nystroem", "Nystroem"), ("sinkhorn", "Sinkhorn"),
    ("reformer", "Reformer"), ("fourier_cross", "Fourier cross"), ("fourier_mixer", "Fourier mixer"),
]
PASSES = {"out": "out", "lse": "lse", "round_lse": "lse", "adjoint": "adjoint"}
LEVELS = ("baseline", "v3", "v4")


def operator_of(case):
    """The operator of a case's name; its own name where the table above has none."""
    name = re.sub(r"^drawn ", "", case)  # by the fuzzer, with drawn options
    name = re.sub(r"(?<=[a-z])(Attention)", "", name)  # LinearAttention, by the decoders' tests
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return next((operator for prefix, operator in OPERATORS if name.startswith(prefix)), case)


class Errors:
    """Rows of worst errors by what they are of."""

    def __init__(self):
        self.rows = collections.defaultdict(dict)

    def add(self, row, scalar, level, worst, count):
        cells = self.rows[row]
        column = f"{scalar}_{level}"
        if not math.isfinite(worst):
            raise ValueError(f"{row}, {column}: an error is {worst}, on which a test has failed")
        cells[column] = max(worst, cells.get(column, 0.0))
        cells["elements"] = cells.get("elements", 0) + count

    def listed(self):
        """In the order of the names; without a level that the machine lacks there is no column."""
        return [{"row": row, **cells} for row, cells in sorted(self.rows.items())]


def of_operators(lines):
    """What the lines that the test programs wrote say of operators, and of comparisons by bits."""
    operators, cases = Errors(), Errors()
    compared = collections.Counter()
    elements = collections.Counter()
    for line in lines:
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == "bits":
            compared[fields[0]] += int(fields[1])
            elements[fields[0]] += int(fields[2])
            continue
        if kind == "ulp":
            continue
        name, result, scalar, level, worst, count = fields
        part = PASSES.get(result, "gradients")
        operators.add(f"{operator_of(name)}: {part}", scalar, level, float(worst), int(count))
        cases.add(f"{name}: {result}", scalar, level, float(worst), int(count))
    bits = [{"property": name, "comparisons": compared[name], "elements": elements[name]}
            for name in sorted(compared)]
    return {
        "elements_judged": sum(row["elements"] for row in operators.listed()),
        "worst_ratio": max((value for row in operators.listed() for column, value in row.items()
                            if column.endswith(LEVELS)), default=0.0),
        "comparisons_by_bits": sum(compared.values()),
        "elements_by_bits": sum(elements.values()),
        "operators": operators.listed(), "bits": bits, "cases": cases.listed(),
    }


def of_functions(lines):
    """What they say of functions."""
    functions = Errors()
    for line in lines:
        kind, *fields = line.rstrip("\n").split("\t")
        if kind == "ulp":
            name, result, scalar, level, worst, count = fields
            functions.add(f"{name}, {result}", scalar, level, float(worst), int(count))
    return {"numbers": sum(row["elements"] for row in functions.listed()),
            "functions": functions.listed()}


TABLES = {"operators": of_operators, "functions": of_functions}


def main(folder, out, what, *said):
    files = sorted(pathlib.Path(folder).glob("*.tsv"))
    if not files:
        sys.exit(f"tables.py: no .tsv in {folder}")
    lines = [line for file in files for line in file.read_text().splitlines()]
    made = {**dict(pair.split("=", 1) for pair in said), "programs": len(files), **TABLES[what](lines)}
    # A row a line, so that differences can be read.
    text = re.sub(r"\{\s*\"(row|property)\".*?\}", lambda row: re.sub(r"\s+", " ", row[0]),
                  json.dumps(made, indent=1), flags=re.DOTALL)
    pathlib.Path(out).write_text(text + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[3] not in TABLES:
        sys.exit(__doc__)
    main(*sys.argv[1:])
