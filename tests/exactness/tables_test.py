# SPDX-License-Identifier: MIT
"""Tests of the tables made from the lines that test programs write."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import tables  # noqa: E402


def row(table, name):
    return next(row for row in table if row["row"] == name)


class Tables(unittest.TestCase):
    def test_the_worst_of_all_cases_and_programs_stands(self):
        made = tables.of_operators(["ratio\tlinear_2_maps\tout\tfloat\tv3\t1.5\t10",
                              "ratio\tlinear_causal\tout\tfloat\tv3\t2.5\t20",
                              "ratio\tlinear\tout\tfloat\tv3\t0.5\t1",
                              "ratio\tlinear\tout\tdouble\tv3\t7\t1"])
        self.assertEqual(row(made["operators"], "linear: out"),
                         {"row": "linear: out", "float_v3": 2.5, "double_v3": 7, "elements": 32})
        self.assertEqual(made["worst_ratio"], 7)
        self.assertEqual(made["elements_judged"], 32)
        self.assertEqual(len(made["cases"]), 3)

    def test_what_failed_is_not_published(self):
        for worst in ("nan", "inf"):
            with self.assertRaisesRegex(ValueError, "full, causal: out, float_v4"):
                tables.of_operators([f"ratio\tfull\tout\tfloat\tv4\t{worst}\t1"])

    def test_all_gradients_are_one_pass(self):
        made = tables.of_operators(["ratio\tfmm\td_q\tfloat\tv4\t3\t1", "ratio\tfmm\td_v\tfloat\tv4\t4\t1"])
        self.assertEqual(row(made["operators"], "FMM: gradients")["float_v4"], 4)

    def test_names_lead_to_their_operators(self):
        for case, operator in (("causal_alibi", "full, causal"), ("causal_window", "window"),
                               ("LinearAttention constant", "linear"), ("FmmAttention", "FMM"),
                               ("linformer", "Linformer"), ("drawn fixed drawn", "fixed"), ("of nobody", "of nobody")):
            self.assertEqual(tables.operator_of(case), operator)

    def test_comparisons_by_bits_are_summed(self):
        made = tables.of_operators(["bits\tThreads\t3\t100", "bits\tThreads\t1\t5", "bits\tStrides\t1\t1"])
        self.assertEqual(made["comparisons_by_bits"], 5)
        self.assertIn({"property": "Threads", "comparisons": 4, "elements": 105}, made["bits"])

    def test_functions_have_a_table_of_their_own(self):
        lines = ["ulp\texp\tvalues\tfloat\tv3\t0.75\t9", "ulp\texp\tvalues\tfloat\tv3\t0.5\t1",
                 "ratio\tfull\tout\tfloat\tv4\t2\t1", "bits\tThreads\t3\t100"]
        self.assertEqual(tables.of_functions(lines),
                         {"numbers": 10, "functions": [{"row": "exp, values", "float_v3": 0.75, "elements": 10}]})
        self.assertEqual(len(tables.of_operators(lines)["operators"]), 1)


if __name__ == "__main__":
    unittest.main()
