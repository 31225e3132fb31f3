"""`remat.solve`: from an instance to a verified result. The one way through the house."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from remat.instance import load
from remat.plugin import registry
from remat.plugin.auto import choose
from remat.plugin.context import Context, Progress
from remat.plugin.options import make_options
from remat.solving.budget import Budget
from remat.solving.conclusion import conclude
from remat.solving.result import Result
from remat.solving.single import (
    AUTO_SECONDS,
    AnyInstance,
    AnyMachine,
    check_reach,
    make_problem,
    propose,
    read_seconds,
    read_whole,
    values_of,
)


def solve(
    instance: AnyInstance,
    *,
    algorithm: str = "auto",
    budget: Budget = None,
    machine: AnyMachine = None,
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> Result:
    """Solve an instance and verify the schedule.

    Parameters
    ----------
    instance : path, open file, dict or instance
    algorithm : str
        A registry name, or ``auto`` (see `remat.plugin.auto`).
    budget : int, str or mapping, optional
        Capacity of the first memory (of the first storage level, for an adjoint with storage), or of each
        named memory: ``8_000_000``, ``"8GB"``, ``{"host": "64GB"}`` (the name ``""`` is the first memory again).
        Numbers are in the instance's unit; ``"80%"`` is a share of what the memory holds at most when nothing is
        recomputed.
    machine : path, dict or MachineModel, optional
        Replaces the instance's machine.
    options : mapping, optional
        The algorithm's own (`remat algorithms NAME` lists them).
    time_limit : float or str, optional
        Seconds, or ``"30s"``; algorithms that are not anytime may overrun it. Default 60 s for ``auto``.
    seed, threads : int
    progress : callable, optional
        Receives `remat.plugin.context.Progress` while an anytime algorithm runs.

    Returns
    -------
    Result
        Infeasible and unknown are statuses, not exceptions.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used.
    remat.errors.ClaimError
        If the algorithm's schedule or claim does not survive verification (a bug in the algorithm).

    See Also
    --------
    remat.least_budget, remat.largest_batch, remat.sweep : questions that take many solves.
    """
    loaded = load(instance)
    problem = make_problem(loaded, budget=budget, machine=machine)
    solver = choose(problem) if algorithm == "auto" else registry.find(algorithm, problem.kind)
    check_reach(problem, solver)
    chosen = make_options(solver, options or {})
    limit = read_seconds(time_limit, default=AUTO_SECONDS if algorithm == "auto" else None)
    context = Context(
        deadline=None if limit is None else time.monotonic() + limit,
        seed=read_whole(seed, "seed", 0),
        threads=read_whole(threads, "threads", 1),
        listener=progress,
    )
    proposal, taken = propose(problem, solver, chosen, context)
    return conclude(problem, solver, proposal, values_of(chosen), seed=seed, solve_seconds=taken)
