# SPDX-License-Identifier: MIT
"""Mistakes that are compiled all at once and made one at a time: each line holds both forms, and a
number in the environment says which mistake a run of a test makes."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from mutants import Mutant

NUMBER = "FOVEA_MUTANT"  # the mistake that a program makes
REACHED = "FOVEA_MUTANTS_REACHED"  # a file that gets the numbers of those which it came by


@dataclass(frozen=True)
class Change:
    """What of a line becomes what; comments at its end do not count."""

    before: str
    after: str
    begin: int
    end: int  # in `before`

    def part(self, begin: int, end: int) -> tuple[str, str] | None:
        """A part of the line that holds the change: as it is, and with the mistake."""
        if begin <= self.begin and self.end <= end:
            return self.before[begin:end], self.after[begin:len(self.after) - len(self.before) + end]
        return None


def change_of(mutant: Mutant) -> Change:
    before = mutant.before.split("  //")[0].rstrip()
    after = mutant.after.split("  //")[0].rstrip()
    shorter = min(len(before), len(after))
    begin = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    tail = next((i for i in range(shorter - begin) if before[-1 - i] != after[-1 - i]),
                shorter - begin)
    return Change(before, after, begin, len(before) - tail)


def closing(text: str, begin: int) -> int:
    """Where the bracket that opens at `begin` closes; -1 if it does not."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return -1


def balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return False
    return depth == 0


def at_top(text: str, what: str) -> list[int]:
    """The position of a character outside of all brackets."""
    return [i for i, char in enumerate(text) if char == what and balanced(text[:i])]


def either(on: str, part: tuple[str, str]) -> str:
    return f"{on} ? ({part[1].strip()}) : ({part[0].strip()})"


def statement(on: str, part: tuple[str, str]) -> str:
    return f"if ({on}) {{ {part[1].strip()} }} else {{ {part[0].strip()} }}"


# ---- the forms of a line, each of which answers None for what it is not

HEADER = re.compile(r"^\s*(?:\} else )?(if|while|for) \(")
DECLARATION = re.compile(r"^\s*(?:const |static |typename )*[\w:]+(?:<.*>)?(?:::\w+)?[&*]*(?: const)?"
                         r" [&*]*(?:const )?\w+(?:\[\w*\])? = ")
CALL_OR_ASSIGNMENT = re.compile(r"^\s*(?:\*|\+\+|--)?(?:\([^()]*\)|\[[^\[\]]*\]|[\w:.>\-])+"
                                r"(?:<[^;=]*>)?(?:\(.*\)[^=]*| (?:[-+*/|&]?=) .*);$")
SMALL_FUNCTION = re.compile(r"\{ return (.*); \}")


def of_header(change: Change, on: str) -> str | None:
    """A condition, or the statement after it."""
    found = HEADER.match(change.before)
    if not found:
        return None
    begin = found.end() - 1
    end = closing(change.before, begin)
    if end < 0:
        return None
    inside = change.before[begin + 1:end]
    cuts = [begin + 1, *(begin + 2 + i for i in at_top(inside, ";")), end + 1]
    if part := change.part(end + 1, len(change.before)):
        if not part[0].endswith(";") or not balanced(part[0]):
            return None
        return f"{change.before[:end + 1]} {{ {statement(on, part)} }}"
    condition = {1: 0, 3: 1}.get(len(cuts) - 1)
    if condition is None or (condition == 1) != (found[1] == "for"):
        return None
    part = change.part(cuts[condition], cuts[condition + 1] - 1)
    if part is None or " = " in part[0]:
        return None
    return (change.before[:cuts[condition]] + " " + either(on, part)
            + change.before[cuts[condition + 1] - 1:])


def of_statement(change: Change, on: str) -> str | None:
    """A whole statement on its line."""
    text = change.before
    if not text.endswith(";") or not balanced(text) or HEADER.match(text):
        return None
    if text.lstrip().startswith(("return ", "return;")):
        return f"if ({on}) {{ {change.after.strip()} }} {text.strip()}"
    if found := DECLARATION.match(text):
        part = change.part(found.end(), len(text) - 1)
        if part is None or part[0].lstrip().startswith(("{", "[")):
            return None
        return f"{text[:found.end()]}{either(on, part)};"
    if CALL_OR_ASSIGNMENT.match(text):
        return statement(on, (text, change.after))
    return None


def of_function(change: Change, on: str) -> str | None:
    """A function that is one line."""
    found = SMALL_FUNCTION.search(change.before)
    part = change.part(found.start(1), found.end(1)) if found else None
    if part is None or not balanced(change.before):
        return None
    return (f"{change.before[:found.start()]}{{ if ({on}) {{ return {part[1]}; }} "
            f"return {part[0]}; }}{change.before[found.end():]}")


