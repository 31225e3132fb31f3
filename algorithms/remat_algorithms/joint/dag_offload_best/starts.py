"""Starts of `dag-offload-best`: what other algorithms do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remat.plugin import Algorithm, Proposal
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
"""They are not asked: their time is anything."""

LAST = "capuchin"
"""The rule that takes longest, and is worth most: it has the largest share of the time."""

INDIVIDUALS, INDIVIDUALS_WORK = 15, 2_000
"""Individuals of `swapadvisor`, a search itself: its first population, or fewer for large graphs."""

ROUNDS = 200
"""Rounds of `dag-auto`, so that its answer does not depend on the clock."""

ADJOINT_BEST = next(entry for entry in JOINT if entry.name == "adjoint-best")
WINDOWS = 20
"""Windows of the local search of `adjoint-best`, which has asked all algorithms for adjoints before."""

CHECKPOINTS = ("revolve", "treeverse", "two-level")
"""Algorithms for adjoints that search nothing: the first one that finds a schedule is the start of a long one."""

Entries = list[tuple[Algorithm, Mapping[str, Any]]]


def first(setting: Setting, best: Best) -> None:
    """Have an answer to a large instance before anything that takes long, such as the plans of the listed order."""
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


def orders(setting: Setting, best: Best, walk: Walk) -> Proposal | None:
    """Ask the algorithms that only look for an order, which takes next to no time; see `rules`."""
    entries: Entries = [(entry, {}) for entry in (*KEEP_ALL, *ORDERS) if setting.problem.kind in entry.cheap]
    return _ask(setting, best, walk, entries)


def rules(setting: Setting, best: Best, walk: Walk, rounds: int) -> Proposal | None:
    """Ask all rules for offloading, and the search that asks all algorithms for adjoints: none of them is quicker then.

    Parameters
    ----------
    setting : Setting
    best : Best
    walk : Walk
        Goes on from what they find.
    rounds : int
        Of those that search themselves, at most.

    Returns
    -------
    Proposal or None
        Of one that proved that there is no schedule, in its class.
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
    """Ask the algorithm that only makes values again, unless it is proved that it is no quicker; see `rules`."""
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
    """Take the schedule of another algorithm, and see whether something better can be made of its runs."""
    start = judged(setting.problem, name, proposal)
    if start is None:
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
