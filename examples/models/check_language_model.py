#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Holds language_model to the reference: python3 check_language_model.py PROGRAM MODEL.gguf

The reference is transformers on torch, with the weights that the package gguf makes of the same
file. Compared are the numbers of tokens, of texts and of drawn strings; the logits of three prompts
of 128 tokens; and 64 tokens that follow the likeliest way. Reading a prompt at once must give the
bits of reading it token by token, and two threads those of one.
"""
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are there
import gguf  # noqa: E402
import numpy  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.logging.disable_progress_bar()
HERE = os.path.dirname(os.path.abspath(__file__))
LARGEST_DIFFERENCE = 1e-3
POSITIONS = 128
FOLLOWING = 64
DRAWN = 2000
CONTROL = 3


def reference_tokenizer(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Digits(individual_digits=True),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([t for t, kind in zip(tokens, kinds) if kind == CONTROL])
    return tokenizer


def drawn_strings():
    """Strings of words, white space, digits, special tokens and any characters."""
    draw = random.Random(21)
    parts = ["the", " of", "It's", "we'll", "'s", " ", "  ", "\n", "\n\n", "\t", "7", "2018", " 42",
             "é", "naïve", "Straße", "日本語", "한국", "👍🏽", "<|im_end|>", "<|im_", "_", "!!!", "x1y2",
             "\u00a0", "\u2003", "½", "٣", "e\u0301", "...", "-", "#include"]
    for _ in range(DRAWN):
        text = ""
        for _ in range(draw.randint(0, 12)):
            # What is not yet a character may become a letter in a later Unicode.
            c = chr(draw.randint(1, 0x10FFFF))
            any_character = "" if unicodedata.category(c) in ("Cn", "Cs") else c
            text += draw.choice(parts) if draw.random() < 0.85 else any_character
        yield text


class Program:
    def __init__(self, program, model):
        self.command = [program, "--model", model]
        self.folder = tempfile.TemporaryDirectory()

    def run(self, *arguments):
        done = subprocess.run([*self.command, *arguments], check=True, capture_output=True)
        return done.stdout

    def tokens(self, text):
        path = os.path.join(self.folder.name, "text")
        with open(path, "wb") as file:
            file.write(text.encode())
        return [int(token) for token in self.run("--tokens", path).split()]

    def logits(self, prompt, *arguments):
        path = os.path.join(self.folder.name, "logits.npy")
        self.run("--prompt", prompt, "--count", "0", "--logits", path, *arguments)
        return numpy.load(path)


def check(what, holds, detail=""):
    print(f"{'ok' if holds else 'FAILED'}: {what} {detail}".rstrip(), flush=True)
    return holds


def check_tokens(program, tokenizer, texts):
    # Random strings in one text, each between two special tokens.
    end = "<|endoftext|>"
    joined = end + end.join(drawn_strings()) + end
    holds = check(f"tokens of {DRAWN} drawn strings",
                  program.tokens(joined) == tokenizer.encode(joined).ids)
    for name, text in texts.items():
        same = program.tokens(text) == tokenizer.encode(text).ids
        holds = check(f"tokens of {name}", same) and holds
    return holds


def check_prompts(program, tokenizer, model, prompts):
    holds = True
    for number, prompt in enumerate(prompts, 1):
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        with torch.inference_mode():
            expected = model(ids).logits[0].numpy()
            following = model.generate(ids, max_new_tokens=FOLLOWING, do_sample=False,
                                       attention_mask=torch.ones_like(ids))
        got = program.logits(prompt, "--threads", "1")
        difference = float(numpy.abs(got - expected).max())
        holds = check(f"logits of prompt {number}, {ids.shape[1]} tokens",
                      difference <= LARGEST_DIFFERENCE,
                      f"differ by at most {difference:.2e}") and holds
        for option in (("--chunk", "1"), ("--chunk", "37"), ("--threads", "2")):
            same = numpy.array_equal(got, program.logits(prompt, *option))
            holds = check(f"the same bits with {' '.join(option)}", same) and holds
        text = program.run("--prompt", prompt, "--count", str(FOLLOWING))
        rest = [i for i in following[0, ids.shape[1]:].tolist() if i != model.config.eos_token_id]
        expected = tokenizer.decode(rest, skip_special_tokens=False).encode()
        holds = check(f"{len(rest)} tokens that follow", text == expected + b"\n") and holds
    return holds


def main():
    program = Program(sys.argv[1], sys.argv[2])
    folder, name = os.path.split(os.path.abspath(sys.argv[2]))
    tokenizer = reference_tokenizer(sys.argv[2])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32).eval()
    texts = {}
    for path in ("check_sentences.txt", "llama.hpp", "../README.md"):
        with open(os.path.join(HERE, path), encoding="utf-8") as file:
            texts[path] = file.read()
    prompts = [tokenizer.decode(tokenizer.encode(text).ids[:POSITIONS]) for text in texts.values()]
    holds = check_tokens(program, tokenizer, texts)
    holds = check_prompts(program, tokenizer, model, prompts) and holds
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
