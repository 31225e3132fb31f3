"""Every algorithm that rematerialises on task graphs: cost, bound and time on the same graphs and budgets.

Budgets are shares of the no-recompute peak. Shipped and generated graphs, then those under ``$REMAT_DATA/dag`` where
that is set. The jobs run in `remat.compare`'s supervised workers, one thread each, one worker for each of two cores.
Answers are kept in ``build/dag_table``: an interrupted run goes on with what is missing; remove the folder to measure
again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import remat
from benchmarks.harness import data_missing, table
from remat.comparing.cells import Cell
from remat.comparing.comparison import Comparison, by_algorithm, case_of
from remat.comparing.run import Tally

LIMIT = 20
JOBS = 2
SHARES = (0.9, 0.8, 0.6)
SHIPPED = ("unet_joint", "unet_b8_512_bf16", "mlp12_joint", "layered_n60_mixed", "layered_n100")
GENERATED = 250
OTHERS = {"dag-list-memory", "dag-order-exact", "dag-order-greedy", "dag-order-lpmf", "sp-order"}
"""Run nothing twice: they are compared elsewhere."""

BOUNDS = "dag-auto"
"""Whose bounds are shown beside all algorithms."""

COLUMNS = ("cost", "bound", "s")
SHORT = {"infeasible": "inf", "unknown": "none", "refused": "ref", "time limit": "time", "memory limit": "mem"}
LEGEND = """
Per cent on top of the time without recomputation. `**`: optimal; `*`: proved in its class. `none`: found nothing;
`inf`: proved that nothing fits, in its class; `ref`: does not accept the graph; `time`, `mem`: stopped by force, at
half as much again as the limit. `s`: the longest job of the row. The bounds are dag-auto's: for schedules in the
reference order, and for all.
"""
FOLDER = Path(__file__).parent.parent / "build" / "dag_table"


def graphs() -> list[str | dict[str, Any]]:
    """Return the shipped graphs, and a generated one."""
    from remat.generate import generate

    layered = dict(generate("dag", "layered", nodes=GENERATED)) | {"name": f"layered_n{GENERATED}"}
    return [*(f"example:dags/{name}" for name in SHIPPED), layered]


def foreign() -> list[str]:
    """Return the graphs of ``$REMAT_DATA``."""
    data = os.environ.get("REMAT_DATA")
    return sorted(map(str, Path(data, "dag").rglob("*.json"))) if data else []


def compared(instances: Sequence[str | dict[str, Any]]) -> Comparison:
    """Run all jobs that the journal does not have."""
    # What offloads is for machines with links.
    alone = (entry for entry in remat.algorithms(kind="dag") if not entry.several_memories)
    names = [entry.name for entry in alone if entry.name not in OTHERS]

    def tell(tally: Tally) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{tally.phase} {tally.done}/{tally.total} ")

    return remat.compare(
        list(instances),
        algorithms=names,
        budget_fractions=SHARES,
        time_limit=LIMIT,
        jobs=JOBS,
        output=FOLDER,
        progress=tell,
    )


def cost(cell: Cell) -> str:
    """Format the overhead, or why there is none."""
    answer = cell.answer
    if not answer.solved or answer.overhead is None:
        return SHORT.get(str(answer.outcome), str(answer.outcome))
    stars = 2 if str(answer.outcome) == "optimal" else 1 if answer.optimal_within is not None else 0
    return f"{100 * answer.overhead:.2f}" + "*" * stars


def name_of(label: str) -> str:
    """Return an instance's name, without the folders that it lies in."""
    return Path(label).name.partition(".")[0]


def bound(cell: Cell, *, overall: bool = False) -> str:
    """Format an algorithm's own bound, for its class or for all schedules."""
    answer = cell.answer
    bounds = (answer.lower_bound, None if overall else answer.class_bound)
    best = max((value for value in bounds if value is not None), default=None)
    once = answer.no_recompute_time
    return "-" if best is None or not once else f"{100 * (best / once - 1):.2f}"


def summary(title: str, comparison: Comparison) -> None:
    """Print one row for each algorithm, one column for each graph with its budgets; dag-auto's bound last."""
    graphs = list(dict.fromkeys(graph for graph, _ in comparison.by_case))
    budgets = list(dict.fromkeys(budget for _, budget in comparison.by_case))
    solved = by_algorithm(comparison)

    def cells(mine: dict[tuple[str, str], Cell], show: Callable[[Cell], str]) -> list[str]:
        # Interrupted: some are missing.
        known = {case: show(cell) for case, cell in mine.items()}
        columns = [[known.get((graph, budget), "") for budget in budgets] for graph in graphs]
        return [column[0] if len({*column}) == 1 else " / ".join(column) for column in columns]

    rows, bounds = [], dict[tuple[str, str], Cell]()
    for standing in comparison.standings():
        mine = {case_of(cell): cell for cell in solved[standing.algorithm]}
        if standing.algorithm == BOUNDS:
            bounds = mine
        longest = max(cell.answer.seconds for cell in mine.values())
        rows.append([standing.algorithm, *cells(mine, cost), f"{longest:.1f}"])
    rows.append(["bound", *cells(bounds, bound), ""])
    rows.append(["bound for all", *cells(bounds, partial(bound, overall=True)), ""])
    table(f"{title}, at {' / '.join(budgets)} of the peak", ["algorithm", *map(name_of, graphs), "s"], rows)


def details(comparison: Comparison) -> None:
    """Print one table for each graph: cost, bound and seconds of every algorithm at every budget."""
    for graph in dict.fromkeys(cell.job.instance for cell in comparison):
        rows: dict[str, list[str]] = {}
        cells = [cell for cell in comparison if cell.job.instance == graph]
        for cell in cells:
            rows.setdefault(cell.job.algorithm, []).extend([cost(cell), bound(cell), f"{cell.answer.seconds:.1f}"])
        header = [f"{budget} {what}" for budget in dict.fromkeys(c.job.budget for c in cells) for what in COLUMNS]
        table(name_of(graph), ["algorithm", *header], [[name, *row] for name, row in rows.items()])


def run() -> None:
    """Print the tables."""
    for title, instances in (("Shipped and generated graphs", graphs()), ("REMAT_DATA", foreign())):
        if not instances:
            data_missing("shipped and generated graphs")
            continue
        comparison = compared(instances)
        summary(f"{title}: recomputation on task graphs, {LIMIT} s at most", comparison)
        sys.stdout.write(LEGEND)
        details(comparison)


if __name__ == "__main__":
    run()
