"""Run a time loop and its adjoint by a plan: the steps of a solved or streamed schedule call the user's code."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from remat.errors import OptionError
from remat.instance import AdjointInstance
from remat.messages import brief
from remat.schedule.document import Copy, Drop, Run, Step
from remat.solving.external_schedule import schedule_of
from remat.solving.problem_setup import AnyInstance
from remat.solving.result import Result
from remat.time_loops.streaming import Stream

State = Any
Forward = Callable[[int, State], State]
Backward = Callable[..., Any]
Store = Callable[[int, str, State], None]
Restore = Callable[[int, str], State]
Discard = Callable[[int, str], None]


def run(
    plan: Result | Stream | str | os.PathLike[str] | dict[str, Any],
    initial: State,
    *,
    instance: AnyInstance | None = None,
    forward: Forward,
    backward: Backward,
    final: Any = None,
    store: Store | None = None,
    restore: Restore | None = None,
    discard: Discard | None = None,
    taping: Callable[[int, State], tuple[State, Any]] | None = None,
) -> Any:
    """Run a time loop forward and backward according to a plan, and return the adjoint before the first step.

    Step i maps state x_i to x_{i+1}, for i = 0, 1, ...; its backward starts from x_i and the adjoint after the step.

    Parameters
    ----------
    plan : Result, Stream, path or dict
        From `remat.solve` or `remat.stream`, for a loop of kind `adjoint`; or a saved schedule of `instance`.
    initial : object
        The state x_0.
    instance : path, open file, dict or instance, optional
        The loop of a saved schedule.
    forward : callable
        ``forward(i, state)`` returns the next state. It must not modify `state`: a plan may start from it again.
    backward : callable
        ``backward(i, state, adjoint)`` returns the adjoint before step i. The last step comes first and receives
        `final`. With tapes the call is ``backward(i, tape, adjoint)``. For i = n it is ``backward(n, state, final)``
        with the last state, and returns the adjoint of that state.
    final : object, optional
        The adjoint after the last step, or the object that the first backward needs instead. If the adjoint depends on
        the last state x_n, compute x_n in the first backward, from its `state`: no plan computes it without tapes.
    store, restore, discard : callable, optional
        ``store(number, level, state)``, ``restore(number, level)`` and ``discard(number, level)`` handle checkpoints in
        the storage level of this name. Without them, checkpoints stay in dicts.
    taping : callable, optional
        ``taping(i, state)`` returns the next state and the tape of step i, for loops with a `tape_size`.

    Returns
    -------
    object
        The adjoint before step 0.

    Raises
    ------
    remat.OptionError
        If the plan has no schedule, or is of another kind; if a saved one has no `instance`; if it stores tapes and
        `taping` is missing; if only one of `store` and `restore` is given.

    Examples
    --------
    >>> import remat
    >>> from remat.time_loops import run
    >>> plan = remat.solve(remat.adjoint(10, storage=[{"name": "ram", "slots": 2}]), algorithm="revolve")
    >>> run(plan, 1.0, forward=lambda i, x: 1.5 * x, backward=lambda i, x, y: 1.5 * y, final=1.0) == 1.5**10
    True
    """
    plan = _loaded(plan, instance)
    loop_instance, working = _loop_of(plan)
    _check_functions(loop_instance, store, restore, taping)
    loop = _Loop(
        steps=loop_instance.length,
        taped=loop_instance.taped,
        working=working,
        forward=forward,
        backward=backward,
        final=final,
        levels=_Levels(store, restore, discard),
        taping=taping,
        here={"x0": initial},
    )
    if (level := loop_instance.initial_level) is not None:  # this level has a copy, too
        loop.levels.put("x0", level, initial)
    for step in plan if isinstance(plan, Stream) else plan.steps:
        loop.do(step)
    return loop.here["y0"]


def _loaded(plan: Any, instance: AnyInstance | None) -> Result | Stream:
    """Return a plan that is given, or read and verify a saved one."""
    if isinstance(plan, (Result, Stream)):
        if instance is not None:
            raise OptionError("this plan knows its loop; an instance is for saved schedules", argument="instance")
        return plan
    if not isinstance(plan, (str, os.PathLike, dict)):
        raise OptionError(
            f"expected the result of remat.solve or remat.stream, or a saved schedule, not {brief(plan)}",
            argument="plan",
        )
    if instance is None:
        name = "a saved schedule" if isinstance(plan, dict) else repr(os.fspath(plan))
        raise OptionError(f"give the loop of {name}: run(..., instance='loop.json')", argument="instance")
    return schedule_of(instance, plan)


def _check_functions(loop: AdjointInstance, store: Any, restore: Any, taping: Any) -> None:
    """Refuse a missing function."""
    if (store is None) != (restore is None):
        raise OptionError(
            "give store and restore together, or omit both", argument="store" if store is None else "restore"
        )
    if loop.taped and taping is None:
        raise OptionError("the loop has a tape_size, so the plan may store tapes; give taping, too", argument="taping")


def _loop_of(plan: Result | Stream) -> tuple[AdjointInstance, str]:
    """Return the time loop of a plan, and the name of its working memory."""
    instance = plan.problem.instance if isinstance(plan, Stream) else plan.instance
    if not isinstance(instance, AdjointInstance):
        raise OptionError("run takes plans of adjoints (time loops) only", argument="plan")
    if isinstance(plan, Result) and plan.columns is None:
        raise OptionError(f"there is no schedule to run: the answer is {plan.status}", argument="plan")
    machine = plan.problem.machine if isinstance(plan, Stream) else plan.machine
    return instance, machine.memories[machine.processors[0].memory].name


@dataclass(frozen=True)
class _Levels:
    """Checkpoints outside the working memory: stored by the user's functions, or in dicts."""

    store: Store | None
    restore: Restore | None
    discard: Discard | None
    own: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def put(self, value: str, level: str, content: Any) -> None:
        if self.store is not None and value.startswith("x"):
            self.store(int(value[1:]), level, content)
        else:
            self.own.setdefault(level, {})[value] = content

    def get(self, value: str, level: str) -> Any:
        if self.restore is not None and value.startswith("x"):
            return self.restore(int(value[1:]), level)
        return self.own[level][value]

    def drop(self, value: str, level: str) -> None:
        if self.store is not None and value.startswith("x"):
            if self.discard is not None:
                self.discard(int(value[1:]), level)
        else:
            del self.own[level][value]


