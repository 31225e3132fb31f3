"""Scopes: the classes of schedules for which claims hold, with their assumptions about the machine.

An algorithm's proofs cover the schedules that it models. An algorithm that uses a single memory or processor proves
nothing about schedules that use more. On a machine with more, this module narrows its claims. Therefore
`ALL_SCHEDULES` means all schedules on this machine.
"""

from __future__ import annotations

from dataclasses import replace

from remat.graph.machine import Machine
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal
from remat.plugin.registry import Algorithm

ONE_MEMORY = "in one memory"
"""Part of the scope of an algorithm that uses one memory of a machine with links."""

ONE_PROCESSOR = "on one processor"
"""Part of the scope of an algorithm that uses one of several processors."""


def scope_of(machine: Machine, solver: Algorithm, scope: str, *, of_memory: bool = False) -> str:
    """Return the name of a scope on a machine.

    Parameters
    ----------
    machine : Machine
    solver : Algorithm
    scope : str
        As the algorithm names it.
    of_memory : bool
        Whether the claim is about bytes alone, for example infeasibility. Runs that fit a memory simultaneously also
        fit sequentially. Therefore these claims hold for any number of processors that share a memory.
    """
    missing = _missing(machine, solver, of_memory=of_memory)
    missing = [limit for limit in missing if limit not in scope]
    if not missing:
        return scope
    if scope == ALL_SCHEDULES:
        return f"schedules {' and '.join(missing)}"
    return ", ".join([scope, *missing])


def speaks_for_all(machine: Machine, solver: Algorithm) -> bool:
    """Whether an algorithm's proofs over all schedules that it models hold for all schedules on this machine."""
    return not _missing(machine, solver, of_memory=False)


def _missing(machine: Machine, solver: Algorithm, *, of_memory: bool) -> list[str]:
    limits = []
    if machine.links and not solver.several_memories:
        limits.append(ONE_MEMORY)
    if len(machine.processors) > 1 and not solver.parallel:
        shared = len({processor.memory for processor in machine.processors}) == 1
        if not (of_memory and shared):
            limits.append(ONE_PROCESSOR)
    return limits


def scoped(problem: Problem, solver: Algorithm, proposal: Proposal) -> Proposal:
    """Return a proposal in which every scope is that of `scope_of`."""
    machine = problem.used.machine
    if speaks_for_all(machine, solver):
        return proposal

    def named(scope: str | None, *, of_memory: bool = False) -> str | None:
        return None if scope is None else scope_of(machine, solver, scope, of_memory=of_memory)

    return replace(
        proposal,
        bounds=tuple(replace(bound, scope=scope_of(machine, solver, bound.scope)) for bound in proposal.bounds),
        optimal_within=named(proposal.optimal_within),
        infeasible_within=named(proposal.infeasible_within, of_memory=True),
        least=None
        if proposal.least is None
        else replace(proposal.least, scope=named(proposal.least.scope, of_memory=True)),
    )
