#!/usr/bin/env bash
# Installs what is missing, then configures, builds and runs the whole test suite.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cmake/setup.sh test
export CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
exec cmake --workflow --preset test
