"""Check whether an algorithm supports the features of an instance, from its metadata, before it runs."""

from __future__ import annotations

from remat.errors import OptionError
from remat.instance.kinds import is_pipeline
from remat.plugin.problem import FOR_PARAMETERS, Problem
from remat.plugin.registry import Algorithm


def check_reach(problem: Problem, solver: Algorithm) -> None:
    """Reject an instance with features that an algorithm does not support, such as values that start in other memories.

    Parameters
    ----------
    problem : Problem
    solver : Algorithm

    Raises
    ------
    remat.OptionError
        Names the algorithm and the unsupported feature.
    """
    machine = problem.used.machine
    if is_pipeline(problem.instance) and problem.instance.cut and not solver.slices:
        raise OptionError(f"{solver.name!r} does not support sequences that are cut into slices", argument="algorithm")
    if _needs_streams(problem) and not solver.streams:
        what = "steps that follow each other" if problem.kind == "chain" else "streams of samples"
        raise OptionError(f"{solver.name!r} does not support {what} without end", argument="algorithm")
    if beyond := _of_devices(problem, solver):
        raise OptionError(f"{solver.name!r} supports no {beyond}", argument="algorithm")
    if solver.several_memories and not solver.any_links:
        for index, link in enumerate(machine.links):
            if (link.delay and link.source != link.target) or link.also:
                why = "transfers are delayed" if link.delay else "transfers occupy more than one channel"
                raise OptionError(
                    f"{solver.name!r} does not support links such as {machine.link_name(index)}, whose {why}",
                    argument="algorithm",
                )
    if solver.several_memories and not solver.ratios and problem.graph.ratios:
        name = problem.graph.described_value(min(problem.graph.ratios), repr)
        why = f"does not support values such as {name}, with their own ratio"
        raise OptionError(f"{solver.name!r} {why}", argument="algorithm")
    if solver.several_memories or len(machine.memories) == 1:
        return
    graph, first, own = problem.graph, machine.memories[0].name, machine.memories[machine.processors[0].memory].name
    begin = {(place.value, place.memory or first) for place in graph.inputs}
    end = {(place.value, place.memory or first) for place in graph.outputs}
    for value, memory in sorted(begin | end):
        if memory != own and ((value, memory) not in begin or (value, own) not in begin):
            hint = FOR_PARAMETERS if problem.instance.has_parameters else ""
            raise OptionError(
                f"{solver.name!r} works only in memory {own!r}, but {graph.values[value]!r} is in {memory!r}{hint}",
                argument="algorithm",
            )


def _needs_streams(problem: Problem) -> bool:
    """Whether samples or training steps follow each other without end; pipelines select algorithms by their weights."""
    return problem.instance.samples_seen is not None or (problem.kind == "chain" and problem.instance.is_stream)


def _of_devices(problem: Problem, solver: Algorithm) -> str:
    """Name a device feature of the instance that the algorithm does not support; empty if it supports all."""
    for memory in problem.used.machine.memories:
        if memory.static and not solver.devices:
            return f"memory such as {memory.name!r}, which has static bytes"
    if problem.kind not in ("dag", "chain"):
        return ""
    known = solver.ranks if problem.kind == "chain" else solver.devices
    graph = problem.graph
    if graph.parts and not (solver.collectives or (known and problem.kind == "chain")):
        return f"task such as {graph.described(min(graph.parts), repr)}, which is a collective of several memories"
    if known:
        return ""
    if graph.times is not None:
        task = next(task for task, one in enumerate(problem.instance.tasks) if isinstance(one.time, dict))  # type: ignore[union-attr]
        return f"task such as {graph.described(task, repr)}, whose time depends on the type of the processor"
    if graph.tied:
        return f"task such as {graph.described(min(graph.tied), repr)}, which is tied to processors"
    if graph.placeable and not solver.open_places:
        return f"input such as {graph.values[graph.placeable[0].value]!r}, whose place is the schedule's choice"
    return ""
