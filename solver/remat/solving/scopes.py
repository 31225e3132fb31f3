"""Scopes: the classes of schedules for which claims hold, with what they take for granted on this machine."""

from __future__ import annotations

from dataclasses import replace

from remat.graph.machine import Machine
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal
from remat.plugin.registry import Algorithm

ONE_MEMORY = "in one memory"
"""What scopes say of an algorithm that uses one memory only, where the machine has links to others."""


def scope_of(machine: Machine, solver: Algorithm, scope: str) -> str:
    """Return a scope as it reads on a machine.

    A class that an algorithm searches in one memory is no longer the same class where values could leave it.
    """
    alone = solver.several_memories or not machine.links
    if scope == ALL_SCHEDULES or alone or ONE_MEMORY in scope:
        return scope
    return f"{scope}, {ONE_MEMORY}"


def scoped(problem: Problem, solver: Algorithm, proposal: Proposal) -> Proposal:
    """Return a proposal in which every scope is that of `scope_of`."""
    if solver.several_memories or not problem.machine.links:
        return proposal

    def named(scope: str | None) -> str | None:
        return None if scope is None else scope_of(problem.machine, solver, scope)

    return replace(
        proposal,
        bounds=tuple(replace(bound, scope=scope_of(problem.machine, solver, bound.scope)) for bound in proposal.bounds),
        optimal_within=named(proposal.optimal_within),
        infeasible_within=named(proposal.infeasible_within),
        least=None if proposal.least is None else replace(proposal.least, scope=named(proposal.least.scope)),
    )
