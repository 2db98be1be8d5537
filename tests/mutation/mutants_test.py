# SPDX-License-Identifier: MIT
"""Tests of the mutation rules and of switches."""

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
import fates  # noqa: E402
import mutants  # noqa: E402
import mutate  # noqa: E402
import switches  # noqa: E402

INCLUDE = copies.ROOT / "include" / "fovea"


def afters(line: str) -> list[str]:
    return [m.after for m in mutants.mutants_of_line("core/view.hpp", 1, line)]


class Rules(unittest.TestCase):
    def test_each_place_is_one_mistake(self) -> None:
        self.assertEqual(afters("  for (Index i = 0; i < n - 1; ++i) {"),
                         ["  for (Index i = 0; i <= n - 1; ++i) {",
                          "  for (Index i = 0; i < n - 0; ++i) {",
                          "  for (Index i = 0; i < n + 1; ++i) {"])

    def test_brackets_of_templates_are_no_relations(self) -> None:
        self.assertEqual(afters("  std::vector<View<const T>> all;"), [])

    def test_comments_and_directives_stay(self) -> None:
        for line in ("// a < b", "/// \\pre a < b", "#if A < B", "static_assert(a < b);"):
            self.assertEqual(afters(line), [])
        self.assertEqual(afters("  Index n = 0;  // a < b"), [])

    def test_checks_are_removed(self) -> None:
        self.assertIn("", afters("    check_forward(name(), x, y);"))
        self.assertIn("  if (n < 0) {}", afters('  if (n < 0) refuse("op", "n", "it", "more");'))

    def test_all_kinds_find_places(self) -> None:
        found = [m for directory in mutants.DIRECTORIES for m in mutants.mutants_of(INCLUDE, directory)]
        self.assertEqual({m.kind for m in found}, {rule.kind for rule in mutants.RULES})
        self.assertTrue(all(m.before != m.after for m in found))


class Draws(unittest.TestCase):
    def test_same_seed_same_mutants_one_of_a_line(self) -> None:
        found = mutants.mutants_of(INCLUDE, "patterns")
        first = mutants.drawn(found, 50, 7)
        self.assertEqual(first, mutants.drawn(found, 50, 7))
        self.assertNotEqual(first, mutants.drawn(found, 50, 8))
        self.assertEqual(len({(m.path, m.line) for m in first}), 50)

    def test_other_lines_do_not_change_what_is_drawn(self) -> None:
        found = mutants.mutants_of(INCLUDE, "patterns")
        first = mutants.drawn(found, 50, 7)
        left_out = {(m.path, m.line) for m in found[::7]} - {(m.path, m.line) for m in first}
        self.assertTrue(left_out)
        rest = [m for m in found if (m.path, m.line) not in left_out]
        twins = Counter(m.mistake for m in found)
        only = {m for m in first if twins[m.mistake] == 1}
        self.assertGreater(len(only), 30)
        self.assertLessEqual(only, set(mutants.drawn(rest, 50, 7)))


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