@dataclass(kw_only=True)
class _Loop:
    """The working memory, and the effect of each step on it."""

    steps: int
    taped: bool
    working: str
    forward: Forward
    backward: Backward
    final: Any
    levels: _Levels
    taping: Callable[[int, State], tuple[State, Any]] | None
    here: dict[str, Any] = field(default_factory=dict[str, Any])

    def do(self, step: Step) -> None:
        match step:
            case Run(task, drop=gone):
                self._run(task)
                for value in gone:
                    del self.here[value]
            case Copy(value, source, target, drop=gone):
                content = self.here[value] if source == self.working else self.levels.get(value, source)
                if target == self.working:
                    self.here[value] = content
                else:
                    self.levels.put(value, target, content)
                if gone:
                    self._drop(value, source)
            case Drop(values, memory):
                for value in values:
                    self._drop(value, memory)

    def _drop(self, value: str, memory: str) -> None:
        if memory == self.working:
            del self.here[value]
        else:
            self.levels.drop(value, memory)

    def _run(self, task: str) -> None:
        here, last = self.here, self.steps if self.taped else self.steps - 1
        if task == "loss":
            here[f"y{last}"] = self.backward(last, here[f"x{last}"], self.final)
        elif task.startswith("Fe"):
            number = int(task[2:])
            assert self.taping is not None
            here[f"x{number}"], here[f"s{number}"] = self.taping(number - 1, here[f"x{number - 1}"])
        elif task.startswith("F"):
            number = int(task[1:])
            here[f"x{number}"] = self.forward(number - 1, here[f"x{number - 1}"])
        else:
            number = int(task[1:])
            source = here[f"s{number}"] if self.taped else here[f"x{number - 1}"]
            here[f"y{number - 1}"] = self.backward(number - 1, source, here[f"y{number}"])
