#!/usr/bin/env bash
# Installs what is missing, then builds and runs fovea_compare; arguments go to it (--help). The
# types of tensors but f32 are built when they are asked for: they take longer.
# Its results go to out/ in the current directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
types=()
before=
for argument in "$@"; do
  case "$before $argument" in
    "--dtype f64" | *" --dtype=f64") types=(-DFOVEA_BENCH_DOUBLE=ON) ;;
    "--dtype f16" | "--dtype bf16" | *" --dtype="*f16) types=(-DFOVEA_BENCH_HALF=ON) ;;
  esac
  before=$argument
  if [[ $argument == --help || $argument == -h ]]; then
    # The options alone are built in seconds.
    "$root/cmake/setup.sh" compare
    help=$(mktemp)
    trap 'rm -f "$help"' EXIT
    "${CXX:-c++}" -std=c++20 -I "$root" -I "$root/include" -o "$help" \
      -x c++ "$root/examples/command_line.cpp" - << 'END'
#include "bench/io/compare_arguments.hpp"
int main(int argc, char** argv) { bench::compare_arguments(argc, argv); }
END
    "$help" --help
    exit
  fi
done
"$root/cmake/setup.sh" compare
if [[ ${#types[@]} -gt 0 ]]; then (cd "$root" && cmake --preset compare "${types[@]}") >&2; fi
(cd "$root" && cmake --workflow --preset compare) >&2
exec "$root/build/compare/bench/fovea_compare" "$@"
