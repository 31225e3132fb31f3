"""From the steps of an adjoint's schedule to the events of `remat.bridges.checkpoint_schedules.actions`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from remat.bridges.checkpoint_schedules.actions import Advance, Back, Event, Free, Read, Tape, Write
from remat.errors import OptionError
from remat.graph.names import NumberedNames
from remat.schedule.operations import Layout
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.solving.result import Result


def layout_of(result: Result) -> Layout | None:
    """Return the numbering of a result's tasks; None if they are not those of an adjoint.

    A chain is equivalent to an adjoint if each backward reads only its tape.
    """
    graph = result.graph
    loss = graph.tasks.find("loss") if isinstance(graph.tasks, NumberedNames) else None
    if loss is None:
        return None
    stages = len(graph.tasks) - 1 - loss
    taped = loss > stages
    # What B1..BL read: y_1..y_L, and x_0..x_{L-1} or s_1..s_L, which come right behind the x.
    backwards = np.arange(loss + 1, loss + 1 + stages)
    reads = graph.reads.gather(backwards)
    other = np.arange(stages) + (stages + 1 if taped else 0)
    gradients = (2 * stages if taped else stages) + 2 + np.arange(stages)
    expected = np.sort(
        np.concatenate(
            (np.arange(stages) * len(graph.values) + other, np.arange(stages) * len(graph.values) + gradients)
        )
    )
    found = np.sort(reads.rows * len(graph.values) + reads.items)
    if not np.array_equal(expected, found):
        return None
    return Layout(stages, taped, shared=len(result.machine.memories) == 1)


class Walker:
    """Iterator over the steps of a schedule that tracks the live state, and checkpoints in a single memory.

    Parameters
    ----------
    layout : Layout
    memories : list of str
        Names; the first is the working memory.
    """

    def __init__(self, layout: Layout, memories: list[str]) -> None:
        self._layout = layout
        self._memories = memories
        self._live: int | None = 0
        self._kept: set[int] = set()
        self._tape: int | None = None
        self._kept_tapes: set[int] = set()

    def walk(self, steps: Steps) -> Iterator[Event]:
        """Yield the events of a list of steps.

        Raises
        ------
        remat.OptionError
            For steps that no action of the package can express.
        """
        columns = zip(
            steps.kind.tolist(),
            steps.item.tolist(),
            steps.source.tolist(),
            steps.target.tolist(),
            steps.amount.tolist(),
            steps.drop.to_lists(),
            strict=True,
        )
        for kind, item, source, target, amount, drop in columns:
            if kind == StepKind.RUN:
                yield from self._run(item, drop)
            elif kind == StepKind.COPY:
                yield from self._copy(item, source, target, amount, bool(drop))
            else:
                for value in drop:
                    yield from self._free(value, source)

    def _run(self, task: int, drop: list[int]) -> Iterator[Event]:
        stages, taped = self._layout.stages, self._layout.taped
        loss = 2 * stages if taped else stages
        if task < stages:
            yield from self._start(task, drop)
            yield Advance(task, task + 1)
            self._live = task + 1
        elif task < loss:
            yield from self._make_tape(task - stages, drop)
        elif task > loss or not taped:
            step = stages if task == loss else task - loss - 1
            if taped:
                yield from self._use_tape(step, drop)
            else:
                yield from self._start(step, drop)
                yield Tape(step)
                self._live = None
            yield Back(step)
        for value in drop:
            yield from self._free(value, 0)

    def _start(self, state: int, drop: list[int]) -> Iterator[Event]:
        """Yield the events by which a run obtains its state, and record whether the state stays."""
        yield from self._settle_tape()
        level = self._memories[0]
        if self._live != state:
            if state not in self._kept:
                raise OptionError(f"x{state} is used where it is not the live state; checkpoint_schedules has one")
            yield Read(state, level)
            self._live = state
        if state not in drop and state not in self._kept:
            self._keep(f"x{state}")
            self._kept.add(state)
            yield Write(state, level)

    def _make_tape(self, step: int, drop: list[int]) -> Iterator[Event]:
        yield from self._start(step, drop)
        self._live = step + 1
        if self._layout.stages + 1 + step in drop:  # for its output only
            yield Advance(step, step + 1)
        else:
            yield Tape(step)
            self._tape = step

    def _use_tape(self, step: int, drop: list[int]) -> Iterator[Event]:
        if self._tape == step:
            self._tape = None
        else:
            yield from self._settle_tape()
            if step not in self._kept_tapes:
                raise OptionError(f"the tape s{step + 1} is used where it is not in working memory")
            yield Read(step, self._memories[0], tape=True)

    def _settle_tape(self) -> Iterator[Event]:
        """Turn a tape that is still present when another task runs into a checkpoint in the single memory."""
        if self._tape is not None:
            step, self._tape = self._tape, None
            self._keep(f"s{step + 1}")
            self._kept_tapes.add(step)
            yield Write(step, self._memories[0], tape=True)

    def _keep(self, name: str) -> None:
        if not self._layout.shared:
            raise OptionError(
                f"{name} stays in the working memory while other steps run; checkpoint_schedules knows checkpoints in "
                "storage levels only"
            )

    def _copy(self, value: int, source: int, target: int, amount: int, frees: bool) -> Iterator[Event]:
        step, tape = self._stored(value)
        if step is None or amount != WHOLE or 0 not in (source, target):
            raise OptionError("checkpoint_schedules moves whole states and tapes to and from the working memory only")
        level = self._memories[target or source]
        if source == 0:
            if not tape and self._live != step:
                raise OptionError(f"x{step} is stored where it is not the live state")
            if not tape:
                yield from self._settle_tape()
            elif self._tape == step:
                self._tape = None
            yield Write(step, level, tape)
            if frees and not tape:
                self._live = None
            return
        yield from self._settle_tape()
        yield Read(step, level, tape, last=frees)
        if tape:
            self._tape = step
        else:
            self._live = step

    def _free(self, value: int, memory: int) -> Iterator[Event]:
        step, tape = self._stored(value)
        if step is None:
            return
        if memory:
            yield Free(step, self._memories[memory], tape)
        elif tape:
            if step in self._kept_tapes:
                self._kept_tapes.remove(step)
                yield Free(step, self._memories[0], tape=True)
        else:
            if step in self._kept:
                self._kept.remove(step)
                yield Free(step, self._memories[0])
            elif step == self._live:
                self._live = None

    def _stored(self, value: int) -> tuple[int | None, bool]:
        """Return the number of a state or of a tape; None for adjoints."""
        stages = self._layout.stages
        if value <= stages:
            return value, False
        if self._layout.taped and value <= 2 * stages:
            return value - stages - 1, True
        return None, False
