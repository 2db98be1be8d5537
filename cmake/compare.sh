#!/usr/bin/env bash
# Installs what is missing, then builds and runs fovea_compare; arguments go to it (--help).
# Its results go to out/ in the current directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for argument in "$@"; do
  if [[ $argument == --help || $argument == -h ]]; then
    # What the program itself would print, from its source: nothing has to be built for it.
    exec sed -n '/kCompareHelp =/,/^)";$/ { s/^ *R"(//; /kCompareHelp =/d; /^)";$/d; p }' \
      "$root/bench/io/compare_arguments.hpp"
  fi
done
"$root/cmake/setup.sh" compare
(cd "$root" && cmake --workflow --preset compare) >&2
exec "$root/build/compare/bench/fovea_compare" "$@"
