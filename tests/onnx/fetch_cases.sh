#!/usr/bin/env bash
# Writes the node cases of ONNX's operator Attention to DIR/attention.txt, with the package onnx of
# PyPI, which goes into DIR/venv.
# usage: fetch_cases.sh [DIR]     by default $FOVEA_ONNX, or ~/.cache/fovea/onnx
# What is there already is not fetched again. Exits with 77 if the package cannot be fetched. Needs
# python3 with venv (Debian: python3-venv).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-${FOVEA_ONNX:-${HOME:-}/.cache/fovea/onnx}}
version=1.23.0
cases=$folder/attention.txt

mkdir -p "$folder"
if [[ -x $folder/venv/bin/python ]] \
  && "$folder/venv/bin/python" -c "import onnx, sys; sys.exit(onnx.__version__ != '$version')" 2> /dev/null; then
  :
elif ! python3 -m venv "$folder/venv" \
  || ! "$folder/venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 20 \
    "onnx==$version"; then
  echo "fetch_cases.sh: cannot install the package onnx $version" >&2
  exit 77
fi
"$folder/venv/bin/python" -B "$here/attention_cases.py" "$cases.new"
mv "$cases.new" "$cases"
