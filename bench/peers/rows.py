# SPDX-License-Identifier: MIT
"""What is measured: the rows, their names and their useful flops. Needs no packages."""

import re
from dataclasses import dataclass

FORWARD, BACKWARD, DECODE = "forward", "backward", "decode"
DENSE, CAUSAL, WINDOW, MASK = "dense", "causal", "window", "mask"
F32, BF16, F16 = "f32", "bf16", "f16"

# Of the boolean mask, one pair in eight is hidden.
HIDDEN_SHARE = 8


@dataclass(frozen=True)
class Row:
    """One problem: a pass over tensors [1, heads, rows, width] of one type of numbers; those of
    values and outputs may have another width."""

    what: str
    storage: str
    sight: str
    keys: int
    width: int = 64
    values: int = 0  # the width of values; 0: as that of keys
    queries: int = 0  # 0: as many as keys
    heads: int = 8
    key_heads: int = 8
    window: int = 0  # keys that a row sees, its own and those before it
    is_quick: bool = False

    @property
    def query_rows(self) -> int:
        """The number of queries of a head."""
        return self.queries or self.keys

    @property
    def value_width(self) -> int:
        """The width of values and outputs."""
        return self.values or self.width

    def name(self, threads: int) -> str:
        """The name in tables and files, made like those of fovea_bench."""
        family = [f"{WINDOW}:{self.window}" if self.sight == WINDOW else self.sight]
        if self.queries > (self.what == DECODE):  # a step decodes one query, unless it says more
            family.append(f"queries:{self.queries}")
        if self.key_heads != self.heads:
            family.append(f"key_heads:{self.key_heads}")
        if self.value_width != self.width:
            family.append(f"value_width:{self.value_width}")
        if threads != 1:
            family.append(f"threads:{threads}")
        return f"{self.what}/{self.storage}/{','.join(family)}/D:{self.width}/N:{self.keys}"

    @property
    def is_causal_square(self) -> bool:
        """Causal with as many queries as keys. If there are fewer queries, they are the last
        positions; but libraries that are told no more than "causal" take them for the first."""
        return self.sight == CAUSAL and self.query_rows == self.keys

    @property
    def attended_pairs(self) -> float:
        """Pairs of a query and a key that it sees, of all heads; of the mask, the expectation."""
        queries, keys = self.query_rows, self.keys
        if self.sight in (CAUSAL, WINDOW):
            reach = self.window if self.sight == WINDOW else keys
            return float(self.heads * sum(
                min(reach, own + 1) for own in range(keys - queries, keys)))
        pairs = self.heads * queries * keys
        return pairs * (1 - 1 / HIDDEN_SHARE) if self.sight == MASK else float(pairs)

    @property
    def flops(self) -> float:
        """The useful flops: for each visible pair a product over the width of keys and one over
        that of values, backward three and two."""
        of_keys, of_values = (3, 2) if self.what == BACKWARD else (1, 1)
        return 2 * (of_keys * self.width + of_values * self.value_width) * self.attended_pairs


def _all_rows() -> list[Row]:
    rows = []

    def add(what: str, storage: str, sight: str, keys: int, quick: bool = False,
            **more: int) -> None:
        rows.append(Row(what, storage, sight, keys, is_quick=quick, **more))

    for sight in (DENSE, CAUSAL):
        add(FORWARD, F32, sight, 512)
        add(FORWARD, F32, sight, 1024, quick=True)
        add(FORWARD, F32, sight, 4096)
        add(FORWARD, F32, sight, 16384)
    for width in (32, 80, 128):
        for sight in (DENSE, CAUSAL):
            add(FORWARD, F32, sight, 1024, width=width)
    for width in (96, 256):
        add(FORWARD, F32, DENSE, 1024, width=width)
    add(FORWARD, F32, DENSE, 1024, values=128)
    add(FORWARD, F32, DENSE, 2048, width=128)
    add(FORWARD, F32, WINDOW, 4096, window=256)
    for keys in (2048, 4096):
        add(FORWARD, F32, MASK, keys)
    add(BACKWARD, F32, DENSE, 512)
    for sight in (DENSE, CAUSAL):
        add(BACKWARD, F32, sight, 1024, quick=True)
        add(BACKWARD, F32, sight, 4096)
    for width in (32, 80, 128):
        add(BACKWARD, F32, DENSE, 1024, width=width)
    for queries in (1, 4, 16, 64):
        add(FORWARD, F32, DENSE, 8192, quick=True, queries=queries)
    for what in (FORWARD, DECODE):
        add(what, F32, DENSE, 32768, quick=True, queries=1, key_heads=1)
    for storage in (BF16, F16):
        add(FORWARD, storage, DENSE, 2048)
        add(FORWARD, storage, CAUSAL, 2048)
    add(DECODE, F32, DENSE, 2048, queries=1)
    for keys in (8192, 32768):
        add(DECODE, F32, DENSE, keys, quick=True, queries=1)
    for storage in (BF16, F16):
        for width in (64, 128):
            for keys in (2048, 8192, 32768):
                add(DECODE, storage, DENSE, keys, width=width, queries=1)
    for queries in (16, 128, 512):
        add(DECODE, F32, CAUSAL, 8192, queries=queries)
    return rows


ROWS: list[Row] = _all_rows()


class NoSuchRow(ValueError):
    """No row has a requested name."""


def chosen(threads: int, pattern: str, quick: bool) -> list[Row]:
    """The rows whose name holds a match of the regular expression; of them the quick ones."""
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise NoSuchRow(f"'{pattern}' is no regular expression: {error}") from error
    return [
        row for row in ROWS if (row.is_quick or not quick) and wanted.search(row.name(threads))
    ]
