"""Checkpointing on storage levels: h-revolve, disk-revolve, mixed and values alone, beside checkpoint_schedules.

The peer is measured where it can be imported (``pip install checkpoint-schedules``), without a JIT: ours has none here.
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from typing import Any

import remat
from benchmarks.harness import Measurement, Stopwatch, measure, table

CASES = (
    ("h-revolve", 200, [10, 10]),
    ("h-revolve", 300, [30, 30]),
    ("disk-revolve", 400, [10, None]),
    ("h-revolve", 1000, [30, 30]),
    ("h-revolve", 3000, [10, 10]),
    ("h-revolve", 1000, [10, 10, 10]),
    ("disk-revolve", 2000, [10, None]),
    ("mixed", 300, [30]),
    ("mixed", 1000, [30]),
)
PEER_STEPS = 2000
"""The peer is left out of longer cases."""


def document(steps: int, slots: list[int | None]) -> dict[str, Any]:
    """Return an adjoint whose levels cost nothing, 2, 4, ... to write and to read."""
    return {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "units": {"time": "unit", "memory": "unit"},
        "steps": steps,
        "storage": [
            {"name": f"level{k}", "slots": count, "write_time": 2 * k, "read_time": 2 * k}
            for k, count in enumerate(slots)
        ],
    }


def ours(algorithm: str, steps: int, slots: list[int | None]) -> dict[str, Any]:
    """Solve, place and verify."""
    tapes = {"tape_size": 1} if algorithm == "mixed" else {}
    remat.solve(document(5, slots) | tapes, algorithm=algorithm)  # imports
    with Stopwatch() as watch:
        result = remat.solve(document(steps, slots) | tapes, algorithm=algorithm)
    return watch.report(makespan=result.makespan)


def peer(algorithm: str, steps: int, slots: list[int | None]) -> dict[str, Any]:
    """Build the peer's schedule, which computes its tables (`mixed`: while its actions are listed)."""
    if algorithm == "mixed":
        sys.modules["numba"] = None  # type: ignore[assignment]
        sys.setrecursionlimit(100_000)
        warnings.simplefilter("ignore")
    from checkpoint_schedules import DiskRevolve, HRevolve, MixedCheckpointSchedule

    with Stopwatch() as watch:
        if algorithm == "h-revolve":
            HRevolve(steps, *slots, uf=1, ub=1, wd=2, rd=2)
        elif algorithm == "mixed":
            for _ in MixedCheckpointSchedule(steps, slots[0]):
                pass
        else:
            DiskRevolve(steps, slots[0], uf=1, ub=1, wd=2, rd=2)
    return watch.report()


def values_alone(steps: int, slots: list[int | None]) -> dict[str, Any]:
    """Compute the tables without a schedule."""
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.adjoint.levels.h_revolve import value
    from remat_algorithms.adjoint.levels.uniform import TimeLoop

    problem = make_problem(remat.load(document(steps, slots)))
    with Stopwatch() as watch:
        makespan = value(TimeLoop.of(problem, "h-revolve"))
    return watch.report(makespan=makespan)


def run() -> None:
    """Print CPU seconds, and the peer's as a ratio."""
    rows: list[list[object]] = []
    with_peer = find_spec("checkpoint_schedules") is not None
    for algorithm, steps, slots in CASES:
        done = measure(ours, algorithm=algorithm, steps=steps, slots=slots)
        other: Measurement | None = None
        if with_peer and steps <= PEER_STEPS and len(slots) <= 2:
            other = measure(peer, algorithm=algorithm, steps=steps, slots=slots)
        rows.append([algorithm, steps, _shown(slots), done.value["makespan"], done.cpu, *_ratio(done, other)])
    done = measure(values_alone, steps=20_000, slots=[10, 10])
    rows.append(["h-revolve, values alone", 20_000, "10, 10", round(done.value["makespan"]), done.cpu, "", ""])
    header = ["algorithm", "n", "slots", "makespan", "CPU s", "checkpoint_schedules CPU s", "ratio"]
    table("Storage levels: solve, place and verify (the peer: its tables and its list of operations)", header, rows)
    if not with_peer:
        sys.stdout.write("\nThe peer is left out: checkpoint_schedules is not installed.\n")
    sys.stdout.write(
        "\nBound by: the tables, one addition and one minimum of contiguous slices for each entry; short rows by\n"
        "the calls (about 2 us each), long ones by the bytes moved.\n"
    )


def _shown(slots: list[int | None]) -> str:
    return ", ".join("unbounded" if count is None else str(count) for count in slots)


def _ratio(done: Measurement, other: Measurement | None) -> tuple[object, object]:
    return ("", "") if other is None else (other.cpu, round(other.cpu / done.cpu, 1))
