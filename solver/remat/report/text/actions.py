"""A chain's or adjoint's schedule as the actions of the literature: advance, checkpoint, restore.

Each line has one action. State k is the value ``x{k}``, the input of stage k+1. The next forward starts from the
*current* state: the initial state, the output of the latest forward, or the restored state.

====================================== ==========================================================================
``advance I -> J``                     run F{I+1} .. F{J}; I is the current state, J becomes it
``save I``                             run Fe{I}, the forward that saves what B{I} reads; state I becomes current;
                                       ``save I.V``, ``backward I.V``: variant V of stage I
``loss``                               run the loss
``backward I``                         run B{I}
``update I``                           run U{I}, the update of the parameters of stage I
``gather I``, ``exchange I``           run P{I}: parameters of stage I, from all ranks; run A{I}: its gradients (and
                                       others that go with them), with all ranks
``checkpoint V``                       the state V stays in memory while the forward continues without saving
``checkpoint V to LEVEL``              copy V from working memory to another memory
``restore V``                          go back to the state V, which is in working memory
``restore V from LEVEL``               copy V from another memory to working memory
``discard V``                          free the checkpoint V; before the action that starts from V, this is its
                                       last use
``discard V from LEVEL``               free V in another memory
``move V from LEVEL to LEVEL``         copy V between two memories other than the working memory
====================================== ==========================================================================

Names of stages follow in parentheses: ``backward 14 (13:Bottleneck)``.
`checkpoint`, `restore` and `move` of a part end in ``(N bytes)``. Consecutive advances are one line. In classical
adjoints, tasks have no saving forward. A backward then starts from a state, like a forward, and follows a `restore` if
this state is not current. Frees of values that are not checkpoints are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator

from remat.errors import OptionError
from remat.graph.taskgraph import TaskGraph
from remat.report.text.readable_names import shown_name
from remat.report.views.task_index_ranges import ChainLayout
from remat.schedule.steps import WHOLE, StepKind, Steps
from remat.solving.result import Result

_OF_PARAMETERS = {"U": "update", "P": "gather", "A": "exchange"}
"""Actions on parameters, by the first letter of the task."""


def actions(result: Result) -> Iterator[str]:
    """Yield the actions of a schedule, one line each (see this module for their grammar).

    Parameters
    ----------
    result : Result
        The result of a `chain` or `adjoint`; without a schedule there are no lines.

    Raises
    ------
    OptionError
        For other kinds.
    """
    layout = ChainLayout.of(result.graph)
    if layout is None:
        raise OptionError("actions describe chains and adjoints only; this schedule is of another kind")
    if result.columns is None:
        return iter(())
    working = result.machine.processors[0].memory
    memories = tuple(memory.name for memory in result.machine.memories)
    return _Teller(layout, working, memories, result.graph).tell(result.columns)


def _stage_of(name: str) -> int:
    """Return the stage (0-based) of ``7`` or ``7.2``."""
    return int(name.partition(".")[0]) - 1


class _Teller:
    """Generator of actions that tracks the current state, the checkpoints, and the open advance."""

    def __init__(self, layout: ChainLayout, working: int, memories: tuple[str, ...], graph: TaskGraph) -> None:
        self._layout = layout
        self._working = working
        self._memories = memories
        self._values = graph.values
        self._tasks = graph.tasks
        self._graph = graph
        self._current: int | None = 0
        self._kept: set[int] = set()
        self._advance: tuple[int, int] | None = None

    def tell(self, steps: Steps) -> Iterator[str]:
        drops = steps.drop.to_lists()
        columns = zip(
            steps.kind.tolist(),
            steps.item.tolist(),
            steps.source.tolist(),
            steps.target.tolist(),
            steps.amount.tolist(),
            drops,
            strict=True,
        )
        for kind, item, source, target, amount, drop in columns:
            if kind == StepKind.RUN:
                yield from self._run(item, drop)
            elif kind == StepKind.COPY:
                yield from self._flush()
                yield from self._copy(item, source, target, amount, bool(drop))
            else:
                yield from self._drop(drop, source)
        yield from self._flush()

    def _flush(self) -> Iterator[str]:
        if self._advance is not None:
            first, last = self._advance
            self._advance = None
            yield f"advance {first} -> {last}{self._own(first, last - 1)}"

    def _own(self, first: int, last: int) -> str:
        """Return the user's names of stages (tasks), if any, for the end of a line."""
        names = [shown_name(name) for task in (first, last) if (name := self._graph.module(task))]
        return f" ({' to '.join(dict.fromkeys(names))})" if names else ""

    def _run(self, task: int, drop: list[int]) -> Iterator[str]:
        length, loss = self._layout.length, self._layout.loss
        if task < length:
            yield from self._forward(task, drop)
            return
        yield from self._flush()
        if task < loss:
            name = self._tasks[task].removeprefix("Fe")
            stage = _stage_of(name)
            yield from self._start_from(stage, drop, keeps=False)
            self._current = stage + 1
            yield f"save {name}{self._own(task, task)}"
        elif task == loss:
            yield from self._start_from(length, drop, keeps=False)
            yield "loss"
        elif self._tasks[task][0] in _OF_PARAMETERS:
            yield f"{_OF_PARAMETERS[self._tasks[task][0]]} {self._tasks[task][1:]}{self._own(task, task)}"
        else:
            name = self._tasks[task].removeprefix("B")
            if not self._layout.saves:
                yield from self._start_from(_stage_of(name), drop, keeps=False)
            yield f"backward {name}{self._own(task, task)}"
        yield from self._discard(drop)

    def _forward(self, stage: int, drop: list[int]) -> Iterator[str]:
        restarts = self._current != stage
        keeps = stage not in drop and stage not in self._kept
        consumed = stage in drop and stage in self._kept
        if restarts or keeps or consumed:
            yield from self._flush()
        yield from self._start_from(stage, drop, keeps=True)
        first = stage if self._advance is None else self._advance[0]
        self._advance = (first, stage + 1)
        self._current = stage + 1
        if stage + 1 in drop:  # written and freed at once
            yield from self._flush()
            yield from self._discard([stage + 1])
            self._current = None

    def _start_from(self, state: int, drop: list[int], *, keeps: bool) -> Iterator[str]:
        """Yield the actions that must precede a run that starts from a state."""
        if self._current != state:
            yield f"restore {self._values[state]}"
            self._current = state
        if state in drop:
            yield from self._discard([state])
        elif keeps and state not in self._kept:
            self._kept.add(state)
            yield f"checkpoint {self._values[state]}"

    def _discard(self, values: list[int]) -> Iterator[str]:
        for value in values:
            if value in self._kept:
                self._kept.remove(value)
                yield f"discard {self._values[value]}"

    def _copy(self, value: int, source: int, target: int, amount: int, frees: bool) -> Iterator[str]:
        name = self._values[value]
        part = "" if amount == WHOLE else f" ({amount} bytes)"
        if source == self._working:
            yield f"checkpoint {name} to {self._memories[target]}{part}"
            if frees:
                self._kept.discard(value)
                self._forget(value)
            return
        if target == self._working:
            yield f"restore {name} from {self._memories[source]}{part}"
            if value <= self._layout.length:
                self._current = value
        else:
            yield f"move {name} from {self._memories[source]} to {self._memories[target]}{part}"
        if frees and amount == WHOLE:
            yield f"discard {name} from {self._memories[source]}"

    def _drop(self, values: list[int], memory: int) -> Iterator[str]:
        if memory != self._working:
            yield from self._flush()
            for value in values:
                yield f"discard {self._values[value]} from {self._memories[memory]}"
            return
        if any(value in self._kept for value in values):
            yield from self._flush()
            yield from self._discard(values)
        for value in values:
            self._forget(value)

    def _forget(self, value: int) -> None:
        if value == self._current:
            self._current = None
