# SPDX-License-Identifier: MIT
"""Makes q.npy, k.npy and v.npy of this folder again: what three layers of SmolLM2-135M-Instruct
attend with over the first 2048 tokens of text.txt.

usage: smollm2.py LANGUAGE_MODEL [FOLDER]

LANGUAGE_MODEL is examples/models/language_model, whose model `fetch_models.sh` fetches. FOLDER is
where the files go: the folder of this script, if it is left out. Needs numpy.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy

HERE = pathlib.Path(__file__).parent
LENGTH = 2048
GROUP = 3  # query heads of a key head
# Layer and key head, each with its three query heads: README.md says why these.
CHOSEN = [(11, 0), (25, 1), (7, 1)]


def heads_of(model, layer):
    """q [9, N, 64], k and v [3, N, 64] of a layer, after rotary positions."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [model, "--dump-qkv", folder, "--layer", str(layer), "--length", str(LENGTH),
             "--text", str(HERE / "text.txt")], check=True)
        return [numpy.load(f"{folder}/{name}.npy") for name in "qkv"]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else HERE
    parts = {"q": [], "k": [], "v": []}
    for layer, key_head in CHOSEN:
        q, k, v = heads_of(sys.argv[1], layer)
        parts["q"].append(q[key_head * GROUP:(key_head + 1) * GROUP])
        parts["k"].append(k[key_head:key_head + 1])
        parts["v"].append(v[key_head:key_head + 1])
    for name, heads in parts.items():
        numpy.save(folder / f"{name}.npy", numpy.concatenate(heads).astype(numpy.float16))


if __name__ == "__main__":
    main()
