# SPDX-License-Identifier: MIT
"""The process that measures: fovea and its peers of one number of threads together.

It is started anew for each number of threads, because libraries read theirs from the environment
when they are loaded. What it finds goes to its parent as messages; a peer that ends the process (an
instruction that the machine does not have) ends that cell and no more.
"""

import importlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rows import Row

# Module and class of each peer, by the name of its columns.
PEERS = {
    "torch": ("torch_peer", "TorchPeer"),
    "openvino": ("openvino_peer", "OpenvinoPeer"),
    "onnxruntime": ("onnxruntime_peer", "OnnxruntimePeer"),
}

# A message is its kind and what it says.
Message = tuple[str, Any]


@dataclass
class Job:
    """What a worker is to do."""

    library: Path
    threads: int
    rounds: int
    rows: list[Row]
    peers: list[str]
    # Where rows of one thread run.
    processor: int
    # Pairs of a row's name and a peer that is not to be called there.
    avoided: set[tuple[str, str]] = field(default_factory=set)


def _environment(threads: int) -> dict[str, str]:
    """The environment variables to set before the libraries are loaded.

    glibc hands large temporaries back to the system and gets them again as new pages at every
    call, which costs PyTorch much of its time, unless it is told not to.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": "1",  # numpy, which computes the reference
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    }


def messages(job: Job) -> Iterator[Message]:
    """Runs the job in workers until it is done.

    Kinds: `machine` (facts), `peer` (name, version), `missing` (name, reason), `row` (figures),
    `failed` (name of a row, reason), `note` (text).
    """
    while True:
        at = ("", "")
        parent, child = multiprocessing.Pipe(duplex=False)
        os.environ.update(_environment(job.threads))
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(job, child))
        process.start()
        child.close()
        try:
            while True:
                kind, said = parent.recv()
                if kind == "at":
                    at = said
                    continue
                if kind == "end":
                    return
                if kind in ("row", "failed"):
                    done = said["name"] if kind == "row" else said[0]
                    job.rows = [row for row in job.rows if row.name(job.threads) != done]
                yield kind, said
        except EOFError:
            process.join()
            yield from _after_death(job, at, _cause(process.exitcode))
        finally:
            if process.is_alive():
                process.terminate()
            process.join()
        if not job.rows:
            return


def _after_death(job: Job, at: tuple[str, str], cause: str) -> Iterator[Message]:
    """Takes what ended the process out of the job."""
    row, peer = at
    if row == "" and peer in job.peers:
        job.peers = [name for name in job.peers if name != peer]
        yield "missing", (peer, f"it ended the process when it was loaded ({cause})")
    elif peer in job.peers:
        job.avoided.add((row, peer))
        yield "note", f"{row}: {peer} ended the process ({cause})"
    else:
        lost = [row] if row else [each.name(job.threads) for each in job.rows]
        for name in lost:
            yield "failed", (name, f"the process ended ({cause})")
        job.rows = [each for each in job.rows if each.name(job.threads) not in lost]


def _cause(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return signal.Signals(-exit_code).name
    return f"exit code {exit_code}"


def _work(job: Job, out: Connection) -> None:
    """The worker itself."""
    if job.threads == 1:
        os.sched_setaffinity(0, {job.processor})
    from fovea_library import FoveaLibrary  # needs numpy, which reads the environment
    from measure import measure

    try:
        fovea = FoveaLibrary(job.library, job.threads)
    except (OSError, AttributeError, RuntimeError) as error:
        for row in job.rows:
            out.send(("failed", (row.name(job.threads), f"{job.library.name}: {error}")))
        out.send(("end", None))
        return
    out.send(("machine", fovea.facts))
    peers = []
    for name in job.peers:
        out.send(("at", ("", name)))
        module, of_class = PEERS[name]
        try:
            peer = getattr(importlib.import_module(module), of_class)(job.threads)
        except Exception as error:  # noqa: BLE001: a package may raise what it likes
            out.send(("missing", (name, " ".join(str(error).split())[:200])))
            continue
        peers.append(peer)
        out.send(("peer", (name, str(peer.version))))
    for row in job.rows:
        name = row.name(job.threads)
        called = [peer for peer in peers if (name, peer.name) not in job.avoided]
        out.send(("at", (name, "")))
        try:
            out.send(("row", measure(row, fovea, called, job.rounds, job.threads,
                                     lambda library, at=name: out.send(("at", (at, library))))))
        except Exception as error:  # noqa: BLE001: the other rows go on
            out.send(("failed", (name, " ".join(str(error).split())[:300])))
    fovea.close()
    out.send(("end", None))
