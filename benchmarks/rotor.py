"""Rotor's table on heterogeneous chains: CPU time, peak memory, compiled kernel against plain numpy."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table

LENGTHS = (50, 100, 200, 339)
SLOTS = 500
SWEPT = 20
LONG = 1000


def chain(stages: int, seed: int = 1) -> dict[str, Any]:
    """Return a heterogeneous chain with integer times and sizes."""
    draw = random.Random(seed).randint
    return {
        "schema": "remat.instance/1",
        "kind": "chain",
        "units": {"time": "unit", "memory": "unit"},
        "input_size": 10**6,
        "stages": [
            {
                "forward_time": draw(1, 1000),
                "backward_time": draw(1, 2000),
                "output_size": draw(10**5, 10**7),
                "saved_size": draw(10**5, 4 * 10**7),
                "forward_workspace": draw(0, 10**7),
                "backward_workspace": draw(0, 10**7),
            }
            for _ in range(stages)
        ],
    }


def budget_between(instance: remat.Instance, share: float) -> int:
    """Return the budget at a share of the way from the least feasible one to the no-recompute peak."""
    least = remat.solve(instance, algorithm="rotor", budget=0).least_budget
    whole = remat.solve(instance, algorithm="store-all").peak_memory["memory"]
    assert least is not None
    return least.size + round((whole - least.size) * share)


def fill(stages: int, share: float, compiled: bool, limited: bool) -> dict[str, Any]:
    """Fill one table of 500 slots, whole or as a solve does, within the limit it finds first.

    Imports and (cached) compilation are not counted.
    """
    from remat.instance.lowering.chain_arrays import chain_arrays
    from remat_algorithms.chain.rotor import table as rotor_table
    from remat_algorithms.chain.rotor.limit import once_bound
    from remat_algorithms.chain.segments import Segments

    instance = remat.load(chain(stages))
    assert isinstance(instance, remat.ChainInstance)
    segments = Segments.of(chain_arrays(instance))
    room = budget_between(instance, share) - instance.input_size
    rotor_table.COMPILED_FROM = 0 if compiled else 10**9
    if compiled:
        small = Segments.of(chain_arrays(remat.load(chain(3))))  # type: ignore[arg-type]
        rotor_table.RotorTable.of(small, rotor_table.Grid.of(small, 10**6, 10**5, up=True))
    unit = -(-room // SLOTS)
    with Stopwatch() as watch:
        grid = rotor_table.Grid.of(segments, room, unit, up=True)
        limit = once_bound(rotor_table.RowLimits.of(segments, grid)) if limited else math.inf
        filled = rotor_table.RotorTable.of(segments, grid, limit=limit)
    assert filled is not None
    return watch.report(ratio=filled.best() / segments.time_without_recompute())


def sweep(stages: int) -> dict[str, Any]:
    """Answer 20 budgets in one sweep and in 20 solves, as a user does: tables, schedules, placement, verification.

    The budgets go down evenly from nine tenths of the way. Of each call the least CPU time of two is taken: a table
    is fresh memory, and what the system takes for that varies.
    """
    instance = remat.load(chain(stages))
    high, low = budget_between(instance, 0.9), budget_between(instance, 0)
    budgets = [high - (high - low) * k // SWEPT for k in range(SWEPT)]
    warm = remat.load(chain(60))
    remat.sweep(warm, "rotor", budgets=[budget_between(warm, share) for share in (0.3, 0.5)])
    remat.solve(warm, algorithm="rotor", budget=budget_between(warm, 0.5))

    def cpu(call: Callable[..., object], *given: Any, **more: Any) -> float:
        spent = []
        for _ in range(2):
            with Stopwatch() as watch:
                call(*given, **more)
            spent.append(watch.cpu)
        return min(spent)

    many = cpu(remat.sweep, instance, "rotor", budgets=budgets)
    return {"many": many, "single": [cpu(remat.solve, instance, algorithm="rotor", budget=each) for each in budgets]}


def solve(stages: int, share: float, slots: int | None = None, threads: int = 1) -> dict[str, Any]:
    """Solve as a user does: both tables, schedule, placement, verification."""
    options = {} if slots is None else {"slots": slots}
    instance = remat.load(chain(stages))
    budget = budget_between(instance, share)
    with Stopwatch() as watch:
        result = remat.solve(instance, algorithm="rotor", budget=budget, options=options, threads=threads)
    return watch.report(overhead=result.overhead, status=str(result.status))


def run() -> None:
    """Print times for three budgets."""
    rows = []
    for stages in LENGTHS:
        for share in (0.25, 0.5, 0.9):
            kernel, kernel_limited, plain, plain_limited = (
                measure(fill, stages=stages, share=share, compiled=compiled, limited=limited)
                for compiled in (True, False)
                for limited in (False, True)
            )
            whole = measure(solve, stages=stages, share=share)
            rows.append(
                [
                    *(stages, share, kernel.cpu, kernel_limited.cpu, kernel.peak_mib, plain.cpu, plain_limited.cpu),
                    *(plain.cpu / kernel.cpu, whole.cpu, whole.value["overhead"]),
                ]
            )
    header = [
        *("stages", "budget", "kernel CPU s", "limited", "peak MiB", "numpy CPU s", "limited"),
        *("numpy/kernel", "solve CPU s", "overhead"),
    ]
    table("Rotor, 500 slots, one thread (budget: share of the way from least to no-recompute)", header, rows)
    long = []
    for share in (0.05, 0.5):
        found = measure(solve, stages=LONG, share=share, slots=SLOTS, threads=2)
        long.append([LONG, share, found.cpu, found.wall, found.peak_mib, found.value["overhead"]])
    header = ["stages", "budget", "solve CPU s", "wall s", "peak MiB", "overhead"]
    table("Rotor, a long chain, 500 slots, two threads", header, long)
    _sweeps()


def _sweeps() -> None:
    """Print what a sweep takes, and how often as long that is as some of its solves."""
    swept = []
    for stages in LENGTHS:
        value = measure(sweep, stages=stages).value
        many, single = value["many"], value["single"]
        solves = [min(single), single[-1], single[SWEPT // 2], single[0], sum(single) / SWEPT, max(single)]
        swept.append([stages, many, *(f"{cpu:.3g} ({many / cpu:.2f})" for cpu in solves)])
    header = ["stages", f"{SWEPT} budgets", "a solve: cheapest", "least budget", "middle", "largest", "mean", "dearest"]
    table("Rotor, a sweep against solves, CPU s (sweep/solve)", header, swept)
