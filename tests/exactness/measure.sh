#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes tests/exactness/exactness.json and the page beside it: runs the whole suite, then drawn cases
# (FOVEA_TRIALS, 20000) of operators and decoders, then every float, or every FOVEA_MATH_STRIDE-th,
# through every function.
#
#   bash tests/exactness/measure.sh            all of it
#   bash tests/exactness/measure.sh PART...    of suite, drawn, functions and tables only these, in
#                                              turn; what an earlier run left counts too
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$PWD/build/exactness
parts=("$@")
[ $# -gt 0 ] || { rm -rf "$folder"; parts=(suite drawn functions tables); }
mkdir -p "$folder"
trials=${FOVEA_TRIALS:-20000}
stride=${FOVEA_MATH_STRIDE:-1}
tests=build/test/tests

for part in "${parts[@]}"; do
  case $part in
    suite)
      cmake --preset test > /dev/null
      cmake --build build/test
      FOVEA_EXACTNESS=$folder ctest --test-dir build/test --output-on-failure -j "$(nproc)"
      ;;
    drawn)
      programs=(fuzz_operators_test fuzz_calls_test fuzz_transforms_test fuzz_decoders_test)
      cmake --build build/test --target "${programs[@]}"
      for program in "${programs[@]}"; do
        FOVEA_EXACTNESS=$folder FOVEA_TRIALS=$trials "$tests/$program" --gtest_brief=1
      done
      echo "$trials" > "$folder/trials"
      ;;
    functions)
      cmake --build build/test --target simd_math_test
      FOVEA_EXACTNESS=$folder FOVEA_MATH_STRIDE=$stride "$tests/simd_math_test" --gtest_brief=1 \
        --gtest_filter='*MathAccuracy*Float*'
      echo "$stride" > "$folder/stride"
      ;;
    tables)
      trials=$(cat "$folder/trials" 2> /dev/null || echo 0)
      stride=$(cat "$folder/stride" 2> /dev/null || echo 1021)
      python3 tests/exactness/tables.py "$folder" tests/exactness/exactness.json \
        "command=FOVEA_TRIALS=$trials FOVEA_MATH_STRIDE=$stride bash tests/exactness/measure.sh" \
        "trials=$trials" "stride=$stride" "commit=$(git rev-parse --short HEAD)" \
        "date=$(date -u +%F)" "compiler=$(c++ --version | head -1)" \
        "cpu=$(sed -n 's/^model name\s*: //p;T;q' /proc/cpuinfo)"
      cmake -S . -B build/documents -DCMAKE_BUILD_TYPE=Release "-DFOVEA_TESTS=^structure/documents$" \
        -DFOVEA_BUILD_BENCH=OFF -DFOVEA_BUILD_EXAMPLES=OFF -DFOVEA_TEST_PACKAGE=OFF > /dev/null
      cmake --build build/documents --target documents
      ;;
    *)
      echo "measure.sh: '$part' is none of suite, drawn, functions, tables" >&2
      exit 2
      ;;
  esac
done