OPERATORS = {" < ": "<", " <= ": "<=", " > ": ">", " >= ": ">=", " == ": "==", " != ": "!=",
             " + ": "+", " - ": "-"}


def of_operator(mutant: Mutant, change: Change, number: int) -> tuple[str, str] | None:
    """Two operands of part of a statement: the operator is on both sides of an object that
    knows the mistake. Returns the line and the definition of the object."""
    if mutant.kind == "bound":
        one = re.compile(r"[01]\b").search(change.before, change.begin)
        if one is None or one.start() != change.begin:
            return None
        return (f"{change.before[:one.start()]}(::fovea_mutation::on({number}) ? 0 : 1)"
                f"{change.before[one.end():]}", "")
    if mutant.kind not in ("relation", "equality", "sign") or '"' in change.before:
        return None
    for text, name in OPERATORS.items():
        begin = change.before.rfind(text, 0, change.begin + len(text))
        if begin < 0 or not begin < change.begin + 1 <= begin + len(text):
            continue
        other = change.after[begin:].split(" ")[1]
        # Its operators need the precedence of the one that was written.
        define = f"FOVEA_MUTATION_OPERATOR({number}, {name}, {other})\n"
        return (f"{change.before[:begin]} {name} ::fovea_mutation::k{number} {name} "
                f"{change.before[begin + len(text):]}", define)
    return None


def begins_statement(lines: list[str], number: int) -> bool:
    """Whether the line, from 1, does not continue the line above it."""
    for above in reversed(lines[:number - 1]):
        text = above.split("  //")[0].strip()
        if text and not text.startswith(("//", "#", "FOVEA_UNROLL")):
            return text.endswith((";", "{", "}", ":"))
    return True


def switched(lines: list[str], mutant: Mutant, number: int) -> tuple[str, str] | None:
    """The line with both forms, and what must be defined for it; None if it has no such form."""
    change = change_of(mutant)
    if re.search(r"\b(constexpr|static_assert|requires|concept|#define)\b", change.before) or \
            change.before.endswith("\\"):
        return None
    on = f"::fovea_mutation::on({number})"
    forms: list[Callable[[Change, str], str | None]] = [of_function]
    if begins_statement(lines, mutant.line):
        forms = [of_header, of_statement, of_function]
        if mutant.kind == "check":
            return statement(on, (change.before, change.after or ";")), ""
    for form in forms:
        if text := form(change, on):
            return text, ""
    return of_operator(mutant, change, number)


def support(definitions: list[str]) -> str:
    """The header that the switched lines include, with a definition for each number, or none."""
    count = len(definitions)
    return f"""#pragma once
#include <cstdio>
#include <cstdlib>
#define FOVEA_MUTATION_INLINE inline __attribute__((always_inline))
namespace fovea_mutation {{
inline unsigned char reached[{count}];
inline void write_reached() {{
  std::FILE* const file = std::fopen(std::getenv("{REACHED}"), "a");
  for (int i = 0; file != nullptr && i < {count}; ++i) {{
    if (reached[i]) std::fprintf(file, "%d\\n", i);
  }}
  if (file != nullptr) std::fclose(file);
}}
inline int chosen() {{
  if (std::getenv("{REACHED}") != nullptr) std::atexit(write_reached);
  const char* const number = std::getenv("{NUMBER}");
  return number == nullptr ? -1 : std::atoi(number);
}}
inline int active = chosen();
constexpr FOVEA_MUTATION_INLINE bool on(int number) {{
  if (__builtin_is_constant_evaluated()) return false;
  reached[number] = 1;
  return active == number;
}}
template <int Number, class A>
struct Left {{
  const A& a;
}};
#define FOVEA_MUTATION_OPERATOR(number, written, mistaken)                       \\
  struct Operator##number {{}};                                                   \\
  inline constexpr Operator##number k##number{{}};                                \\
  template <class A>                                                             \\
  constexpr FOVEA_MUTATION_INLINE auto operator written(const A& a, Operator##number) {{ \\
    return Left<number, A>{{a}};                                                  \\
  }}                                                                              \\
  template <class A, class B>                                                    \\
  constexpr FOVEA_MUTATION_INLINE auto operator written(Left<number, A> left, const B& b) {{ \\
    using Result = decltype(left.a written b);                                   \\
    return on(number) ? static_cast<Result>(left.a mistaken b) : left.a written b; \\
  }}
{"".join(definitions)}}}
"""