class Places(unittest.TestCase):
    def test_most_mistakes_can_be_switched(self) -> None:
        able = total = 0
        for directory in mutants.DIRECTORIES:
            for mutant in mutants.mutants_of(INCLUDE, directory):
                lines = (INCLUDE / mutant.path).read_text().splitlines()
                able += switches.switched(lines, mutant, 0) is not None
                total += 1
        self.assertGreater(able, total * 9 // 10)


class Survivors(unittest.TestCase):
    def test_stand_in_the_headers_with_a_reason(self) -> None:
        known = fates.known_survivors()
        self.assertGreater(len(known), 100)
        made = {m.mistake
                for directory in mutants.DIRECTORIES for m in mutants.mutants_of(INCLUDE, directory)}
        for mistake, reason in known.items():
            self.assertTrue(mistake in made, mistake)
            self.assertIn(reason.verdict, fates.VERDICTS)
            self.assertGreater(len(reason.text), 15, mistake)

    def test_those_that_could_be_seen_are_asked_again(self) -> None:
        def mutant(line: int, before: str) -> mutants.Mutant:
            return mutants.Mutant("core/a.hpp", line, "relation", "  " + before,
                                  "  " + before.replace("<", "<="))

        def result(fate: str, before: str) -> dict:
            return {"name": "core/a.hpp:6 relation", "before": before,
                    "after": before.replace("<", "<="), "fate": fate}

        known = {("core/a.hpp", "a < b", "a <= b"): fates.Reason("equal", "a is never b")}
        able = [mutant(1, "a < b"), mutant(2, "c < d"), mutant(3, "e < f"), mutant(4, "g < h"),
                mutant(5, "c < d")]
        before = [result("survived", "a < b"), result("survived those asked", "c < d"),
                  result("core/a", "e < f")]
        self.assertEqual(fates.asked_again(able, before, known), [able[4]])

    def test_those_that_cannot_be_seen_are_counted_apart(self) -> None:
        known = {("core/a.hpp", "a < b", "a <= b"): fates.Reason("equal", "a is never b"),
                 ("core/a.hpp", "c < d", "c <= d"): fates.Reason("hole", "no test asks")}

        def result(fate: str, before: str) -> dict:
            return {"name": "core/a.hpp:7 relation", "before": "  " + before,
                    "after": "  " + before.replace("<", "<="), "fate": fate}

        text = fates.summary([result("survived", "a < b"), result("survived", "c < d"),
                               result("core/a", "e < f"), result("invalid", "g < h")], known)
        self.assertTrue(text.startswith("1 of 3 mutants killed (33.3 %), 2 survived"), text)
        self.assertTrue(text.endswith("1 of the survivors cannot be seen: of the others 50.0 % are "
                                      "killed"), text)


class Tests(unittest.TestCase):
    def test_are_programs_of_the_folder(self) -> None:
        lines = """subdirs("consumer")
add_test([=[core/view]=] "/build/tests/core_tests-O0" "core/view" "--gtest_brief=1")
set_tests_properties([=[core/view]=] PROPERTIES  ENVIRONMENT "" LABELS "core")
add_test([=[attention/backward/2]=] "/build/tests/attention_backward_test" "--gtest_brief=1")
set_tests_properties([=[attention/backward/2]=] PROPERTIES  ENVIRONMENT "SHARDS=2;SHARD=1;" LABELS "a")
add_test([=[distributed/rows/3_ranks]=] "/usr/bin/mpiexec" "-n" "3" "/build/tests/distributed_tests" "distributed/rows")
add_test([=[mutation/mutants]=] "/usr/bin/python3" "-B" "/source/tests/mutation/mutants_test.py")
""".splitlines()
        found = copies.tests_of(lines, Path("/build/tests"))
        self.assertEqual(list(found), ["core/view", "attention/backward/2", "distributed/rows/3_ranks"])
        self.assertEqual(found["core/view"].command,
                         ["/build/tests/core_tests-O0", "core/view", "--gtest_brief=1"])
        self.assertEqual(found["core/view"].target, "core_tests-O0")
        self.assertEqual(found["core/view"].environment, {})
        self.assertEqual(found["attention/backward/2"].environment, {"SHARDS": "2", "SHARD": "1"})
        self.assertEqual(found["distributed/rows/3_ranks"].target, "distributed_tests")
        self.assertEqual(found["distributed/rows/3_ranks"].command[:3], ["/usr/bin/mpiexec", "-n", "3"])


class Order(unittest.TestCase):
    def test_first_come_quick_tests_and_those_that_killed_in_the_header(self) -> None:
        order = mutate.Order({"quick": 1, "slow": 4, "slower": 9}, patience=100)
        every = ["slower", "slow", "quick"]
        self.assertEqual(order.of("core/view.hpp", every), ["quick", "slow", "slower"])
        for _ in range(3):
            order.keep("core/view.hpp", "quick", killed=False)
            order.keep("core/view.hpp", "slower", killed=True)
        self.assertEqual(order.of("core/view.hpp", every)[0], "slower")
        self.assertEqual(order.of("core/tensor.hpp", every)[0], "slower")
        self.assertEqual(order.of("io/npy.hpp", every)[0], "quick")

    def test_patience_leaves_out_what_takes_longer_but_asks_one(self) -> None:
        seconds = {"quick": 1.0, "slow": 4.0}
        self.assertEqual(mutate.Order(seconds, 3).of("a", ["quick", "slow"]), ["quick"])
        self.assertEqual(mutate.Order(seconds, 3).of("a", ["slow"]), ["slow"])
        order = mutate.Order({"quick": 1.0, "slow": 4.0}, 3)
        for _ in range(9):
            order.keep("a", "slow", killed=True)
        self.assertEqual(order.of("a", ["slow", "quick"]), ["quick"])


if __name__ == "__main__":
    unittest.main()
