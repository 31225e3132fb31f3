"""Conversion of a choice of `poet`'s program to an ordered list of steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from remat.plugin import Number, Problem, StepBuilder, Steps
from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.offload.poet.program import Choice, Pager


@dataclass(slots=True)
class _Needs:
    """Frees after runs and at the ends of stages, and the useful paging.

    `useless` and `useless_beyond` are in the first and in the second memory from the start, and nothing uses them
    there.
    """

    free_after_run: dict[tuple[int, int], list[int]]
    free_at_end: dict[int, list[int]]
    out: dict[int, dict[int, bool]]
    back: dict[int, dict[int, bool]]
    useless: list[int]
    useless_beyond: list[int]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A run, a copy over a link, or a drop."""

    time: Number
    task: int | None = None
    link: int | None = None
    value: int = -1
    drop: list[int] = field(default_factory=list)


def steps_of(problem: Problem, front: Frontier, pager: Pager | None, choice: Choice) -> Steps:
    """List a choice's steps in the order in which they start if each stage waits for the one before.

    In a stage, the steps on one resource follow each other from the stage's start on, copies first. Placed in this
    order, each as early as possible, all end no later. Each value is freed after its last use, and useless paging is
    left out.
    """
    graph, machine = problem.graph, problem.machine
    home = machine.processors[0].memory
    # Values that a task writes and no task reads are not in the program.
    unread = [
        [
            v
            for v in dict.fromkeys(graph.writes[task].tolist())
            if v not in front.writes[position] and v not in graph.pinned
        ]
        for position, task in enumerate(front.tasks)
    ]
    needs = _needs(front, pager, choice, unread)
    timed: list[tuple[Number, int, _Entry]] = []
    begin: Number = 0
    for stage in range(front.stages):
        free: dict[int, Number] = {}
        for entry in _entries(front, pager, choice, needs, stage):
            link = 0 if entry.link is None or pager is None else machine.resource_of_link[entry.link]
            start = free.get(link, begin)
            free[link] = start + entry.time
            timed.append((start, len(timed), entry))
        begin = max([begin, *free.values()])
        if needs.free_at_end[stage]:
            timed.append((begin, len(timed), _Entry(0, drop=needs.free_at_end[stage])))
    builder = StepBuilder()
    if needs.useless:
        builder.drop(needs.useless, home)
    if needs.useless_beyond and pager is not None:
        builder.drop(needs.useless_beyond, pager.memory)
    for _, _, entry in sorted(timed, key=lambda item: item[:2]):
        if entry.task is not None:
            builder.run(entry.task, drop=entry.drop)
        elif entry.link is not None:
            ends = machine.links[entry.link]
            builder.copy(entry.value, ends.source, ends.target, drop=bool(entry.drop))
        else:
            builder.drop(entry.drop, home)
    return builder.build()


def _entries(front: Frontier, pager: Pager | None, choice: Choice, needs: _Needs, stage: int) -> Iterator[_Entry]:
    """Yield the copies and then the runs of a stage."""
    if pager is not None:
        for link, copies, times in (
            (pager.out, needs.out[stage], pager.out_time),
            (pager.back, needs.back[stage], pager.back_time),
        ):
            for value, last in copies.items():
                yield _Entry(times[value], link=link, value=value, drop=[value] if last else [])
    for position in range(front.end[stage] + 1):
        if (stage, position) in choice.runs:
            free = needs.free_after_run.get((stage, position), [])
            yield _Entry(front.time[position], task=front.tasks[position], drop=free)


def _needs(front: Frontier, pager: Pager | None, choice: Choice, unread: list[list[int]]) -> _Needs:
    """Go backwards through each value's lifetime.

    `out` and `back` map the values of each stage to whether the copy frees its source.
    """
    stages = range(front.stages)
    needs = _Needs({}, {stage: [] for stage in stages}, {s: {} for s in stages}, {s: {} for s in stages}, [], [])
    begin, stays = (frozenset[int](), frozenset[int]()) if pager is None else (pager.begin, pager.stays)
    for value in range(len(front.size)):
        touching = sorted({*front.makers[value], *front.users[value]})
        wanted, beyond = value in front.outputs, value in stays  # in the working memory; in the second one
        for stage in reversed(stages):
            arrives = wanted and (stage, value) in choice.back
            if arrives:
                needs.back[stage][value] = not beyond
                wanted, beyond = False, True
            leaves = beyond and (stage, value) in choice.out
            own = [position for position in touching if (stage, position) in choice.runs]
            if leaves:
                # If this stage reads it as well, it is freed when both are done.
                needs.out[stage][value] = not wanted and not own
                if not wanted and own:
                    needs.free_at_end[stage].append(value)
                wanted, beyond = True, False
            for position in reversed(own):
                if not wanted:
                    needs.free_after_run.setdefault((stage, position), []).append(value)
                wanted = value in front.reads[position] or (wanted and value not in front.writes[position])
        if value in front.inputs and not wanted:
            needs.useless.append(value)
        if value in begin and not beyond:
            needs.useless_beyond.append(value)
    for stage, position in choice.runs:
        needs.free_after_run.setdefault((stage, position), []).extend(unread[position])
    return needs
