# SPDX-License-Identifier: MIT
"""Small mistakes in the headers: where they can be made, and what they are."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The mutated directories, from the lowest layer up.
DIRECTORIES = ("core", "simd", "patterns", "kernels", "attention", "spectral", "distributed", "layers",
          "io")


@dataclass(frozen=True)
class Mutant:
    """One mistake: a line of a file becomes another one."""

    path: str  # from include/fovea
    line: int  # from 1
    kind: str
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line} {self.kind}"

    @property
    def mistake(self) -> tuple[str, str, str]:
        """Its identity, independent of the line number."""
        return self.path, self.before.strip(), self.after.strip()


@dataclass(frozen=True)
class Rule:
    """Every match of the pattern in a line of code is a place for the mistake."""

    kind: str
    pattern: re.Pattern[str]
    replacement: str


def _rules() -> list[Rule]:
    rules = []

    def add(kind: str, pattern: str, replacement: str) -> None:
        rules.append(Rule(kind, re.compile(pattern), replacement))

    # clang-format puts spaces around operators, and none around the brackets of templates.
    add("relation", r" < ", " <= ")
    add("relation", r" <= ", " < ")
    add("relation", r" > ", " >= ")
    add("relation", r" >= ", " > ")
    add("equality", r" == ", " != ")
    add("equality", r" != ", " == ")
    add("logic", r" && ", " || ")
    add("logic", r" \|\| ", " && ")
    add("bound", r" \+ 1\b(?!\.)", " + 0")
    add("bound", r" - 1\b(?!\.)", " - 0")
    add("sign", r"(?<=[\w)\]]) \+ (?=[\w(*&])", " - ")
    add("sign", r"(?<=[\w)\]]) - (?=[\w(*&])", " + ")
    add("smaller", r"\bsmaller\(", "larger(")
    add("larger", r"\blarger\(", "smaller(")
    add("smaller", r"\(std::min\)", "(std::max)")
    add("larger", r"\(std::max\)", "(std::min)")
    add("strides", r"\.row\b(?!_)", ".column")
    add("strides", r"\.column\b(?!s)", ".row")
    add("anchor", r"\borigin \+ ", "")
    add("check", r"^\s*(?:detail::)?check_\w+\(.*\);$", "")
    add("check", r"^(\s*if \(.*\)) (?:throw|refuse\().*;$", r"\1 {}")
    add("rescale", r"\braise_maximum<V>\(", "static_cast<void>(")
    add("select", r"\bselect\((\w+), ([^,()]+), [^,()]+\)", r"\2")
    return rules


RULES = _rules()


def is_code(line: str) -> bool:
    """Whether a mistake in the line could change what a program does."""
    text = line.strip()
    return bool(text) and not text.startswith(
        ("//", "#", "/*", "*", "template", "static_assert", "requires", "using ", "R\"", "\""))


def mutants_of_line(path: str, number: int, line: str) -> Iterator[Mutant]:
    """All mutants of one line by the rules; a trailing comment is kept."""
    if not is_code(line):
        return
    code = line.split("  //")[0]
    for rule in RULES:
        for match in rule.pattern.finditer(code):
            after = code[: match.start()] + match.expand(rule.replacement) + line[match.end():]
            if after != line:
                yield Mutant(path, number, rule.kind, line, after)


def mutants_of(include: Path, directory: str) -> list[Mutant]:
    """All mutants in a directory's headers, in order."""
    found = []
    roots = sorted((include / directory).rglob("*.hpp")) + sorted(include.glob(f"{directory}.hpp"))
    for file in roots:
        path = file.relative_to(include).as_posix()
        for number, line in enumerate(file.read_text().splitlines(), 1):
            found.extend(mutants_of_line(path, number, line))
    return found


def drawn(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """That many of them, the same for a seed, at most one of a line. A change of other lines neither
    brings a mutant in nor takes one out, but for those at the edge of the count."""
    twins: Counter[tuple[str, str, str]] = Counter()
    places = []
    for mutant in mutants:
        text = (mutant.path, mutant.before, mutant.after)
        twins[text] += 1
        digest = hashlib.sha256(repr((seed, *text, twins[text])).encode()).digest()
        places.append((digest, mutant))
    places.sort(key=lambda place: place[0])
    lines: set[tuple[str, int]] = set()
    chosen = []
    for _, mutant in places:
        if len(chosen) == count:
            break
        if (mutant.path, mutant.line) not in lines:
            lines.add((mutant.path, mutant.line))
            chosen.append(mutant)
    return chosen
