#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds sentence_embedding to the reference: python3 check_sentences.py PROGRAM MODEL_DIR

The reference is transformers on torch, with the tokenizer of the package tokenizers, on the same
files; both are used as sentence-transformers does: at most max_seq_length tokens, the mean of the
tokens' vectors, length 1. The sentences are those of check_sentences.txt; token numbers are compared
for strings that are drawn, too, and for every character of Unicode.
"""
import json
import os
import random
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are there
import numpy  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.logging.disable_progress_bar()
HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST_DIFFERENCE = 1e-5
SMALLEST_COSINE = 1 - 1e-6
DRAWN = 4000


def run(program, *arguments):
    return subprocess.run([program, *arguments], check=True, capture_output=True).stdout


def reference_tokenizer(folder):
    with open(os.path.join(folder, "sentence_bert_config.json"), encoding="utf-8") as file:
        longest = json.load(file)["max_seq_length"]
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=longest)
    return tokenizer


def reference_embeddings(folder, token_lists):
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager",
                                                   dtype=torch.float32).eval()
    rows = []
    with torch.no_grad():
        for ids in token_lists:
            hidden = model(input_ids=torch.tensor([ids])).last_hidden_state[0]
            rows.append(torch.nn.functional.normalize(hidden.mean(0), dim=0).numpy())
    return numpy.stack(rows)


def is_character(c):
    return not 0xD800 <= c < 0xE000 and c != 0xA


def drawn_strings():
    """Strings of words, characters of some scripts, and any characters."""
    draw = random.Random(20)
    scripts = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF),
               (0xE00, 0xFFF), (0x1E00, 0x20CF), (0x3040, 0x30FF), (0x4E00, 0x4FFF),
               (0xAC00, 0xAFFF), (0xF900, 0xFFEF), (0x1F300, 0x1FAFF), (0, 0x10FFFF)]
    words = ["hello", "World", "naïve", "un", "##ing", "[SEP]", "[CLS]", "[", "]", "don't", "U.S.A.",
             "co-operate", "2024", "e\u0301", "\u0301", "ΌΣΟΣ", "ﬁ", "한국어", "日本", "\t", "\u00a0",
             "\u200b", "x" * 99, "y" * 100, "z" * 101, "\U0001f469\u200d\U0001f4bb", "\r", "İ"]
    for _ in range(DRAWN):
        text = ""
        for _ in range(draw.randint(0, 30)):
            if draw.random() < 0.3:
                text += draw.choice(words) + draw.choice(["", " "])
            else:
                low, high = draw.choice(scripts)
                c = draw.randint(low, high)
                text += chr(c) if is_character(c) else " "
            text += draw.choice(["", "", " "])
        yield text.replace("\n", " ")


def check_tokens(program, folder, what, strings):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as file:
        file.write("".join(text + "\n" for text in strings))
        file.flush()
        lines = run(program, "--model", folder, "--tokens", file.name).decode().splitlines()
    got = [[int(number) for number in line.split()] for line in lines]
    expected = [found.ids for found in reference_tokenizer(folder).encode_batch(strings)]
    wrong = [i for i, ids in enumerate(expected) if i >= len(got) or ids != got[i]]
    print(f"tokens of {what}: {len(strings)}, of which {len(wrong)} differ")
    for i in wrong[:5]:
        print(f"  {strings[i]!r}: {got[i] if i < len(got) else None}, expected {expected[i]}")
    return not wrong and len(got) == len(expected)


def main():
    program, folder = sys.argv[1:]
    sentence_file = os.path.join(HERE, "check_sentences.txt")
    with open(sentence_file, encoding="utf-8", newline="") as file:
        sentences = file.read().split("\n")[:-1]
    passed = check_tokens(program, folder, "sentences", sentences)
    passed &= check_tokens(program, folder, "drawn strings", list(drawn_strings()))
    characters = [f"a{chr(c)}b {chr(c)} e{chr(c)}" for c in range(0x110000) if is_character(c)]
    passed &= check_tokens(program, folder, "characters", characters)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "embeddings.npy")
        run(program, "--model", folder, "--sentences", sentence_file, "--npy", path)
        got = numpy.load(path)
        run(program, "--model", folder, "--sentences", sentence_file, "--npy", path,
            "--threads", "1")
        same = numpy.array_equal(got, numpy.load(path))
    tokenizer = reference_tokenizer(folder)
    expected = reference_embeddings(folder, [tokenizer.encode(text).ids for text in sentences])
    difference = numpy.abs(got - expected).max()
    cosines = (got.astype(numpy.float64) * expected).sum(1)
    cosine = (cosines / numpy.linalg.norm(expected.astype(numpy.float64), axis=1)
              / numpy.linalg.norm(got.astype(numpy.float64), axis=1)).min()
    print(f"embeddings of {len(sentences)} sentences: largest difference {difference:.2e}, "
          f"smallest cosine 1 - {1 - cosine:.1e}, the same bits from one thread: {same}")
    passed &= bool(got.shape == expected.shape and difference <= LARGEST_DIFFERENCE
                   and cosine >= SMALLEST_COSINE and same)
    print("sentence_embedding agrees with the reference" if passed else "FAILED")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
