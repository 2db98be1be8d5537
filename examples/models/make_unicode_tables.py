#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes unicode_tables.hpp: python3 make_unicode_tables.py > unicode_tables.hpp

Categories, decompositions and lower case are those of Python's unicodedata. The reference tokenizer
(the package tokenizers) has categories of Unicode 8 and lower case of a later version than Python's,
so it is asked about every character, and characters that it treats otherwise are as it has them;
how many those are is said on stderr.
"""
import sys
import unicodedata

from tokenizers import normalizers, pre_tokenizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
IS_HANGUL = range(0xAC00, 0xD7A4)
COMPATIBLE = (range(0xF900, 0xFB00), range(0x2F800, 0x2FA20))  # ideographs that stand for others


def bert(**flags):
    options = {"clean_text": False, "handle_chinese_chars": False,
               "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**options, **flags})


def between(normalizer, c):
    """What a character becomes between two letters."""
    return normalizer.normalize_str("a" + chr(c) + "a")[1:-1]


def differing(name, ours, theirs):
    print(f"{name}: {len(theirs)}, otherwise than unicodedata: {len(ours ^ theirs)}",
          file=sys.stderr)
    return theirs


def category(*names):
    return {c for c in CHARACTERS if unicodedata.category(chr(c)) in names}


def ranges(characters):
    made = []
    for c in sorted(characters):
        if made and made[-1][1] == c - 1:
            made[-1][1] = c
        else:
            made.append([c, c])
    return made


def progressions(mapped):
    """Characters and what they become, where both go up by a constant: [first, count, step, target,
    advance]."""
    made = []
    for c, target in sorted(mapped.items()):
        if made:
            first, count, step, begin, advance = made[-1]
            if count == 1 and c - first <= 2:
                made[-1] = [first, 2, c - first, begin, target - begin]
                continue
            if count > 1 and c == first + count * step and target == begin + count * advance:
                made[-1][1] += 1
                continue
        made.append([c, 1, 1, target, 0])
    return made


def lines(items):
    text = ""
    row = "   "
    for item in items:
        if len(row) + len(item) + 2 > 100:
            text += row + "\n"
            row = "   "
        row += " " + item + ","
    return text + row + "\n"


def hexes(values):
    return "{" + ", ".join(f"0x{v:x}" if v > 99 else str(v) for v in values) + "}"


def literal(text, width=40):
    return "\n".join(f'    U"{text[i:i + width]}"' for i in range(0, len(text), width))


def table(declaration, items):
    print(f"{declaration} = {{\n{lines(items)}}};\n")


def main():
    cleaned, stripped = bert(clean_text=True), bert(strip_accents=True)
    folded = bert(strip_accents=True, lowercase=True)
    removed = differing("control", category("Cc", "Cf", "Co") - {0x9, 0xA, 0xD} | {0xFFFD},
                        {c for c in CHARACTERS if between(cleaned, c) == ""})
    marks = differing("marks", category("Mn"),
                      {c for c in CHARACTERS if between(stripped, c) == ""})
    splitter = pre_tokenizers.BertPreTokenizer()
    ascii_punctuation = {c for c in range(33, 127) if not chr(c).isalnum()}
    punctuation = differing(
        "punctuation", category("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps") | ascii_punctuation,
        {c for c in CHARACTERS if len(splitter.pre_tokenize_str("a" + chr(c) + "a")) == 3})
    folds = {}
    for c in CHARACTERS:
        become = between(folded, c)
        if c not in IS_HANGUL and c not in marks and become != chr(c):
            folds[c] = become
    ours = {(c, "".join(d for d in unicodedata.normalize("NFD", chr(c)) if ord(d) not in marks)
             .lower()) for c in CHARACTERS if c not in IS_HANGUL and c not in marks}
    differing("folds", {(c, t) for c, t in ours if t != chr(c)}, set(folds.items()))
    one = {c: ord(t) for c, t in folds.items()
           if len(t) == 1 and not any(c in block for block in COMPATIBLE)}
    more = {c: t for c, t in folds.items() if len(t) > 1}
    print(HEAD)
    print("/// Controls, format characters and those of private use, which a tokenizer removes.")
    table("inline constexpr CharacterRange kRemoved[]", [hexes(r) for r in ranges(removed)])
    print("/// Marks that take no room of their own, such as accents.")
    table("inline constexpr CharacterRange kMarks[]", [hexes(r) for r in ranges(marks)])
    print("/// Punctuation, and every ASCII character that is neither letter, digit, space nor "
          "control.")
    table("inline constexpr CharacterRange kPunctuation[]",
          [hexes(r) for r in ranges(punctuation)])
    print("/// Characters that become another one, but for Hangul and ideographs.")
    table("inline constexpr FoldRun kFolds[]",
          ["{%s, %d, %d, %s, %d}" % (f"0x{p[0]:x}", p[1], p[2], f"0x{p[3]:x}", p[4])
           for p in progressions(one)])
    print("/// Characters that become several.")
    table("inline constexpr LongFold kLongFolds[]",
          ["{0x%x, %s}" % (c, hexes([ord(d) for d in t])) for c, t in more.items()])
    print("/// What the ideographs from U+F900 and from U+2F800 on stand for, one after the other.")
    for name, block in zip(("kIdeographs", "kMoreIdeographs"), COMPATIBLE):
        text = "".join(folds.get(c, chr(c)) for c in block)
        print(f"inline constexpr std::u32string_view {name} =\n{literal(text)};\n")
    print("// clang-format on\n\n}  // namespace models")


HEAD = """// SPDX-License-Identifier: MIT
/// \\file
/// What a tokenizer of BERT has to know of Unicode. Made by make_unicode_tables.py, which says from
/// what.
#pragma once

#include <string_view>

#include "utf8.hpp"

namespace models {

/// Characters first, first + step, ..., count of them, which become target, target + advance, ...
/// when they lose their accents and their upper case.
struct FoldRun {
  char32_t first;
  int count, step;
  char32_t target;
  int advance;
};

/// A character that becomes up to three.
struct LongFold {
  char32_t from, to[3];
};

// clang-format off
"""

if __name__ == "__main__":
    main()
