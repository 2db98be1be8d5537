#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Keeps of what a fuzzer has found the fewest rows of bytes that reach the same code.

usage: keep_corpus.py PROGRAM FOLDER [FOLDER ...]
  PROGRAM  the fuzzer, as preset `fuzz` builds it: fuzz_calls keeps corpora/calls.bin
  FOLDER   rows that it has found, a file each; those that are kept already count, too

The suite calls each row again (corpus.hpp). Rows beyond 65535 bytes are left out.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

CORPORA = Path(__file__).resolve().parent / "corpora"
LONGEST = 65535  # bytes of a row, whose length has two


def packed(rows: list[bytes]) -> bytes:
    """Each row behind its length, short ones first."""
    ordered = sorted({row for row in rows if len(row) <= LONGEST}, key=lambda row: (len(row), row))
    return b"".join(len(row).to_bytes(2, "little") + row for row in ordered)


def unpacked(data: bytes) -> list[bytes]:
    """The rows of such a file."""
    rows = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at:at + 2], "little")
        rows.append(data[at + 2:at + 2 + size])
        at += 2 + size
    return rows


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    program = Path(arguments[0]).resolve()
    file = CORPORA / (program.name.removeprefix("fuzz_") + ".bin")
    with tempfile.TemporaryDirectory() as folder:
        known, kept = Path(folder) / "known", Path(folder) / "kept"
        known.mkdir()
        kept.mkdir()
        for n, row in enumerate(unpacked(file.read_bytes()) if file.exists() else []):
            (known / str(n)).write_bytes(row)
        subprocess.run([program, "-merge=1", "-rss_limit_mb=4096", str(kept), str(known),
                        *arguments[1:]], check=True, stderr=subprocess.DEVNULL)
        rows = [found.read_bytes() for found in kept.iterdir()]
    CORPORA.mkdir(exist_ok=True)
    file.write_bytes(packed(rows))
    print(f"{file}: {len(rows)} rows, {file.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
