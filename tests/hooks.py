"""Algorithms with sound and faulty sweep hooks, and an erratic heuristic, for tests of sweeps."""

import signal

from pydantic import Field

from remat.plugin import registry
from remat.plugin.options import Options
from remat.plugin.problem import Problem
from remat.plugin.proposal import Proposal
from remat.plugin.registry import Algorithm
from remat.solving.conclusion import conclude
from remat.solving.result import Result
from remat_algorithms.chain.rotor import rotor
from remat_algorithms.dag import keep_all


class Swept(Options):
    """Options of `swept`: those of rotor, and one with the name of a question."""

    slots: int | None = Field(None, description="not used")
    gap: None = Field(None, description="as rotor's")


class Own(Options):
    """An option that is also a question."""

    max_overhead: int = Field(7, description="this algorithm's own")


def solve(problem, options, context):
    return rotor.solve(problem, options, context)


def capped(problem: Problem, budget):
    return problem.on(problem.machine.with_capacities({problem.machine.memories[0].name: budget}))


def verified(problem, proposal) -> Result:
    return conclude(problem, SWEPT, proposal, {})


def sweep(problem, options, context, budgets):
    """Answer by solving: each budget, or from the top down just below the peak before."""
    assert problem.budget is None
    assert list(budgets) == sorted(budgets, reverse=True)
    for budget in budgets:
        yield solve(capped(problem, budget), options, context)
    budget = None
    while not budgets:
        proposal = solve(capped(problem, budget), options, context)
        yield proposal
        if proposal.steps is None:
            return
        # The true breakpoint: the minimum-peak schedule of this makespan.
        found = verified(problem, proposal)
        budget = found.peak_memory["memory"] - 1
        while (
            better := verified(capped(problem, budget), solve(capped(problem, budget), options, context))
        ).makespan == (found.makespan):
            yield Proposal(steps=better.columns)
            budget = better.peak_memory["memory"] - 1


def interrupted(problem, options, context, budgets):
    """Be interrupted after three answers."""
    for k, proposal in enumerate(sweep(problem, options, context, budgets)):
        if k == 3:
            signal.raise_signal(signal.SIGINT)
            assert context.stopped
            return
        yield proposal


def lying(problem, options, context, budgets):
    """Claim too much."""
    yield Proposal(steps=keep_all.solve(problem, None, context).steps, makespan=0)


def short(problem, options, context, budgets):
    """Stop after the first answer without a request."""
    yield solve(problem, options, context)


def frugal(problem, options, context):
    """A heuristic: rotor without proofs, which finds no schedule below twice the minimum budget."""
    proposal = rotor.solve(problem, rotor.RotorOptions(), context)
    if proposal.steps is None:
        return Proposal(termination=context.termination)
    return Proposal(steps=proposal.steps)


def own(problem, options, context):
    return keep_all.solve(problem, None, context)


def entry(name, hook="", solver="solve", guarantee="exact", options="Swept", **more):
    return Algorithm(
        name=name,
        solver=f"{__name__}:{solver}",
        sweep=hook and f"{__name__}:{hook}",
        options=options and f"{__name__}:{options}",
        kinds=("chain",),
        summary="a fake",
        guarantee=guarantee,
        within="memory-persistent schedules",
        **more,
    )


SWEPT = entry("swept", "sweep")
FAKES = {
    algorithm.name: algorithm
    for algorithm in (
        SWEPT,
        entry("unswept"),
        entry("swept-interrupted", "interrupted"),
        entry("swept-lying", "lying"),
        entry("swept-short", "short"),
        entry("frugal", solver="frugal", guarantee="heuristic", options=""),
        entry("own-options", solver="own", guarantee="heuristic", options="Own"),
    )
}


def register(monkeypatch, **more):
    """Add the fakes to the registry."""
    known = dict(registry._registered()) | FAKES | more
    monkeypatch.setattr(registry, "_registered", lambda: known)
