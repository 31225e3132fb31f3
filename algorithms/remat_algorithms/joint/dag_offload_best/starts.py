"""Initial schedules of `dag-offload-best`, from other algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remat.plugin import Algorithm, Proposal, Steps, in_listed_order
from remat_algorithms.adjoint.catalogue import ALGORITHMS as ADJOINT
from remat_algorithms.dag.anytime.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag.catalogue import ALGORITHMS as KEEP_ALL
from remat_algorithms.dag.first_schedule import LARGE, report_first
from remat_algorithms.dag.order.catalogue import ALGORITHMS as ORDERS
from remat_algorithms.joint.adjoint_best.initial_schedules import judged
from remat_algorithms.joint.catalogue import ALGORITHMS as JOINT
from remat_algorithms.joint.dag_offload_best.bound import transfers_pay
from remat_algorithms.joint.dag_offload_best.incumbent import Best, Found
from remat_algorithms.joint.dag_offload_best.local_search import Walk
from remat_algorithms.joint.dag_offload_best.model import Runs, Setting
from remat_algorithms.joint.dag_offload_best.offload_priorities import taste_of_steps
from remat_algorithms.kit.delegation import asked
from remat_algorithms.offload.catalogue import ALGORITHMS as OFFLOAD

PROGRAMS = frozenset(["offload-exact", "poet"])
"""Algorithms to skip: their time is unpredictable."""

LAST = "capuchin"
"""The rule that takes longest and contributes most: it has the largest share of the time."""

INDIVIDUALS, INDIVIDUALS_WORK = 15, 2_000
"""Limits on the individuals of `swapadvisor`, a search itself: its first population, and fewer for large graphs."""

ROUNDS = 200
"""Rounds of `dag-auto`, so that its answer does not depend on the clock."""

ADJOINT_BEST = next(entry for entry in JOINT if entry.name == "adjoint-best")
WINDOWS = 20
"""Windows of the local search of `adjoint-best`, which has run all algorithms for adjoints before."""

CHECKPOINTS = ("revolve", "treeverse", "two-level")
"""Algorithms for adjoints without a search: the first one that finds a schedule gives the start of a long loop."""

Entries = list[tuple[Algorithm, Mapping[str, Any]]]


def first(setting: Setting, best: Best) -> None:
    """Give a quick first answer for a large instance."""
    problem, context = setting.problem, best.context
    if problem.kind != "adjoint" or len(problem.graph.tasks) < LARGE:
        report_first(problem, context)
        return
    known = {entry.name: entry for entry in ADJOINT}
    for name in CHECKPOINTS:
        proposal = None if best.best is not None else asked(known[name], problem, context)
        start = None if proposal is None else judged(problem, name, proposal)
        if start is not None:
            best.take(Found(start.steps, Runs(tuple(start.steps.runs.tolist()))), start.makespan, message=name)


def begin_with(steps: Steps | None, setting: Setting, best: Best, walk: Walk) -> None:
    """Start from a schedule that was known before the solve, if there is one and `walk` may run its order."""
    if steps is not None:
        _take(setting, best, walk, "known schedule", Proposal(steps=steps))


def orders(setting: Setting, best: Best, walk: Walk) -> Proposal | None:
    """Run the algorithms that only choose an order, if `walk` may run any, which is quick; see `rules`."""
    listed = (*KEEP_ALL, *ORDERS) if walk.reorder else KEEP_ALL
    return _ask(setting, best, walk, [(entry, {}) for entry in listed if setting.problem.kind in entry.cheap])


def rules(setting: Setting, best: Best, walk: Walk, rounds: int) -> Proposal | None:
    """Run all rules for offloading, and for adjoints `adjoint-best`, which runs all their algorithms.

    The result of `dag-offload-best` is then never slower than any of them.

    Parameters
    ----------
    setting : Setting
    best : Best
    walk : Walk
        Continues from their schedules.
    rounds : int
        Maximum rounds of algorithms that search themselves.

    Returns
    -------
    Proposal or None
        The first one that proves infeasibility in its class.
    """
    kind = setting.problem.kind
    entries: Entries = []
    if kind == "adjoint":
        entries.append((ADJOINT_BEST, {"iterations": min(WINDOWS, rounds), "work": 0}))
    few = min(INDIVIDUALS, rounds, INDIVIDUALS_WORK // max(1, len(setting.listed)))
    offload = [entry for entry in OFFLOAD if entry.name not in PROGRAMS and entry.accepts(kind)]
    for entry in sorted(offload, key=lambda entry: entry.name == LAST):
        entries.append((entry, {"iterations": few} if entry.name == "swapadvisor" else {}))
    return _ask(setting, best, walk, entries)


def alone(setting: Setting, best: Best, walk: Walk, rounds: int) -> Proposal | None:
    """Run the algorithm that only recomputes, unless it is proved to be no faster; see `rules`."""
    if not best.done and transfers_pay(setting, best):
        return None
    return _ask(setting, best, walk, [(entry, {"iterations": min(ROUNDS, rounds)}) for entry in DAG_AUTO])


def _ask(setting: Setting, best: Best, walk: Walk, entries: Entries) -> Proposal | None:
    none = None
    for number, (entry, given) in enumerate(entries):
        if best.done:
            break
        proposal = asked(entry, setting.problem, best.context, given, share=1 / (len(entries) - number + 1))
        if proposal is not None:
            _take(setting, best, walk, entry.name, proposal)
            none = proposal if none is None and proposal.infeasible_within is not None else none
    return none


def _take(setting: Setting, best: Best, walk: Walk, name: str, proposal: Proposal) -> None:
    """Take over the schedule of another algorithm, if `walk` may run its order, and try to improve its runs."""
    start = judged(setting.problem, name, proposal)
    if start is None or not (walk.reorder or in_listed_order(setting.graph, start.steps)):
        return
    runs = Runs(tuple(start.steps.runs.tolist()))
    best.take(Found(start.steps, runs), start.makespan, message=name)
    if best.done or not np.array_equal(np.unique(start.steps.runs), np.sort(setting.listed)):
        return
    if runs not in best.considered:
        best.consider_runs(runs, message=f"{name}'s runs")
    if best.attempt is None or start.makespan < best.attempt.makespan:
        taste = taste_of_steps(start.steps, setting.reads, len(setting.maker), setting.device)
        walk.settle(runs, taste)
