"""Conditions on chains, which decide which algorithm applies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat_algorithms.kit.applicability import can_offload, has_parameters

if TYPE_CHECKING:
    from remat.plugin import Problem


MOST_STAGES = 1000
"""Number of stages above which chains are first solved by groups of stages."""

MOST_OFFLOADED = 200
"""Number of stages above which `remat-offload-best` has no time left after its first starting points."""

MOST_IN_TABLES = 2500
"""Maximum number of stages for which `rotor` also answers; beyond this, its tables would take gigabytes."""


def without_variants(problem: Problem) -> bool:
    """Whether a chain has no parameters, and one saving forward per stage."""
    if has_parameters(problem):
        return False
    chain = problem.chain
    return len(problem.graph.tasks) == (3 if chain.saves else 2) * chain.length + 1


def moderately_long(problem: Problem) -> bool:
    """Whether a chain without variants is short enough for searches beyond `rotor`."""
    return without_variants(problem) and problem.chain.length <= MOST_STAGES


def fits_tables(problem: Problem) -> bool:
    """Whether `rotor` ends in moderate time, and no other algorithm calls it anyway."""
    if has_parameters(problem) or moderately_long(problem):
        return False
    return problem.chain.length <= (MOST_IN_TABLES if without_variants(problem) else MOST_STAGES)


def stays(problem: Problem) -> bool:
    """Whether a chain has no parameters, and its values are not offloaded."""
    return not has_parameters(problem) and not offloads_in_graph(problem)


def variants_stay(problem: Problem) -> bool:
    """Whether the values of a long chain with variants stay: `rotor` takes long there."""
    return stays(problem) and not without_variants(problem) and problem.chain.length > MOST_STAGES


def stays_in_graph(problem: Problem) -> bool:
    """Whether values of a long chain, or of one with variants, stay: a search on the graph may find more than rotor."""
    return stays(problem) and not moderately_long(problem)


LEAST_HIERARCHY, LEAST_WITH_VARIANTS = 50, 20
"""Minimum number of stages for which options of parts of a chain may lead to better schedules than rotor's tables,
without and with variants.
"""


def stays_in_hierarchy(problem: Problem) -> bool:
    """Whether the values of a chain of moderate length stay."""
    least = LEAST_HIERARCHY if without_variants(problem) else LEAST_WITH_VARIANTS
    return stays(problem) and least <= problem.chain.length <= MOST_STAGES


def many_budgets(problem: Problem) -> bool:
    """Whether `rotor` answers questions about many budgets."""
    if has_parameters(problem):
        return False
    return problem.chain.length <= MOST_IN_TABLES or not without_variants(problem)


def offloads(problem: Problem) -> bool:
    """Whether values of a chain without variants can leave the device memory."""
    alone = problem.machine.processors[0].memory == 0 and can_offload(problem)
    return alone and moderately_long(problem) and problem.chain.length <= MOST_OFFLOADED


SOON_OFFLOADED = 50
"""Maximum number of stages for which the tables for chains soon lead to schedules as good as those on the graph."""

MOST_OFFLOADED_TASKS = 50_000
"""Number of tasks of a chain above which `dag-offload-best` has no time left after its first starting points."""


def offloads_in_graph(problem: Problem) -> bool:
    """Whether values of a chain can leave the device memory, with fixed locations of its inputs."""
    placed = not problem.graph.placeable and not problem.graph.parts and not problem.instance.is_stream
    return placed and can_offload(problem) and len(problem.graph.tasks) <= MOST_OFFLOADED_TASKS


MOST_JOINED = 2000
"""Maximum number of stages of joined chains for which `join-dp` takes little time to find that its tables are large."""


def few_joined(problem: Problem) -> bool:
    """Whether chains that join in one loss have few enough stages for a look at their tables."""
    length = problem.instance.length
    return length is not None and length <= MOST_JOINED


def offloads_otherwise(problem: Problem) -> bool:
    """Whether values of a longer chain, or one with variants, can leave the device memory."""
    short = offloads(problem) and problem.chain.length <= SOON_OFFLOADED
    return offloads_in_graph(problem) and not short


def parameters_stay(problem: Problem) -> bool:
    """Whether a chain has parameters with fixed locations that are not split among ranks."""
    graph = problem.graph
    return has_parameters(problem) and not (graph.parts or graph.placeable or problem.instance.is_stream)
