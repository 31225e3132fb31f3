"""Starts of `dag-offload-best`: what other algorithms do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from remat.plugin import Algorithm
from remat_algorithms.dag.anytime.catalogue import ALGORITHMS as DAG_AUTO
from remat_algorithms.dag.catalogue import ALGORITHMS as KEEP_ALL
from remat_algorithms.dag.order.catalogue import ALGORITHMS as ORDERS
from remat_algorithms.joint.adjoint_best.starts import judged
from remat_algorithms.joint.dag_offload_best.best import Best, Found
from remat_algorithms.joint.dag_offload_best.setting import Runs, Setting
from remat_algorithms.kit.asking import asked
from remat_algorithms.offload.catalogue import ALGORITHMS as OFFLOAD

PROGRAMS = frozenset(["offload-exact", "poet"])
"""They are not asked: their time is anything."""

SEARCHING = {"swapadvisor": {"generations": 3}}
"""Options of rules that search for long otherwise."""

ROUNDS = 200
"""Rounds of `dag-auto`, so that its answer does not depend on the clock."""


def others(setting: Setting, best: Best, rounds: int) -> None:
    """Ask the algorithms that search little, and those that only make values again: none of them is quicker then.

    Parameters
    ----------
    setting : Setting
    best : Best
    rounds : int
        Of `dag-auto`, at most.
    """
    entries = [(entry, SEARCHING.get(entry.name, {})) for entry in OFFLOAD if entry.name not in PROGRAMS]
    entries += [(entry, {"iterations": min(ROUNDS, rounds)}) for entry in DAG_AUTO]
    entries += [(entry, {}) for entry in (*KEEP_ALL, *ORDERS) if setting.problem.kind in entry.cheap]
    for number, (entry, given) in enumerate(entries):
        if best.done:
            return
        if entry.accepts(setting.problem.kind) and (entry.several_memories or not setting.elsewhere):
            _ask(setting, best, entry, given, share=1 / (len(entries) - number + 2))


def _ask(setting: Setting, best: Best, entry: Algorithm, given: Mapping[str, Any], share: float) -> None:
    """Take the schedule of another algorithm, and see whether something better can be made of its runs."""
    proposal = asked(entry, setting.problem, best.context, given, share=share)
    start = None if proposal is None else judged(setting.problem, entry.name, proposal)
    if start is None:
        return
    runs = Runs(tuple(start.steps.runs.tolist()))
    best.take(Found(start.steps, runs), start.makespan, message=entry.name)
    if best.done or not np.array_equal(np.unique(start.steps.runs), np.sort(setting.listed)):
        return
    best.consider_runs(runs, message=f"{entry.name}'s runs")
