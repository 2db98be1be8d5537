# SPDX-License-Identifier: MIT
"""What a run says: a table that grows row by row, its notes, and the JSON."""

import json
import os
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

LEGEND = """\
ms: fovea's median; peak: the fraction of the machine's peak rate of multiply-adds; sust.: the
fraction of the rate that it sustained during the row. Then the time of each peer divided by
fovea's: the median over alternating rounds, and after it the ratio of the best tenth of the calls.
More than 1: fovea is faster. A ! marks wrong results."""

_CELL = 15


class Table:
    """Prints aligned lines as the rows come."""

    def __init__(self, names: list[str], peers: list[str], out: TextIO) -> None:
        self._width = max(len(name) for name in names)
        self._peers = peers
        self._out = out

    def print_head(self) -> None:
        cells = "".join(f"{peer:>{_CELL}}" for peer in self._peers)
        best = f"  {'best peer':<25}" if self._peers else ""
        self._line(f"{'':{self._width}} {'ms':>9} {'peak':>6} {'sust.':>6} {cells}{best}")

    def print_row(self, figures: dict[str, Any]) -> None:
        mark = " " if figures["fovea_agrees"] else "!"
        text = (f"{figures['name']:{self._width}} {figures['fovea_milliseconds']:9.3f}"
                f" {figures['fovea_peak_fraction']:6.2f}"
                f" {figures['fovea_sustained_fraction']:6.2f}{mark}")
        text += "".join(f"{_cell(figures, peer):>{_CELL}}" for peer in self._peers)
        if "best_peer" in figures:
            text += f"  {figures['best_peer']} {figures['best_peer_ratio']:.2f}x"
        self._line(text)

    def print_failure(self, name: str) -> None:
        self._line(f"{name:{self._width}} {'-':>9}")

    def _line(self, text: str) -> None:
        print(text.rstrip(), file=self._out, flush=True)


def _cell(figures: dict[str, Any], peer: str) -> str:
    if f"{peer}_ratio" not in figures:
        return "-"
    mark = "" if figures[f"{peer}_agrees"] else "!"
    return f"{mark}{figures[f'{peer}_ratio']:.2f} ({figures[f'{peer}_best_tenth_ratio']:.2f})"


class Report:
    """All that a run found, and whether anything of it is wrong."""

    def __init__(self, command: list[str]) -> None:
        self.results: list[dict[str, Any]] = []
        self._rows_of_notes: dict[str, list[str]] = {}
        self.has_failed = False
        self.machine: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.caption = ""
        self.rounds = 0
        self._command = command
        self._start = time.monotonic()
        self._date = datetime.now(timezone.utc)

    def note(self, text: str, row: str = "") -> None:
        """Keeps a sentence once, and the rows that it is said of."""
        of_rows = self._rows_of_notes.setdefault(text, [])
        if row and row not in of_rows:
            of_rows.append(row)

    @property
    def notes(self) -> list[str]:
        return [f"{text} ({', '.join(of_rows)})" if of_rows else text
                for text, of_rows in self._rows_of_notes.items()]

    def add_row(self, figures: dict[str, Any]) -> None:
        self.results.append(figures)
        agrees = [value for key, value in figures.items() if key.endswith("_agrees")]
        self.has_failed = self.has_failed or not all(agrees)
        for note in figures["notes"]:
            self.note(note, figures["name"])

    def add_failure(self, name: str, reason: str) -> None:
        self.has_failed = True
        self.note(f"not measured: {reason}", name)

    def json_text(self) -> str:
        return json.dumps({
            "program": "peers",
            "date": self._date.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "day": self._date.strftime("%Y-%m-%d"),
            "command": self._command,
            "machine": self.machine,
            "caption": self.caption,
            "versions": self.versions,
            "rounds": self.rounds,
            "seconds": time.monotonic() - self._start,
            "notes": self.notes,
            "results": self.results,
        }, indent=2) + "\n"


def check_writable(path: Path) -> None:
    """Raises OSError at once if the file could not be written after minutes of measuring."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory")
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def write_file(path: Path, text: str) -> None:
    """Replaces the file as a whole: a run that is stopped leaves what was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
