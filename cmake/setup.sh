#!/usr/bin/env bash
# Installs what a task needs and is missing, on Debian or Ubuntu.
# usage: setup.sh [test|compare|all]     all: every preset of CMakePresets.json, too
# Needs root only if something is missing.
set -euo pipefail

packages=(cmake ninja-build g++ libeigen3-dev libbenchmark-dev libcli11-dev nlohmann-json3-dev)
case ${1:-test} in
  compare) packages+=(libfftw3-dev) ;;
  test) packages+=(libgtest-dev libtbb-dev libfftw3-dev libicu-dev pkg-config libopenmpi-dev
    openmpi-bin) ;;
  all)
    packages+=(gnuplot-nox libgtest-dev libtbb-dev libfftw3-dev pkg-config clang-14 clang-19
      libclang-rt-14-dev libomp-14-dev libc++-19-dev libc++abi-19-dev clang-format-14 clang-tidy-14
      g++-aarch64-linux-gnu qemu-user googletest doxygen time python3-numpy chromium valgrind
      libicu-dev libopenmpi-dev openmpi-bin)
    ;;
  *)
    echo "setup.sh: '$1' is not one of test, compare, all" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query > /dev/null; then
  echo "setup.sh: not a Debian system; using installed packages (needed: ${packages[*]})" >&2
  exit 0
fi
missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then exit 0; fi

echo "setup.sh: installing ${missing[*]}"
if ((EUID != 0)); then
  echo "setup.sh: not root. Run: apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } \
  > "$log" 2>&1 < /dev/null; then
  cat "$log" >&2
  echo "setup.sh: apt-get failed" >&2
  exit 1
fi
