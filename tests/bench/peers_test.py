# SPDX-License-Identifier: MIT
"""bench/peers, without any peer: the numbers of each row, what is noticed when results are wrong,
and the program as users run it, with packages that are missing or end the process.

Runs with FOVEA_PEERS_LIBRARY, the shared object, and numpy."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "bench" / "peers"
sys.path.insert(0, str(FOLDER))

import agreement  # noqa: E402
import plot  # noqa: E402
import rows  # noqa: E402
import timing  # noqa: E402
import worker  # noqa: E402
from call import Call, Form  # noqa: E402
from fovea_library import FoveaLibrary  # noqa: E402
from measure import measure  # noqa: E402
from problem import Problem, floats, stored  # noqa: E402
from report import Report  # noqa: E402

LIBRARY = Path(os.environ["FOVEA_PEERS_LIBRARY"])


def tiny(what: str, storage: str = rows.F32, sight: str = rows.DENSE, **more: int) -> rows.Row:
    shape = {"keys": 43, "width": 8, "heads": 4, "key_heads": 4, "window": 5, **more}
    return rows.Row(what, storage, sight, **shape)


class OtherLibrary:
    """A peer that copies what fovea finds, and adds an error to one element."""

    name = "other"
    version = "1"

    def __init__(self, fovea: FoveaLibrary, error: float) -> None:
        self._fovea = fovea
        self._error = error

    def forms(self, problem: Problem) -> list[Form]:
        def fails() -> Call:
            raise ValueError("it has no such form")

        return [Form("broken", fails), Form("copy", lambda: self._copy(problem))]

    def _copy(self, problem: Problem) -> Call:
        call = self._fovea.forms(problem)[0].make()

        def results() -> list[np.ndarray]:
            all_results = [tensor.copy() for tensor in call.results()]
            all_results[-1][0, 1, 2, 3] += self._error
            return all_results

        return Call(call.run, results, call)


class Rows(unittest.TestCase):
    def test_names_are_distinct(self) -> None:
        names = [row.name(threads) for row in rows.ROWS for threads in (1, 2)]
        self.assertEqual(len(set(names)), len(names))

    def test_flops_are_those_of_the_pairs_that_are_visible(self) -> None:
        for sight in (rows.DENSE, rows.CAUSAL, rows.WINDOW):
            for queries in (0, 3):
                row = tiny(rows.FORWARD, sight=sight, queries=queries)
                pairs = Problem(row).visible(np.arange(row.query_rows)).sum() * row.heads
                self.assertEqual(row.flops, 4 * row.width * pairs)
        masked = Problem(tiny(rows.FORWARD, sight=rows.MASK, keys=400))
        self.assertAlmostEqual(masked.mask.mean(), 1 - 1 / rows.HIDDEN_SHARE, delta=0.01)

    def test_bfloat16_is_rounded_to_nearest_even(self) -> None:
        ulp = 2.0**-7
        values = np.array([1, 1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, -3.25], np.float32)
        expected = [1, 1, 1 + 2 * ulp, 1 + ulp, -3.25]
        self.assertEqual(list(floats(stored(values, rows.BF16), rows.BF16)), expected)


class Times(unittest.TestCase):
    def test_ratios_are_those_of_rounds(self) -> None:
        base = timing.Times([[1.0], [10.0], [2.0]])
        other = timing.Times([[2.0], [30.0], [4.0]])
        self.assertEqual(timing.ratio_of_rounds(other, base), 2)
        self.assertEqual(timing.Times([[float(i)] for i in range(20, 0, -1)]).best_tenth, 2)

    def test_order_alternates(self) -> None:
        called: list[str] = []
        runs = {name: lambda name=name: called.append(name) for name in "ab"}
        turns = timing.Turns(runs, {"a": 1.0, "b": 1.0}, threads=1)
        turns.times(3, lambda: called.append(" "))
        self.assertEqual("".join(called), " ab ba ab")

    def test_slow_rows_have_fewer_rounds(self) -> None:
        for seconds, asked, rounds in ((0.1, 15, 15), (timing.ROW_SECONDS / 10, 15, 10),
                                       (100.0, 15, timing.LEAST_ROUNDS), (100.0, 2, 2)):
            turns = timing.Turns({"a": lambda: None}, {"a": seconds}, threads=1)
            self.assertEqual(turns.rounds(asked), rounds)


class Measured(unittest.TestCase):
    def setUp(self) -> None:
        self.fovea = FoveaLibrary(LIBRARY, 2)
        self.addCleanup(self.fovea.close)

    def figures(self, row: rows.Row, peers: list) -> dict:
        return measure(row, self.fovea, peers, 2, 2, lambda library: None)

    def test_every_kind_of_row_is_right(self) -> None:
        kinds = [tiny(rows.FORWARD, storage, sight) for storage in (rows.F32, rows.BF16, rows.F16)
                 for sight in (rows.DENSE, rows.CAUSAL, rows.WINDOW, rows.MASK)]
        kinds += [tiny(rows.BACKWARD, sight=sight)
                  for sight in (rows.DENSE, rows.CAUSAL, rows.WINDOW)]
        kinds += [tiny(rows.DECODE, storage, queries=1) for storage in (rows.F32, rows.BF16)]
        kinds += [tiny(rows.DECODE, sight=rows.CAUSAL, queries=5)]
        kinds += [tiny(rows.FORWARD, queries=3, key_heads=2)]
        kinds += [tiny(what, values=24) for what in (rows.FORWARD, rows.BACKWARD)]
        kinds += [tiny(rows.DECODE, queries=1, values=24)]
        for row in kinds:
            with self.subTest(row.name(2)):
                figures = self.figures(row, [])
                self.assertTrue(figures["fovea_agrees"], figures["fovea_error"])
                self.assertGreater(figures["fovea_milliseconds"], 0)
                for fraction, peak in (("peak_fraction", "peak_gflops"),
                                       ("sustained_fraction", "sustained_gflops")):
                    rate = figures[f"fovea_{fraction}"] * figures[peak] * 2e9
                    seconds = figures["fovea_milliseconds"] * 1e-3
                    self.assertAlmostEqual(rate * seconds / row.flops, 1)
                self.assertNotIn("best_peer", figures)

    def test_a_wrong_result_is_noticed(self) -> None:
        for what in (rows.FORWARD, rows.BACKWARD):
            for error, agrees in ((0.0, True), (1e-2, False), (float("nan"), False)):
                with self.subTest(what=what, error=error):
                    figures = self.figures(tiny(what), [OtherLibrary(self.fovea, error)])
                    self.assertEqual(figures["other_agrees"], agrees)
                    self.assertEqual(figures["best_peer"], "other")
                    self.assertIn("broken: it has no such form", figures["notes"][0])
                    report = Report([])
                    report.add_row(figures)
                    self.assertEqual(report.has_failed, not agrees)
                    json.loads(report.json_text(), parse_constant=self.fail)

    def test_a_result_beyond_the_sample_is_noticed(self) -> None:
        row = tiny(rows.FORWARD, keys=300)
        truth = agreement.Reference(Problem(row))
        self.assertNotIn(2, truth.queries)
        figures = self.figures(row, [OtherLibrary(self.fovea, 1e-2)])
        self.assertFalse(figures["other_agrees"])

    def test_refusals_have_a_reason(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "key_heads|heads"):
            self.figures(tiny(rows.DECODE, queries=1, key_heads=3), [])

    def test_a_plot_is_drawn_or_says_why_not(self) -> None:
        figures = self.figures(tiny(rows.FORWARD), [OtherLibrary(self.fovea, 0)])
        renamed = {key.replace("other", "torch"): value for key, value in figures.items()}
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "it's.svg"
            note = plot.draw([renamed], "where", picture)
            if note:
                self.assertIn("there is no gnuplot", note)
            else:
                self.assertIn("</svg>", picture.read_text())
        self.assertIn("no peer", plot.draw([], "where", picture))


class Program(unittest.TestCase):
    TINY = ("--rows", "^forward/f32/dense/D:64/N:512$", "--rounds", "2", "--threads", "1")

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_program(self, *arguments: str, environment: dict[str, str] | None = None,
                    **packages: str) -> subprocess.CompletedProcess:
        """Runs it with packages whose sources are given."""
        for name, source in packages.items():
            (self.folder / f"{name}.py").write_text(source)
        return subprocess.run(
            [sys.executable, "-B", FOLDER / "peers.py", *arguments], text=True, check=False,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": str(self.folder), **(environment or {})})

    def test_fovea_alone(self) -> None:
        file = self.folder / "out.json"
        done = self.run_program(*self.TINY, "--no-peers", "--json", str(file))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("forward/f32/dense/D:64/N:512 ", done.stdout)
        found = json.loads(file.read_text())
        names = [row["name"] for row in found["results"]]
        self.assertEqual(names, ["forward/f32/dense/D:64/N:512"])
        self.assertIn("isa_level", found["machine"])

    def test_peers_that_cannot_be_loaded(self) -> None:
        done = self.run_program(
            *self.TINY, torch="import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n",
            openvino="raise ImportError('it is not there')\n", onnx="raise OSError('nor it')\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        for said in ("no torch: it ended the process when it was loaded (SIGILL)",
                     "no openvino: it is not there", "no onnxruntime: nor it",
                     "fovea was timed alone"):
            self.assertIn(said, done.stdout)

    def test_a_library_that_cannot_be_used(self) -> None:
        no_library = self.folder / "no_library.so"
        no_library.write_text("no shared object")
        for arguments, isa, said in (((), "none", "FOVEA_ISA"),
                                     (("--library", str(no_library)), "", "no_library.so: ")):
            done = self.run_program(*self.TINY, "--no-peers", *arguments,
                                    environment={"FOVEA_ISA": isa})
            self.assertEqual(done.returncode, 1)
            self.assertIn(said, done.stdout)
            self.assertNotIn("Traceback", done.stderr)

    def test_every_level_is_right(self) -> None:
        done = self.run_program(*self.TINY, "--no-peers", environment={"FOVEA_ISA": "baseline"})
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_peer_that_ends_the_process_costs_its_cell(self) -> None:
        row = tiny(rows.FORWARD)
        job = worker.Job(LIBRARY, 1, 2, [row], ["torch", "openvino"], 0)
        found = list(worker._after_death(job, (row.name(1), "torch"), "SIGSEGV"))
        self.assertEqual([kind for kind, said in found], ["note"])
        self.assertEqual((job.rows, job.avoided), ([row], {(row.name(1), "torch")}))
        found = list(worker._after_death(job, (row.name(1), ""), "SIGSEGV"))
        self.assertEqual([kind for kind, said in found], ["failed"])
        self.assertEqual(job.rows, [])

    def test_calls_that_it_refuses(self) -> None:
        nowhere = str(self.folder / "no" / "out.json")
        for arguments, said in (
                (("--rows", "nonsense"), "no row's name holds"), (("--rows", "("), "no regular"),
                (("--threads", "3"), "not 1 or 2"), (("--rounds", "0"), "at least 1"),
                (("--processor", "-1"), "not one of"),
                (("--peers", "jax"), "not one of torch"), (("--json", nowhere), "cannot write"),
                (("--library", nowhere), "fovea_peers makes it"), (("--what",), "--what")):
            with self.subTest(arguments):
                done = self.run_program(*arguments)
                self.assertEqual(done.returncode, 2)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
