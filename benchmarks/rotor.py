"""Rotor's table on heterogeneous chains: CPU time, peak memory, compiled kernel against plain numpy."""

from __future__ import annotations

import math
import random
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
    from remat.chain import Chain
    from remat_algorithms.chain import rotor_table
    from remat_algorithms.chain.rotor_limit import once_bound
    from remat_algorithms.chain.segments import Segments

    instance = remat.load(chain(stages))
    assert isinstance(instance, remat.ChainInstance)
    segments = Segments.of(Chain.from_chain(instance))
    room = budget_between(instance, share) - instance.input_size
    rotor_table.COMPILED_FROM = 0 if compiled else 10**9
    if compiled:
        small = Segments.of(Chain.from_chain(remat.load(chain(3))))  # type: ignore[arg-type]
        rotor_table.RotorTable.of(small, rotor_table.Grid.of(small, 10**6, 10**5, up=True))
    unit = -(-room // SLOTS)
    with Stopwatch() as watch:
        grid = rotor_table.Grid.of(segments, room, unit, up=True)
        limit = once_bound(rotor_table.RowLimits.of(segments, grid)) if limited else math.inf
        filled = rotor_table.RotorTable.of(segments, grid, limit=limit)
    assert filled is not None
    return watch.report(ratio=filled.best() / segments.time_without_recompute())


def sweep(stages: int, budgets: int) -> dict[str, Any]:
    """Answer that many budgets, the largest one at nine tenths of the way, steps included."""
    from remat.context import Context
    from remat.options import make_options
    from remat.registry import find
    from remat.solving import make_problem

    instance = remat.load(chain(stages))
    algorithm = find("rotor", "chain")
    function = algorithm.load_sweep()
    assert function is not None
    high, low = budget_between(instance, 0.9), budget_between(instance, 0)
    chosen = tuple(high - (high - low) * k // budgets for k in range(budgets))
    problem = make_problem(instance)
    with Stopwatch() as watch:
        found = list(function(problem, make_options(algorithm, {"slots": SLOTS}), Context(), chosen))
    assert all(proposal.steps is not None for proposal in found)
    return watch.report(answers=len(found))


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
    swept = []
    for stages in LENGTHS:
        one, many = (measure(sweep, stages=stages, budgets=budgets) for budgets in (1, SWEPT))
        swept.append([stages, one.cpu, many.cpu, many.cpu / one.cpu])
    table("Rotor, both tables", ["stages", "1 budget CPU s", f"{SWEPT} budgets CPU s", f"{SWEPT}/1"], swept)
