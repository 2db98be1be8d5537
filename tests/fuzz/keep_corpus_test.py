# SPDX-License-Identifier: MIT
"""How rows of bytes are kept in one file."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import keep_corpus  # noqa: E402


class Rows(unittest.TestCase):
    def test_come_back_short_ones_first_each_once(self) -> None:
        rows = [b"\0\xff", b"", b"a" * 300, b"\0\xff", b"b"]
        self.assertEqual(keep_corpus.unpacked(keep_corpus.packed(rows)),
                         [b"", b"b", b"\0\xff", b"a" * 300])

    def test_have_their_length_before_them(self) -> None:
        self.assertEqual(keep_corpus.packed([b"a" * 258]), b"\x02\x01" + b"a" * 258)

    def test_that_are_too_long_are_left_out(self) -> None:
        longest = b"a" * keep_corpus.LONGEST
        self.assertEqual(keep_corpus.unpacked(keep_corpus.packed([longest, longest + b"a"])), [longest])

    def test_are_there_for_every_fuzzer(self) -> None:
        fuzzers = [path.name.removesuffix("_fuzzer.cpp")
                   for path in keep_corpus.CORPORA.parent.glob("*_fuzzer.cpp")]
        self.assertGreater(len(fuzzers), 5)
        for name in fuzzers:
            rows = keep_corpus.unpacked((keep_corpus.CORPORA / f"{name}.bin").read_bytes())
            self.assertGreater(len(rows), 50, name)
            self.assertEqual(len(set(rows)), len(rows), name)


if __name__ == "__main__":
    unittest.main()
