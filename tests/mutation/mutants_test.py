# SPDX-License-Identifier: MIT
"""What the rules make of lines, and which tests are asked."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import mutants  # noqa: E402
import mutate  # noqa: E402

INCLUDE = mutate.ROOT / "include" / "fovea"


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
        found = [m for floor in mutants.FLOORS for m in mutants.mutants_of(INCLUDE, floor)]
        self.assertEqual({m.kind for m in found}, {rule.kind for rule in mutants.RULES})
        self.assertTrue(all(m.before != m.after for m in found))


class Draws(unittest.TestCase):
    def test_same_seed_same_mutants_one_of_a_line(self) -> None:
        found = mutants.mutants_of(INCLUDE, "patterns")
        first = mutants.drawn(found, 50, 7)
        self.assertEqual(first, mutants.drawn(found, 50, 7))
        self.assertNotEqual(first, mutants.drawn(found, 50, 8))
        self.assertEqual(len({(m.path, m.line) for m in first}), 50)


class Tests(unittest.TestCase):
    def test_every_header_has_tests_that_exist(self) -> None:
        names = {file.relative_to(mutate.ROOT / "tests").as_posix()
                 .removesuffix("_test.cpp").replace("/", "_")
                 for file in (mutate.ROOT / "tests").rglob("*_test.cpp")}
        for floor in mutants.FLOORS:
            for mutant in mutants.mutants_of(INCLUDE, floor):
                self.assertLessEqual(set(mutate.tests_of(mutant.path)), names, mutant.path)

    def test_the_longest_part_decides(self) -> None:
        self.assertIn("attention_sinkhorn", mutate.tests_of("kernels/sorting/sorting.hpp"))
        self.assertEqual(mutate.tests_of("kernels/unit.hpp"), ["attention_conformance"])


if __name__ == "__main__":
    unittest.main()
