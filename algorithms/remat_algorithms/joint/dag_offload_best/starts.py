"""Starts of `dag-offload-best`: what other algorithms do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remat.plugin import Algorithm, Proposal
from remat_algorithms.dag.anytime.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag.catalogue import ALGORITHMS as KEEP_ALL
from remat_algorithms.dag.order.catalogue import ALGORITHMS as ORDERS
from remat_algorithms.joint.adjoint_best.starts import judged
from remat_algorithms.joint.catalogue import ALGORITHMS as JOINT
from remat_algorithms.joint.dag_offload_best.best import Best, Found
from remat_algorithms.joint.dag_offload_best.bound import transfers_pay
from remat_algorithms.joint.dag_offload_best.setting import Runs, Setting
from remat_algorithms.joint.dag_offload_best.taste import taste_of_steps
from remat_algorithms.joint.dag_offload_best.walk import Walk
from remat_algorithms.kit.asking import asked
from remat_algorithms.offload.catalogue import ALGORITHMS as OFFLOAD

PROGRAMS = frozenset(["offload-exact", "poet"])
"""They are not asked: their time is anything."""

SLOW = frozenset(["capuchin"])
"""Rules that take about as long as everything else here."""

SEARCHING = {"swapadvisor": {"generations": 3}}
"""Options of rules that search for long otherwise."""

ROUNDS = 200
"""Rounds of `dag-auto`, so that its answer does not depend on the clock."""

ADJOINT_BEST = next(entry for entry in JOINT if entry.name == "adjoint-best")
WINDOWS = 20
"""Windows of the local search of `adjoint-best`, which has asked all algorithms for adjoints before."""

Entries = list[tuple[Algorithm, Mapping[str, Any]]]


def quick(setting: Setting, best: Best, walk: Walk) -> Proposal | None:
    """Ask the algorithms that take next to no time: what an order alone is worth, and most rules; see `others`."""
    entries: Entries = [(entry, {}) for entry in (*KEEP_ALL, *ORDERS) if setting.problem.kind in entry.cheap]
    return _ask(setting, best, walk, [*entries, *_rules(slow=False)])


def others(setting: Setting, best: Best, walk: Walk, rounds: int) -> Proposal | None:
    """Ask the other algorithms that search little: none of them is quicker then.

    Parameters
    ----------
    setting : Setting
    best : Best
    walk : Walk
        Goes on from what they find.
    rounds : int
        Of `adjoint-best`, at most.

    Returns
    -------
    Proposal or None
        Of one that proved that there is no schedule, in its class.
    """
    entries = _rules(slow=True)
    if setting.problem.kind == "adjoint":
        entries.insert(0, (ADJOINT_BEST, {"iterations": min(WINDOWS, rounds), "work": 0}))
    return _ask(setting, best, walk, entries)


def alone(setting: Setting, best: Best, walk: Walk, rounds: int) -> Proposal | None:
    """Ask the algorithm that only makes values again, unless it is proved that it is no quicker; see `others`."""
    if not best.done and transfers_pay(setting, best):
        return None
    return _ask(setting, best, walk, [(entry, {"iterations": min(ROUNDS, rounds)}) for entry in DAG_AUTO])


def _rules(*, slow: bool) -> Entries:
    """Return the algorithms that only offload, or follow a rule; those that are slow, or the others."""
    entries = [entry for entry in OFFLOAD if entry.name not in PROGRAMS and (entry.name in SLOW) == slow]
    return [(entry, SEARCHING.get(entry.name, {})) for entry in entries]


def _ask(setting: Setting, best: Best, walk: Walk, entries: Entries) -> Proposal | None:
    none = None
    for number, (entry, given) in enumerate(entries):
        if best.done:
            break
        if entry.accepts(setting.problem.kind):
            proposal = asked(entry, setting.problem, best.context, given, share=1 / (len(entries) - number + 2))
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
