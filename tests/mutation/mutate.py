#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes small mistakes in the headers, one after the other, and asks whether the tests see them.

Everything happens in a copy of the sources with a build of its own, of the level of this machine
alone. For each mutant only the tests of its floor are built and run. A mutant that does not compile
is not counted; one that a test fails on, or that hangs, is killed; the others survive and are
listed: each is a hole in the tests, or changes nothing that can be seen.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import mutants

ROOT = Path(__file__).resolve().parents[2]

# The tests that can see a mistake, by the longest part of its path that stands here. The first ones
# are quick; the next are asked only if those pass.
TESTS = {
    "core": ["core_view", "core_executor", "core_arena", "core_workspace", "core_philox",
             "core_overlap", "core_eigen", "core_for_work", "core_cache_size",
             "attention_bad_input"],
    "kernels/softmax": ["kernels_softmax_block", "kernels_softmax_grad", "kernels_softmax_row",
                        "attention_conformance", "attention_backward", "attention_decoder"],
    "kernels/linear": ["kernels_linear_linear", "kernels_linear_grad", "kernels_linear_delta_rule",
                       "attention_conformance", "attention_backward", "attention_linear_decoder",
                       "attention_linear_decoder_state"],
    "kernels/indexed": ["kernels_indexed_rows", "kernels_indexed_phases", "attention_indexed",
                        "attention_fsat"],
    "kernels/sketch": ["kernels_sketch_bounds", "attention_sketch_selection",
                       "attention_sketch_blocks", "attention_smart_bird"],
    "kernels/sorting": ["kernels_sorting_sorting", "attention_sinkhorn", "attention_reformer"],
    "kernels/layers": ["kernels_layers_product", "kernels_layers_norm",
                       "kernels_layers_elementwise", "kernels_layers_activation",
                       "kernels_layers_convolution", "kernels_layers_training",
                       "kernels_layers_gated", "kernels_layers_rotary"],
    "kernels": ["attention_conformance"],
    "patterns": ["patterns_combine", "patterns_window", "patterns_strided", "patterns_fixed",
                 "patterns_global", "patterns_block_list", "patterns_random_blocks",
                 "patterns_enumerated", "patterns_slot_plan", "patterns_any_pattern",
                 "patterns_window_and_tokens", "fuzz_patterns"],
    "spectral": ["spectral_hidden_state_cross", "spectral_fourier_mixer", "spectral_bad_input",
                 "spectral_cross_arena", "spectral_plan_cache"],
    "attention": ["attention_bad_input", "attention_conformance", "attention_backward",
                  "attention_conformance_decoding", "attention_conformance_resources",
                  "fuzz_operators", "fuzz_decoders", "fuzz_arguments"],
    "layers": ["layers_linear", "layers_layer_norm", "layers_multi_head", "layers_encoder_block",
               "layers_multi_head_decoder", "layers_messages", "layers_training"],
}


def tests_of(path: str) -> list[str]:
    """The tests for a header, by its path from include/fovea."""
    fitting = [part for part in TESTS if path.startswith(part)]
    return TESTS[max(fitting, key=len)]


