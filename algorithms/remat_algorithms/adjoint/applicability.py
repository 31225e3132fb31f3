"""Conditions under which each algorithm for adjoints applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remat.plugin import Problem


MODERATE_STEPS = 2000
"""Maximum number of steps for which all methods search for the best schedule."""


def uniform_adjoint(problem: Problem) -> bool:
    """Whether all steps are equal."""
    return problem.instance.has_equal_steps


def unequal_in_one_memory(problem: Problem) -> bool:
    """Whether steps differ, and one memory holds everything: no table over few states gives the optimum."""
    return not uniform_adjoint(problem) and len(problem.machine.memories) == 1


def shared_equal_sizes(problem: Problem) -> bool:
    """Whether states and adjoints of one size share one memory, and a table over them takes at most seconds."""
    chain = problem.chain
    sizes = {*chain.activation_size.tolist(), *chain.gradient_size.tolist()}
    simple = len(problem.machine.memories) == 1 and len(sizes) == 1 and not chain.saves
    return simple and (uniform_adjoint(problem) or moderate_table(problem))


def levels(problem: Problem) -> bool:
    """Whether a table over levels, slots and steps pays, and takes at most seconds."""
    chain, machine = problem.chain, problem.machine
    levels = machine.memories[1:]
    if not levels or chain.saves or not uniform_adjoint(problem) or chain.length == 0:
        return False
    links = [machine.links[link] for link in machine.link_index.values()]
    synchronous = all(resource == 0 for resource in machine.resource_of_link)
    starred = all({(0, k), (k, 0)} <= machine.link_index.keys() for k in range(1, len(machine.memories)))
    costly = any(link.latency or link.bandwidth is not None for link in links)
    state = max(1, int(chain.activation_size.max()))
    room = [chain.length if m.capacity is None else min(chain.length, m.capacity // state) for m in levels]
    work = chain.length**2 * (sum(room) + 1)
    return synchronous and starred and any(room) and (costly or len(levels) > 1) and work <= 2e10


def one_free_level(problem: Problem) -> bool:
    """Whether equal steps have one place for free checkpoints: then Revolve's closed form is optimal."""
    machine, chain = problem.machine, problem.chain
    free = not any(link.latency or link.bandwidth is not None for link in machine.links)
    return uniform_adjoint(problem) and len(machine.memories) == 2 and free and not chain.saves


def levels_without_table(problem: Problem) -> bool:
    """Whether equal steps have several levels, and a table over them does not pay, or does not apply."""
    several = len(problem.machine.memories) > 2 and not problem.chain.saves and not starts_elsewhere(problem)
    return uniform_adjoint(problem) and several and not levels(problem)


def long_levels(problem: Problem) -> bool:
    """Whether equal steps have several levels that occupy the processor, and a table over them does not pay."""
    return levels_without_table(problem) and not any(problem.machine.resource_of_link)


def slots_of_one_size(problem: Problem) -> bool:
    """Whether states of one size go to one level, overlapped with computation, in a table of moderate size."""
    chain, machine = problem.chain, problem.machine
    sizes = set(chain.activation_size.tolist())
    alone = len(machine.memories) == 2 and not chain.saves and not any(machine.resource_of_link)
    return alone and len(sizes) == 1 and moderate_table(problem)


def starts_elsewhere(problem: Problem) -> bool:
    """Whether the first memory is not the processor's."""
    return problem.machine.processors[0].memory != 0


def moderate_table(problem: Problem) -> bool:
    """Whether a table over (steps x steps x slots) takes at most seconds and 2 GB."""
    chain, machine = problem.chain, problem.machine
    state = max(1, int(chain.activation_size.max()))
    capacity = machine.memories[-1 if len(machine.memories) == 1 else 1].capacity
    slots = chain.length if capacity is None else min(chain.length, capacity // state)
    work = chain.length**2 * (slots + 2)
    return slots >= 1 and chain.length * work <= 4e9 and 8 * work <= 2e9


def fits_whole(problem: Problem) -> bool:
    """Whether all states fit at once, into the storage or into the one memory; then no recomputation is needed."""
    if problem.instance.has_parameters:
        return False
    chain, machine = problem.chain, problem.machine
    states = chain.activation_size.tolist()
    if len(machine.memories) > 1:
        capacity = machine.memories[1].capacity
        times = [machine.links[link].latency for link in machine.link_index.values()]
        free = not any(times) and all(link.bandwidth is None for link in machine.links)
        # If checkpoints cost time, recomputation with fewer of them may be faster.
        return free and not chain.saves and (capacity is None or sum(states[:-1]) <= capacity)
    if problem.budget is None:
        return not chain.saves
    gradient = max(0, int(chain.gradient_size.max()) - min(states))
    return not chain.saves and chain.static_memory + sum(states) + gradient <= problem.budget


def moderate(problem: Problem) -> bool:
    """Whether there are few enough steps for all methods to search for the best schedule."""
    return problem.chain.length <= MODERATE_STEPS and not starts_elsewhere(problem)


def many_steps(problem: Problem) -> bool:
    """Whether there are more steps than that."""
    return problem.chain.length > MODERATE_STEPS and not starts_elsewhere(problem)


LEAST_HIERARCHY, MOST_HIERARCHY = 100, 500
"""Numbers of steps between which options of parts of a loop may lead to better schedules than tables: shorter loops
have tables with tapes, and too many levels of longer ones take their options from few schedules.
"""


def tapes_in_hierarchy(problem: Problem) -> bool:
    """Whether states and tapes of a loop of moderate length share one memory."""
    alone = len(problem.machine.memories) == 1 and bool(problem.chain.saves)
    return alone and LEAST_HIERARCHY < problem.chain.length <= MOST_HIERARCHY
