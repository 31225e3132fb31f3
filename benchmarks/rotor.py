"""Rotor's fronts: CPU time and peak memory of solves, of whole curves, and of sweeps against solves."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import Stopwatch, measure, table

LENGTHS = (50, 100, 200, 339)
SHARES = (0.05, 0.25, 0.5, 0.9)
SWEPT = 20
LONG = 1000
FOLDER = Path(__file__).parent.parent / "instances" / "chains"
CURVES = ("resnet50_b32_224", "gpt2s_b8_s1024_flash", "gpt2_xl_b4")


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


def curve(name: str) -> dict[str, Any]:
    """Fill the fronts of a shipped chain without a limit: all breakpoints."""
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.chain.rotor.excess_limit import Allowed
    from remat_algorithms.chain.rotor.front_table import Cells
    from remat_algorithms.chain.rotor.tick_costs import Costs
    from remat_algorithms.chain.rotor.work_counter import Work
    from remat_algorithms.chain.segments import Segments

    segments = Segments.of(make_problem(remat.load(FOLDER / f"{name}.json")).chain)
    work = Work()
    with Stopwatch() as watch:
        costs, allowed = Costs.of(segments), Allowed.all(segments, segments.states.whole().need)
        filled = Cells.of(segments, costs, allowed, work)
    return watch.report(stages=segments.length, points=len(filled.whole[0]), merged=work.done)


def sweep(stages: int) -> dict[str, Any]:
    """Answer 20 budgets in one sweep and in 20 solves, as a user does: fronts, schedules, placement, verification.

    The budgets go down evenly from nine tenths of the way. Of each call the least CPU time of two is taken.
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


def solve(stages: int, share: float) -> dict[str, Any]:
    """Solve as a user does: fronts, schedule, placement, verification."""
    instance = remat.load(chain(stages))
    budget = budget_between(instance, share)
    warm = remat.load(chain(40))
    remat.solve(warm, algorithm="rotor", budget=budget_between(warm, 0.5))
    with Stopwatch() as watch:
        result = remat.solve(instance, algorithm="rotor", budget=budget)
    return watch.report(overhead=result.overhead, proved=result.optimal_within is not None)


def run() -> None:
    """Print times."""
    rows = []
    for stages, shares in (*((length, SHARES) for length in LENGTHS), (LONG, (0.5,))):
        for share in shares:
            found = measure(solve, stages=stages, share=share)
            value = found.value
            rows.append([stages, share, found.cpu, found.peak_mib, f"{100 * value['overhead']:.3f}", value["proved"]])
    header = ["stages", "budget", "solve CPU s", "peak MiB", "overhead, %", "proved"]
    table("Rotor, one thread (budget: share of the way from least to no-recompute)", header, rows)
    curves = []
    for name in CURVES:
        found = measure(curve, name=name)
        curves.append([name, found.value["stages"], found.value["points"], found.cpu])
    table("Rotor, all breakpoints", ["chain", "stages", "breakpoints", "CPU s"], curves)
    _sweeps()


def _sweeps() -> None:
    """Print what a sweep takes, and how often as long that is as some of its solves."""
    swept = []
    for stages in LENGTHS:
        value = measure(sweep, stages=stages).value
        many, single = value["many"], value["single"]
        solves = [min(single), single[-1], single[SWEPT // 2], single[0], sum(single) / SWEPT, max(single)]
        swept.append([stages, many, *(f"{cpu:.3g} ({many / cpu:.2f})" for cpu in solves)])
    header = [
        "stages",
        f"{SWEPT} budgets",
        "a solve: cheapest",
        "minimum budget",
        "middle",
        "largest",
        "mean",
        "dearest",
    ]
    table("Rotor, a sweep against solves, CPU s (sweep/solve)", header, swept)
