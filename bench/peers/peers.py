# SPDX-License-Identifier: MIT
"""Times fovea, PyTorch, OpenVINO and ONNX Runtime, alternating in one process.

run.sh sets up what this program needs. The exit status is 0 if all rows were measured and all
results agree, 1 if not, and 2 for invalid arguments or if something required is missing.
"""

import argparse
import os
import sys
from pathlib import Path

import rows
import timing
from plot import draw
from report import LEGEND, Report, Table, check_writable, write_file
from worker import PEERS, Job, messages

DURATION = "All rows take about 30 minutes on two cores of an AMD EPYC."
PROCESSORS = os.sched_getaffinity(0)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="peers.py", description=__doc__.splitlines()[0],
        epilog=f"{DURATION} Columns. " + " ".join(LEGEND.split()))
    parser.add_argument("--library", type=Path, metavar="FILE",
                        default=os.environ.get("FOVEA_PEERS_LIBRARY"),
                        help="the shared object of the CMake target fovea_peers (default: "
                        "FOVEA_PEERS_LIBRARY, which run.sh sets)")
    parser.add_argument("--threads", type=thread_counts, default=[1, 2], metavar="1|2",
                        help="one number of threads instead of both")
    parser.add_argument("--processor", type=int, default=max(PROCESSORS), metavar="N",
                        help="the processor for rows of one thread (default: the last one)")
    parser.add_argument("--rows", default="", metavar="REGEX",
                        help="only rows whose name contains a match")
    parser.add_argument("--quick", action="store_true", help="only some rows, fewer rounds")
    parser.add_argument("--rounds", type=at_least_1,
                        help="rounds of each row (default 15, --quick 7; rows with long rounds "
                        "have fewer, but at least 7)")
    parser.add_argument("--peers", type=peer_names, default=list(PEERS), metavar="NAME,...",
                        help="only these peers: " + ", ".join(PEERS))
    parser.add_argument("--no-peers", action="store_const", const=[], dest="peers",
                        help="fovea alone")
    parser.add_argument("--json", type=Path, metavar="FILE",
                        help="write all figures to a file; those of a run that was stopped are in "
                        "FILE.partial")
    parser.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw the ratios (gnuplot)")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    return parser.parse_args(arguments)


def thread_counts(text: str) -> list[int]:
    if text not in ("1", "2"):
        raise argparse.ArgumentTypeError(f"'{text}' is not 1 or 2")
    return [int(text)]


def at_least_1(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def peer_names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"'{name}' is not one of {', '.join(PEERS)}")
    return [name for name in PEERS if name in names]


def missing_at_all(options: argparse.Namespace) -> str:
    """What the program cannot do without and has not got, or nothing."""
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        return f"numpy cannot be loaded ({error}): pip install numpy, or use run.sh"
    if options.processor not in PROCESSORS:
        return f"--processor: {options.processor} is not one of {sorted(PROCESSORS)}"
    if options.library is None:
        return "name the shared object by --library, or use run.sh, which builds it"
    if not options.library.is_file():
        return (f"there is no {options.library}: cmake --build <folder> --target fovea_peers "
                "makes it, and run.sh does that")
    try:
        for path in (options.json, options.plot):
            if path is not None:
                check_writable(path.absolute())
    except OSError as error:
        return f"cannot write: {error}"
    return ""


def partial(path: Path) -> Path:
    """The file for rows until all are measured."""
    return path.absolute().with_name(path.name + ".partial")


def run(options: argparse.Namespace, names: list[str], report: Report) -> None:
    """Measures all rows and prints the table."""
    table = Table(names, options.peers, sys.stdout)
    table.print_head()
    report.rounds = options.rounds or (timing.LEAST_ROUNDS if options.quick else 15)
    for threads in options.threads:
        if threads > len(PROCESSORS):
            report.note(f"no rows of {threads} threads: there is {len(PROCESSORS)} processor")
            continue
        of_threads = rows.chosen(threads, options.rows, options.quick)
        if not of_threads:
            continue
        job = Job(options.library.absolute(), threads, report.rounds, of_threads,
                  list(options.peers), options.processor)
        for kind, said in messages(job):
            if kind == "machine":
                report.machine = said
            elif kind == "peer":
                report.versions[said[0]] = said[1]
            elif kind == "missing":
                report.note(f"no {said[0]}: {said[1]} (pip install {said[0]}, or run.sh)")
            elif kind == "row":
                report.add_row(said)
                table.print_row(said)
                if options.json is not None:
                    write_file(partial(options.json), report.json_text())
            elif kind == "failed":
                report.add_failure(*said)
                table.print_failure(said[0])
            else:
                report.note(said)


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    try:
        names = [row.name(threads) for threads in options.threads
                 for row in rows.chosen(threads, options.rows, options.quick)]
    except rows.NoSuchRow as error:
        print(f"peers.py: --rows: {error}", file=sys.stderr)
        return 2
    if not names:
        print(f"peers.py: no row's name holds a match of '{options.rows}'; --list prints them",
              file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(names))
        return 0
    problem = missing_at_all(options)
    if problem:
        print(f"peers.py: {problem}", file=sys.stderr)
        return 2
    report = Report(["peers.py", *arguments])
    report.versions["python"] = sys.version.split()[0]
    run(options, names, report)
    if options.peers and not set(options.peers) & set(report.versions):
        report.note("fovea was timed alone: none of its peers could be loaded")
    if report.rounds < timing.LEAST_ROUNDS:
        report.note(f"{report.rounds} rounds are too few for a figure to be quoted")
    facts = ", ".join(f"{name} {version}" for name, version in report.versions.items()
                      if name in PEERS)
    report.caption = (f"{report.machine.get('cpu', '')}, level "
                      f"{report.machine.get('isa_level', '')}; {facts}")
    if options.plot is not None:
        note = draw(report.results, report.caption, options.plot.absolute())
        if note:
            report.note(note)
    if options.json is not None:
        write_file(options.json.absolute(), report.json_text())
        partial(options.json).unlink(missing_ok=True)
    print("\n" + LEGEND)
    for note in report.notes:
        print("note: " + note)
    return 1 if report.has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
