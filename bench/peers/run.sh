#!/usr/bin/env bash
# Compares the speed of fovea and other libraries (peers.py --help): sets up a virtual environment with them,
# builds fovea's shared object, and runs the program with the remaining arguments.
# usage: run.sh [--venv DIR] [--build DIR] [--torch-from-pypi] [--setup-only] [OPTION ...]
#   --venv DIR           the virtual environment (or FOVEA_PEERS_VENV); default build/peers/venv.
#                        Its packages are used as they are; missing ones are installed.
#   --build DIR          the folder of the CMake build; default build/peers/cmake
#   --torch-from-pypi    PyTorch from PyPI, with several GB of packages for GPUs; default: the index
#                        of its builds for CPUs
#   --setup-only         sets up without measuring
#   OPTION               an option of peers.py, listed below
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
venv=${FOVEA_PEERS_VENV:-$root/build/peers/venv}
build=$root/build/peers/cmake
cpu_index=https://download.pytorch.org/whl/cpu
torch_source=(--index-url "$cpu_index") setup_only='' needs_nothing=''
mapfile -t packages < "$here/requirements.txt"
log=$root/build/peers/pip.log

fail() {
  echo "run.sh: $*" >&2
  exit 2
}

arguments=()
while (($#)); do
  case $1 in
    --venv | --build)
      (($# > 1)) || fail "$1 needs a folder"
      declare "${1#--}=$2"
      shift
      ;;
    --torch-from-pypi) torch_source=() ;;
    --setup-only) setup_only=yes ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
      exec python3 -B "$here/peers.py" --help
      ;;
    --list)
      needs_nothing=yes
      arguments+=("$1")
      ;;
    --no-peers)
      packages=(numpy)
      arguments+=("$1")
      ;;
    *) arguments+=("$1") ;;
  esac
  shift
done

# install PACKAGE [OPTION of pip ...]: unless it is there. A failure costs the rows of this package.
install() {
  local package=$1
  shift
  local finds="import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)"
  if "$venv/bin/python" -c "$finds"; then return 0; fi
  echo "run.sh: installing $package" >&2
  if ! "$venv/bin/python" -m pip install --disable-pip-version-check --retries 1 --timeout 20 \
    "$@" "$package" >> "$log" 2>&1; then
    grep -a 'ERROR' "$log" | tail -n 2 >&2 || true
    echo "run.sh: cannot install $package (log: $log)" >&2
    if [[ $package == torch && $* == *"$cpu_index"* ]]; then
      echo "run.sh: --torch-from-pypi installs PyTorch from PyPI, with several GB for GPUs; or" \
        "install it into $venv yourself" >&2
    fi
  fi
}

[[ -z $needs_nothing ]] || exec python3 -B "$here/peers.py" "${arguments[@]}"

mkdir -p "$(dirname "$log")"
if [[ ! -x $venv/bin/python ]]; then
  command -v python3 > /dev/null || fail 'there is no python3 (apt install python3-venv)'
  python3 -m venv "$venv" >&2 || fail "python3 cannot make $venv (apt install python3-venv)"
fi
: > "$log"
for package in "${packages[@]}"; do
  if [[ $package == torch ]]; then
    install torch ${torch_source[@]+"${torch_source[@]}"}
  else
    install "$package"
  fi
done

"$root/cmake/setup.sh" compare >&2
[[ -f $build/CMakeCache.txt ]] || cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DFOVEA_BUILD_TESTS=OFF -DFOVEA_BUILD_EXAMPLES=OFF -DFOVEA_INSTALL=OFF >&2
cmake --build "$build" --target fovea_peers >&2
[[ -z $setup_only ]] || exit 0
export FOVEA_PEERS_LIBRARY=$build/bench/peers/fovea_peers.so
exec "$venv/bin/python" -B "$here/peers.py" ${arguments[@]+"${arguments[@]}"}
