#!/usr/bin/env bash
# Prints the seconds that each header alone takes to compile at -O2.
# usage: header_times.sh COMPILER INCLUDE_DIRECTORY [FLAG...]
set -euo pipefail
compiler=$1
include=$2
shift 2

TIMEFORMAT='%U'
cd "$include"
find fovea -name '*.hpp' ! -name '*.inl.hpp' ! -name foreach_level.hpp ! -name 'executor_openmp.hpp' \
  ! -name 'executor_tbb.hpp' | sort | while read -r header; do
  seconds=$( { time "$compiler" -std=c++20 -O2 -I. "$@" -x c++ -c "$header" -o /dev/null \
    -Wno-pragma-once-outside-header 2>/dev/null; } 2>&1 )
  printf '%6.2f s  %s\n' "$seconds" "$header"
done
