#!/usr/bin/env bash
# Installs what is missing, then builds and runs fovea_compare; arguments go to it (--help).
# Its results go to out/ in the current directory.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/cmake/setup.sh" compare
(cd "$root" && cmake --workflow --preset compare) >&2
exec "$root/build/compare/bench/fovea_compare" "$@"