class Copy:
    """A copy of the sources with a build in it."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.build = folder / "build" / "mutation"
        self.jobs = jobs

    def prepare(self) -> None:
        """Copies what git knows, and configures."""
        if not self.folder.exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(self.folder)], check=True)
        subprocess.run(
            ["cmake", "--preset", "test", "-B", str(self.build),
             "-DCMAKE_CXX_FLAGS=-march=native -DFOVEA_NATIVE_ONLY", "-DFOVEA_BUILD_EXAMPLES=OFF",
             "-DFOVEA_BUILD_BENCH=OFF", "-DFOVEA_TEST_PACKAGE=OFF"],
            cwd=self.folder, check=True, stdout=subprocess.DEVNULL)
        targets = subprocess.run(["cmake", "--build", str(self.build), "--target", "help"],
                                 capture_output=True, text=True, check=True).stdout
        missing = [test for tests in TESTS.values() for test in tests
                   if f"{test}_test:" not in targets]
        if missing:
            raise SystemExit(f"mutate.py: no such tests: {', '.join(sorted(set(missing)))}")

    def compiles(self, test: str) -> bool:
        return subprocess.run(
            ["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", f"{test}_test"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def passes(self, test: str, seconds: float) -> bool:
        try:
            return subprocess.run(
                [str(self.build / "tests" / f"{test}_test"), "--gtest_brief=1", "--gtest_fail_fast"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=seconds,
                check=False).returncode == 0
        except subprocess.TimeoutExpired:
            return False


def fate_of(copy: Copy, mutant: mutants.Mutant, seconds: float) -> str:
    """"invalid", "survived", or the test that killed it."""
    file = copy.folder / "include" / "fovea" / mutant.path
    sound = file.read_text()
    lines = sound.splitlines(keepends=True)
    if lines[mutant.line - 1].rstrip("\n") != mutant.before:
        raise RuntimeError(f"{copy.folder} is not the tree that the mutants were drawn from")
    lines[mutant.line - 1] = mutant.after + "\n"
    try:
        file.write_text("".join(lines))
        for test in tests_of(mutant.path):
            if not copy.compiles(test):
                return "invalid"
            if not copy.passes(test, seconds):
                return test
        return "survived"
    finally:
        file.write_text(sound)


def summary(results: list[dict]) -> str:
    """How many were killed."""
    counted = [r for r in results if r["fate"] != "invalid"]
    killed = [r for r in counted if r["fate"] != "survived"]
    share = 100 * len(killed) / max(1, len(counted))
    return (f"{len(killed)} of {len(counted)} mutants killed ({share:.1f} %), "
            f"{len(results) - len(counted)} do not compile")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mutate.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--floors", default=",".join(mutants.FLOORS),
                        help="comma-separated: " + ",".join(mutants.FLOORS))
    parser.add_argument("--count", type=int, default=1000, help="mutants in all (1000)")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn (1)")
    parser.add_argument("--seconds", type=float, default=600, help="a test may take (600)")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once (2)")
    parser.add_argument("--list", action="store_true", help="print the mutants and do nothing")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "mutation",
                        help="the copy (build/mutation); results.json in it grows, and a run that\n"
                             "was stopped goes on")
    options = parser.parse_args(arguments)
    unknown = set(options.floors.split(",")) - set(mutants.FLOORS)
    if unknown:
        parser.error(f"no such floor: {', '.join(sorted(unknown))}")
    return options


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    include = ROOT / "include" / "fovea"
    found = [m for floor in options.floors.split(",") for m in mutants.mutants_of(include, floor)]
    chosen = mutants.drawn(found, options.count, options.seed)
    if options.list:
        for mutant in chosen:
            print(f"{mutant.name}\n  - {mutant.before.strip()}\n  + {mutant.after.strip()}")
        print(f"{len(chosen)} of {len(found)} places")
        return 0
    if shutil.which("cmake") is None:
        print("mutate.py: needs cmake", file=sys.stderr)
        return 2
    copy = Copy(options.folder / "sources", options.jobs)
    copy.prepare()
    file = options.folder / "results.json"
    results = json.loads(file.read_text()) if file.exists() else []
    done = {r["name"] + r["after"] for r in results}
    for mutant in chosen:
        if mutant.name + mutant.after in done:
            continue
        begun = time.monotonic()
        fate = fate_of(copy, mutant, options.seconds)
        results.append({"name": mutant.name, "before": mutant.before, "after": mutant.after,
                        "fate": fate, "seconds": round(time.monotonic() - begun, 1)})
        file.write_text(json.dumps(results, indent=1) + "\n")
        print(f"{mutant.name}: {fate}", flush=True)
    for result in results:
        if result["fate"] == "survived":
            print(f"survived: {result['name']}\n  - {result['before'].strip()}\n"
                  f"  + {result['after'].strip()}")
    print(summary(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
