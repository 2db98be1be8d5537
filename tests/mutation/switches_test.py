# SPDX-License-Identifier: MIT
"""Tests of programs that contain several mistakes, each behind a switch."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import copies  # noqa: E402
import mutants  # noqa: E402
import switches  # noqa: E402

SAMPLE = """#pragma once
#include <algorithm>
struct Rows { int row; int column; };
inline void check_even(int n) { if (n & 1) throw 17; }
inline int sum_of(int n) {
  int total = 0;
  for (int i = 0; i < n; ++i) {
    total += i + 7;
  }
  return total;
}
inline int relation(int a, int b) {
  if (a < b && a != 3) return a - b;
  const int least = (std::min)(a, b);
  return least;
}
inline int twice(int n) { return n + n; }
inline int stride(Rows rows) { return rows.row * 3; }
inline int parts(Rows rows, int a) {
  return stride(rows) * 10 + 1 +
         a - twice(rows.column == a ? 1 : 2);
}
inline int checked(int n) {
  check_even(n);
  return (std::max)(n, 2);
}
"""
PROGRAM = """#include <cstdio>
#include "fovea/core/config.hpp"
int main() {
  for (int a = 0; a < 6; ++a) {
    for (int b = 0; b < 6; ++b) {
      int checks = 0;
      try { checks = checked(a); } catch (int) { checks = -1; }
      std::printf("%d %d %d %d %d\\n", sum_of(a), relation(a, b), twice(a), parts({a, b}, 4), checks);
    }
  }
}
"""


class Switches(unittest.TestCase):
    """A program of switches is the same as one that was compiled with each mistake."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.header = self.folder / "include" / "fovea" / "core" / "config.hpp"
        self.header.parent.mkdir(parents=True)

    def output(self, lines: list[str], **environment: str) -> str:
        """What the program prints with such a header; compiled once for each."""
        self.header.write_text("\n".join(lines) + "\n")
        (self.folder / "main.cpp").write_text(PROGRAM)
        subprocess.run(["g++", "-std=c++20", "-w", "-fwrapv", "-I", str(self.folder / "include"),
                        str(self.folder / "main.cpp"), "-o", str(self.folder / "main")], check=True)
        return self.said(**environment)

    def said(self, **environment: str) -> str:
        return subprocess.run([str(self.folder / "main")], capture_output=True, text=True, check=True,
                              timeout=10, env={**os.environ, **environment}).stdout

    def test_each_mistake_is_the_one_that_was_asked_for(self) -> None:
        lines = SAMPLE.splitlines()
        found = [m for number, line in enumerate(lines, 1)
                 for m in mutants.mutants_of_line("core/config.hpp", number, line)]
        sound = self.output(lines)
        kinds = set()
        seen = 0
        for round_ in range(max(Counter(m.line for m in found).values())):
            # One of each line.
            places = Counter()
            kept = []
            changed = list(lines)
            for m in found:
                places[m.line] += 1
                if places[m.line] - 1 != round_:
                    continue
                if form := switches.switched(lines, m, len(kept)):
                    kept.append(copies.Switch(len(kept), m, *form))
                    changed[m.line - 1] = form[0]
                else:  # a part of a statement, and no operator
                    self.assertEqual(m.kind, "strides")
                    self.assertIn("a - twice(", m.before)
            (self.folder / "include" / "fovea" / "mutation.hpp").write_text(
                switches.support([one.definition for one in kept]))
            changed.insert(1, '#include "fovea/mutation.hpp"')
            reached = self.folder / "reached"
            reached.write_text("")
            self.assertEqual(self.output(changed, **{switches.REACHED: str(reached)}), sound)
            self.assertEqual({int(n) for n in reached.read_text().split()},
                             {one.number for one in kept})
            said = {one.number: self.said(**{switches.NUMBER: str(one.number)}) for one in kept}
            for one in kept:
                mutated = list(lines)
                mutated[one.mutant.line - 1] = one.mutant.after
                self.assertEqual(said[one.number], self.output(mutated), one.mutant.name)
                kinds.add(one.mutant.kind)
                seen += said[one.number] != sound
        self.assertEqual(kinds, {"relation", "equality", "logic", "bound", "sign", "smaller",
                                 "larger", "strides", "check"})
        self.assertGreater(seen, len(found) * 2 // 3)

    def test_errors_name_the_mistakes(self) -> None:
        mutant = mutants.Mutant("core/view.hpp", 7, "sign", "a + b", "a - b")
        output = ["/x/include/fovea/core/view.hpp: In function 'f':",
                  "/x/include/fovea/core/view.hpp:7:3: error: no match for 'operator-'"]
        places = {("core/view.hpp", 7): copies.Switch(5, mutant, "", "")}
        self.assertEqual(copies.blamed(output, places), {5})
        self.assertEqual(copies.blamed(output[:1], places), set())
        within = ["/x/include/fovea/core/view.hpp:7:9:   required from here",
                  "/x/include/fovea/mutation.hpp:40:2: error: no match for 'operator-'"]
        self.assertEqual(copies.blamed(within, places), {5})
        call = ["/x/include/fovea/core/view.hpp:5:3: error: no matching function for call to 'f'"]
        self.assertEqual(copies.blamed(call, places), {5})
        self.assertEqual(copies.blamed(call, places, around=1), set())
        end = ["/x/include/fovea/core/view.hpp:9:3: error: invalid element index"]
        self.assertEqual(copies.blamed(end, places), {5})


if __name__ == "__main__":
    unittest.main()
