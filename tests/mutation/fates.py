# SPDX-License-Identifier: MIT
"""Results of mutants: which survived, their verdicts, and how many were killed."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import mutants

ALIVE = ("survived", "survived those asked", "unreached")
SURVIVORS = Path(__file__).resolve().parent / "survivors.tsv"  # those that somebody has read
VERDICTS = {
    "equal": "it computes the same",
    "work": "it does more or less for the same",
    "padding": "it touches memory that is there for it",
    "elsewhere": "tests see it that a run does not ask: over ranks, of other levels, or long ones",
    "hole": "a test is missing",
    "open": "nobody knows yet",
}
UNSEEN = ("equal", "work", "padding")  # what nobody can see in results


@dataclass(frozen=True)
class Reason:
    """Why no test has seen a mistake."""

    verdict: str  # one of VERDICTS
    text: str


def known_survivors() -> dict[tuple[str, str, str], Reason]:
    """By header, line and mutated line."""
    lines = [line.split("\t") for line in SURVIVORS.read_text().splitlines()[1:]]
    return {(path, before, after): Reason(verdict, text)
            for path, before, after, verdict, text in lines}


def mistake_of(result: dict) -> tuple[str, str, str]:
    """What was asked, as Mutant.mistake says it."""
    return result["name"].split(":")[0], result["before"].strip(), result["after"].strip()


def reason_of(result: dict, known: dict[tuple[str, str, str], Reason]) -> Reason | None:
    """What is known of a survivor."""
    return known.get(mistake_of(result))


def summary(results: list[dict], known: dict[tuple[str, str, str], Reason]) -> str:
    """How many were killed, of all and of those that can be seen."""
    fates = Counter(r["fate"] for r in results)
    alive = [r for r in results if r["fate"] in ALIVE]
    reasons = [reason_of(r, known) for r in alive]
    unseen = sum(1 for reason in reasons if reason and reason.verdict in UNSEEN)
    counted = len(results) - fates["invalid"]
    killed = counted - len(alive)
    return (f"{killed} of {counted} mutants killed "
            f"({100 * killed / max(1, counted):.1f} %), {fates['survived']} survived, "
            f"{fates['survived those asked']} survived the tests that were asked, "
            f"{fates['unreached']} are never reached, {fates['invalid']} do not compile; "
            f"{unseen} of the survivors cannot be seen: of the others "
            f"{100 * killed / max(1, counted - unseen):.1f} % are killed")


def asked_again(able: list[mutants.Mutant], before: list[dict],
                known: dict[tuple[str, str, str], Reason]) -> list[mutants.Mutant]:
    """Those that survived before and could be seen, as far as they can still be made: each in the
    nearest line, at most one of a line."""
    places: dict[tuple[str, str, str], list[mutants.Mutant]] = {}
    for mutant in able:
        places.setdefault(mutant.mistake, []).append(mutant)
    chosen: dict[tuple[str, int], mutants.Mutant] = {}
    for result in before:
        reason = reason_of(result, known)
        if result["fate"] not in ALIVE or (reason and reason.verdict in UNSEEN):
            continue
        line = int(result["name"].split(":")[1].split()[0])
        free = [m for m in places.get(mistake_of(result), []) if (m.path, m.line) not in chosen]
        if free:
            nearest = min(free, key=lambda m: abs(m.line - line))
            chosen[nearest.path, nearest.line] = nearest
    return list(chosen.values())
