# SPDX-License-Identifier: MIT
"""Tests of the mutation rules, and of what is known of survivors."""

import sys
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
