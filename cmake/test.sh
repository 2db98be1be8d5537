#!/usr/bin/env bash
# Installs what is missing, then configures, builds and runs the whole test suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/setup.sh test
# One more than processors: while the ranks of a test start, processors would be idle.
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(($(nproc) + 1))}
exec cmake --workflow --preset test
