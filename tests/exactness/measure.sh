#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Generates the JSON files and the page of this directory: runs the whole suite, then random cases
# (FOVEA_TRIALS, 20000) of operators and decoders, then every float, or every FOVEA_MATH_STRIDE-th,
# through every function, and every FOVEA_MAP_STRIDE-th (61) through the feature maps.
#
#   bash tests/exactness/measure.sh            all of it
#   bash tests/exactness/measure.sh PART...    of suite, drawn, operators (the table of these two),
#                                              functions and page only these, in turn; what an
#                                              earlier run left counts too
set -euo pipefail
cd "$(dirname "$0")/../.."

folder=$PWD/build/exactness
parts=("$@")
[ $# -gt 0 ] || { rm -rf "$folder"; parts=(suite drawn operators functions page); }
mkdir -p "$folder/functions"
trials=${FOVEA_TRIALS:-20000}
stride=${FOVEA_MATH_STRIDE:-1}
map_stride=${FOVEA_MAP_STRIDE:-61}
tests=build/test/tests

# tables FOLDER FILE WHAT KEY=VALUE...: the tables of what a folder holds, and where it was made.
tables() {
  python3 tests/exactness/tables.py "$1" "tests/exactness/$2" "$3" "${@:4}" \
    "commit=$(git rev-parse --short HEAD)" "date=$(date -u +%F)" \
    "compiler=$(c++ --version | head -1)" \
    "cpu=$(sed -n 's/^model name\s*: //p;T;q' /proc/cpuinfo)"
}

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
    operators)
      trials=$(cat "$folder/trials" 2> /dev/null || echo 0)
      tables "$folder" exactness.json operators \
        "command=FOVEA_TRIALS=$trials bash tests/exactness/measure.sh" "trials=$trials"
      ;;
    functions)
      [ -f build/test/CMakeCache.txt ] || cmake --preset test > /dev/null
      cmake --build build/test --target simd_math_test kernels_linear_feature_map_test
      rm -f "$folder"/functions/*.tsv
      FOVEA_EXACTNESS=$folder/functions FOVEA_MATH_STRIDE=$stride "$tests/simd_math_test" \
        --gtest_brief=1 --gtest_filter='*MathAccuracy*'
      FOVEA_EXACTNESS=$folder/functions FOVEA_MATH_STRIDE=$map_stride \
        "$tests/kernels_linear_feature_map_test" --gtest_brief=1
      tables "$folder/functions" functions.json functions \
        "command=FOVEA_MATH_STRIDE=$stride FOVEA_MAP_STRIDE=$map_stride bash tests/exactness/measure.sh functions" \
        "stride=$stride" "map_stride=$map_stride"
      ;;
    page)
      cmake -S . -B build/documents -DCMAKE_BUILD_TYPE=Release "-DFOVEA_TESTS=^structure/documents$" \
        -DFOVEA_BUILD_BENCH=OFF -DFOVEA_BUILD_EXAMPLES=OFF -DFOVEA_TEST_PACKAGE=OFF > /dev/null
      cmake --build build/documents --target documents
      ;;
    *)
      echo "measure.sh: '$part' is not one of suite, drawn, operators, functions, page" >&2
      exit 2
      ;;
  esac
done
