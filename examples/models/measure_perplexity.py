#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What each operator does to a model's perplexity: measure_perplexity.py LANGUAGE_MODEL TEXT JSON

Runs language_model --perplexity on the first 2048 and 8192 tokens of a text for each of the
attentions below, and writes the figures beside those of the model's own attention.
"""
import json
import re
import subprocess
import sys

ATTENTIONS = ["full", "window:256,sink:0", "window:256,sink:4", "window:1024,sink:4", "strided:128",
              "fixed:128,summary:8", "bigbird:64", "smart_bird:64"]
LENGTHS = [2048, 8192]


def main():
    program, text, path = sys.argv[1:]
    rows = []
    for attention in ATTENTIONS:
        row = {"attention": attention}
        for length in LENGTHS:
            done = subprocess.run(
                [program, "--perplexity", text, "--length", str(length), "--attention", attention],
                check=True, capture_output=True, text=True)
            row[f"perplexity_{length}"] = float(re.match(r"perplexity ([\d.]+)", done.stdout)[1])
        for length in LENGTHS:
            own = (rows or [row])[0][f"perplexity_{length}"]
            row[f"times_{length}"] = row[f"perplexity_{length}"] / own
        rows.append(row)
        print(row, flush=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"text": text, "perplexity": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
