"""What a comparison costs beyond its solvers: the journal, the way to a worker and back, starting one."""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement, measure, table

INSTANCES = 250
ALGORITHMS = ("liu", "liu-postorder", "postorder", "minmem")
"""Short jobs: each takes a few milliseconds, verification included."""


def documents(folder: Path, count: int) -> Path:
    """Write small trees that differ in a size."""
    for number in range(count):
        sizes = [1 + (k * 7919 + number) % 1000 for k in range(20)]
        document: dict[str, Any] = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1, *range(19)]}
        document |= {"units": {"time": "unit", "memory": "unit"}, "output_size": sizes}
        (folder / f"{number:04}.json").write_text(json.dumps(document))
    return folder


@contextmanager
def clocked(spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds that the journal's own calls take (open and read, add, close with its fsync): wall and CPU."""
    from remat.comparing.journal import Journal

    saved = {name: getattr(Journal, name) for name in ("__init__", "add", "close")}

    def wrapped(name: str) -> Any:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter(), time.thread_time()
            try:
                return saved[name](*arguments)
            finally:
                spent["wall"] += time.perf_counter() - start[0]
                spent["cpu"] += time.thread_time() - start[1]

        return call

    try:
        for name in saved:
            setattr(Journal, name, wrapped(name))
        yield
    finally:
        for name, function in saved.items():
            setattr(Journal, name, function)


def comparison(folder: str, output: str | None, workers: int) -> dict[str, Any]:
    """Run the jobs; return the seconds of the whole, of the parent, of the journal, and those spent in jobs."""
    from remat.comparing.run import Tally, compare

    begun: list[tuple[float, float]] = []

    def listen(tally: Tally) -> None:
        if tally.phase == "solving" and not begun:
            begun.append((time.perf_counter(), time.process_time()))

    journal = {"wall": 0.0, "cpu": 0.0}
    cpu, start = time.process_time(), time.perf_counter()
    with clocked(journal):
        found = compare(folder, algorithms=ALGORITHMS, jobs=workers, output=output, progress=listen)
    end = time.perf_counter(), time.process_time()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu": end[1] - cpu + used.ru_utime + used.ru_stime,
        "wall": end[0] - start,
        "solving": end[0] - begun[0][0],
        "parent": end[1] - begun[0][1],
        "in_jobs": sum(cell.answer.seconds for cell in found),
        "cells": sum(cell.answer.solved for cell in found),
        "journal": journal,
    }


def journal_shares(folder: Path, rounds: int) -> None:
    """Print the journal's share of a run, with and without it in turn, so that drift hits both alike."""
    runs: dict[tuple[int, str], list[Measurement]] = {}
    for number in range(rounds):
        for workers in (1, 2):
            for name in ("without", "with", "resumed"):
                output = None if name == "without" else str(folder.parent / f"out-{workers}-{number}")
                done = measure(comparison, folder=str(folder), output=output, workers=workers)
                runs.setdefault((workers, name), []).append(done)

    def share(listed: list[Measurement], clock: str) -> str:
        return f"{100 * statistics.median(m.value['journal'][clock] / getattr(m, clock) for m in listed):.2f} %"

    rows: list[list[object]] = []
    for (workers, name), listed in runs.items():
        wall, cpu = statistics.median(m.wall for m in listed), statistics.median(m.cpu for m in listed)
        ratio = cpu / statistics.median(m.cpu for m in runs[workers, "without"])
        cells = listed[0].value["cells"]
        rows.append([workers, name, cells, wall, cpu, ratio, share(listed, "cpu"), share(listed, "wall")])
    header = ["workers", "journal", "cells", "wall s", "CPU s", "CPU ratio", "journal of CPU", "journal of wall"]
    table(f"{len(ALGORITHMS) * INSTANCES:,} short jobs, median of {rounds}; CPU of all processes", header, rows)

    alone = [m.value for m in runs[1, "with"]]
    job, beside, parent, line = (
        statistics.median(figure(value) / value["cells"] for value in alone)
        for figure in (
            lambda value: value["in_jobs"],
            lambda value: value["solving"] - value["in_jobs"],
            lambda value: value["parent"],
            lambda value: value["journal"]["cpu"],
        )
    )
    rows = [
        ["the job itself: solver, placement, verifier (wall)", 1e6 * job, 1.0],
        ["from the end of one job to the start of the next (wall)", 1e6 * beside, beside / job],
        ["of the parent: queue, pipes, threads, journal (CPU)", 1e6 * parent, parent / job],
        ["of that: the journal (CPU)", 1e6 * line, line / job],
    ]
    table("One job with one worker, mean over a run", ["part", "us", "ratio to the job"], rows)


def warm(repeats: int) -> dict[str, Any]:
    """Time the same request to a worker that runs, and to one that must be started for it."""
    from remat.comparing.supervision import Limits, Worker

    with tempfile.TemporaryDirectory() as name:
        source = str(documents(Path(name), 1) / "0000.json")
        request = {"do": "solve", "source": source, "algorithm": "liu", "options": {}, "capacity": None}
        request |= {"machine": None, "seed": 0, "threads": 1, "time_limit": 10}
        figures: dict[str, list[float]] = {"cold": [], "warm": []}
        for _ in range(repeats):
            worker = Worker(Limits(seconds=10))
            for key in ("cold", "warm"):
                start = time.perf_counter()
                worker.ask(request)
                figures[key].append(time.perf_counter() - start)
            worker.close()
        return {key: statistics.median(values) for key, values in figures.items()}


def durability(folder: Path, lines: int = 1000) -> None:
    """Print what lines would cost with an fsync each, against what they do cost."""
    from remat.comparing.cells import Answer, Outcome
    from remat.comparing.journal import Journal

    answer = Answer(outcome=Outcome.OPTIMAL, makespan=41, peak_memory={"memory": 7}, steps=3, seconds=0.5)
    spent: dict[str, float] = {}
    for name in ("as it is", "fsync for each line"):
        path = folder / f"{name}.jsonl"
        with Journal(path) as journal:
            start = time.perf_counter()
            for number in range(lines):
                journal.add(f"{number:032}", answer, {"instance": "x", "algorithm": "liu", "at": 0.0})
                if name != "as it is":
                    os.fsync(journal._file)
            spent[name] = (time.perf_counter() - start) / lines
    rows = [[name, 1e6 * seconds, seconds / spent["as it is"]] for name, seconds in spent.items()]
    table(f"{lines:,} lines of a journal (wall)", ["", "us a line", "ratio"], rows)


def run(rounds: int = 3) -> None:
    """Print the journal's share of a run of 1,000 short jobs, what a job costs beside itself, and a worker's start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "instances"
        folder.mkdir()
        journal_shares(documents(folder, INSTANCES), rounds)
        durability(Path(name))
    value = measure(warm, repeats=7).value
    rows = [[key, 1e3 * value[key], value[key] / value["warm"]] for key in ("warm", "cold")]
    table("A job in a worker, median of 7", ["worker", "ms", "ratio"], rows)
    sys.stdout.write("\ncold: interpreter, imports and the solver's module before the job, as without warm workers.\n")
