"""Streaming: the schedule of a long time loop step by step, without storing it.

A schedule of 10^7 steps takes gigabytes as columns, and so do the arrays of its instance. `stream` creates steps on
demand. The algorithm decides in closed form or with a stack whose depth is the number of slots. Streaming does not
place or verify steps: they equal those of `remat.solve`, which a test checks.

Three interfaces, from the fastest: `Stream.chunks` yields columns of some ten thousand steps, `Stream.actions` one
object for each advance over any number of time steps, and iteration one object for each step.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, cast

from remat.errors import OptionError, checked_call
from remat.instance import AdjointInstance, MachineModel, load
from remat.plugin import registry
from remat.plugin.context import Context
from remat.plugin.options import make_options
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Proposal
from remat.schedule.actions import Action, actions_of
from remat.schedule.document import Copy, Drop, Run, Step
from remat.schedule.operations import Entry, Layout, Operation, chunks
from remat.schedule.steps import StepKind, Steps
from remat.solving.budget import Budget
from remat.solving.hints import PORTFOLIO
from remat.solving.problem_setup import AnyInstance, make_problem
from remat.solving.result import Result
from remat.units import Number, budget_to_paste, format_budget

LEVELS = {"periodic-disk-revolve": 2, "two-level": 2, "multistage": 99, "revolve": 1}
"""Default algorithms, with the number of storage levels that each uses; long loops take the first that can."""

UNEQUAL = "treeverse"
"""Default algorithm for loops of unequal steps, which `revolve` refuses."""

MOST_COUNTED = 20_000
"""Maximum number of steps for which the schedules of all candidates are compared to take the shortest."""


class Stream(Iterator[Step]):
    """Steps of a schedule, created one by one; returned by `remat.stream`.

    Iteration yields `Run`, `Copy` and `Drop` (see `remat.schedule.document`) without start times, once. Each call of
    `operations`, `chunks` or `actions` starts from the beginning.

    Attributes
    ----------
    problem : Problem
        The instance on its machine, with budgets applied.
    algorithm : Algorithm
        Its metadata.
    options
        The algorithm's options; None if it has none.
    layout : Layout
        The numbering of the tasks and values of the steps.
    """

    def __init__(self, problem: Problem, algorithm: registry.Algorithm, options: Any) -> None:
        self.problem = problem
        self.algorithm = algorithm
        self.options = options
        instance = problem.instance
        assert isinstance(instance, AdjointInstance)
        stages = instance.length if instance.taped else instance.length - 1
        self.layout = Layout(stages, instance.taped, shared=len(problem.machine.memories) == 1)
        self._steps: Iterator[Step] | None = None
        self._first: Iterator[Entry] | None = self._start()

    def __repr__(self) -> str:
        options = "" if self.options is None else "".join(f", {name}={value}" for name, value in self.options)
        return f"Stream({self.algorithm.name}{options})"

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Step:
        if self._steps is None:
            self._steps = self._objects()
        return next(self._steps)

    def operations(self) -> Iterator[Entry]:
        """Yield the operations of `remat.schedule.operations`: tuples of three integers."""
        # The iterator that was started to detect refusals is used up first.
        begun, self._first = self._first, None
        return self._start() if begun is None else begun

    def chunks(self) -> Iterator[Steps]:
        """Yield the steps as columns, some ten thousand at a time (see `Steps`); the fastest interface."""
        return chunks(self.operations(), self.layout)

    def actions(self) -> Iterator[Action]:
        """Yield the actions of a time-stepping code (`remat.schedule.actions`), in numbers of states and steps.

        ``str(action)`` is the line that the command line prints as an action, for adjoints without tapes.
        """
        return actions_of(self.operations(), self.layout, [memory.name for memory in self.problem.machine.memories])

    def _start(self) -> Iterator[Entry]:
        start = self.algorithm.load_stream()
        if start is None:
            raise OptionError(
                f"{self.algorithm.name} cannot be streamed; use remat.solve, or one of {', '.join(_streamed())}",
                argument="algorithm",
            )
        answer: Iterator[Entry] | Proposal = start(self.problem, self.options, Context())
        if isinstance(answer, Proposal):
            raise OptionError(_refusal(self.problem, self.algorithm.name, answer), argument="budget")
        return answer

    def _objects(self) -> Iterator[Step]:
        # Called once or twice for each step: looked up once; the cast selects the signature for a number.
        task = cast("Callable[[int], str]", self.layout.tasks.__getitem__)
        value = cast("Callable[[int], str]", self.layout.values.__getitem__)
        memories = [memory.name for memory in self.problem.machine.memories]
        for steps in self.chunks():
            columns = zip(
                steps.kind.tolist(),
                steps.item.tolist(),
                steps.source.tolist(),
                steps.target.tolist(),
                steps.drop.to_lists(),
                strict=True,
            )
            for kind, item, source, target, drop in columns:
                if kind == StepKind.RUN:
                    yield Run(task(item), None, (), tuple([value(index) for index in drop]))
                elif kind == StepKind.COPY:
                    yield Copy(value(item), memories[source], memories[target], None, bool(drop))
                else:
                    yield Drop(tuple([value(index) for index in drop]), memories[source])


@checked_call(OptionError)
def stream(
    instance: AnyInstance | Result,
    *,
    algorithm: str | None = None,
    budget: Budget = None,
    machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None = None,
    options: Mapping[str, Any] | None = None,
) -> Stream:
    """Stream the schedule of an adjoint: the steps of `remat.solve`, without storing them.

    Starts immediately for up to 10^9 equal steps, and needs O(slots) memory. For loops of at most 100 steps,
    `remat.solve` may find a schedule below the minimum budget that a refusal names here: it can place the stored steps.

    Parameters
    ----------
    instance : path, open file, dict, instance or Result
        An instance of kind `adjoint`. The stream of a solved plan has the steps of that plan; then no other argument
        may be given.
    algorithm : str, optional
        A registry name whose metadata has a value for `stream`. Default, and for ``auto``: `revolve`, or `UNEQUAL`
        for unequal steps. With several storage levels: the fastest of `LEVELS` for up to `MOST_COUNTED` steps,
        otherwise the first that accepts the loop. A `UserWarning` reports levels that stay unused because the
        algorithms that use them refuse the loop.
    budget : int, str or mapping, optional
    machine : path, dict or MachineModel, optional
    options : mapping, optional
        These three as for `remat.solve`.

    Returns
    -------
    Stream
        An iterator of steps; its methods `actions` and `chunks` are faster.

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For unusable input, and if the budget is too small: then the message names the minimum budget.
    """
    if isinstance(instance, Result):
        if algorithm is not None or budget is not None or machine is not None or options is not None:
            raise OptionError("a solved plan has its algorithm, budget, machine and options; give the plan alone")
        return _of_plan(instance)
    loaded = load(instance)
    if not isinstance(loaded, AdjointInstance):
        raise OptionError(f"stream takes adjoints (time loops) only, not {loaded.kind}; use remat.solve")
    problem = make_problem(loaded, budget=budget, machine=machine).used
    if algorithm == PORTFOLIO and options:
        raise OptionError("auto has no options here; name the algorithm that has them", argument="options")
    if algorithm not in (None, PORTFOLIO):
        return _named(problem, algorithm, options)
    if options:
        return _named(problem, "revolve", options)
    return _by_levels(problem, loaded.length) if len(problem.machine.memories) > 2 else _of_one_level(problem)


def _of_plan(plan: Result) -> Stream:
    """Return the stream of a solved plan's algorithm, on its machine and with its options."""
    if not isinstance(plan.instance, AdjointInstance) or plan.columns is None:
        raise OptionError("stream takes plans of adjoints (time loops) that have a schedule")
    found = registry.find(plan.algorithm, "adjoint")
    if not found.stream:
        raise OptionError(
            f"the plan is of {plan.algorithm}, which cannot be streamed: run its steps with remat.time_loops.run, or "
            f"stream the instance with one of {', '.join(_streamed())}",
            argument="algorithm",
        )
    problem = Problem(plan.instance, plan.machine).used
    return Stream(problem, found, make_options(found, plan.options))


def _streamed() -> list[str]:
    return [algorithm.name for algorithm in registry.algorithms("adjoint") if algorithm.stream]


def _named(problem: Problem, algorithm: str, options: Mapping[str, Any] | None = None) -> Stream:
    found = registry.find(algorithm, problem.kind)
    chosen = make_options(found, options or {})
    if not found.several_memories and len(problem.machine.memories) > 1:
        raise OptionError(f"{found.name} works only in one memory, but the loop has storage", argument="algorithm")
    return Stream(problem, found, chosen)


def _of_one_level(problem: Problem) -> Stream:
    """Return the stream of `revolve`, or of `UNEQUAL` if only that accepts the loop."""
    try:
        return _named(problem, "revolve")
    except OptionError as refused:
        try:
            return _named(problem, UNEQUAL)
        except OptionError:
            raise refused from None


def _by_levels(problem: Problem, steps: int) -> Stream:
    """Return the fastest stream for several storage levels; for long loops, the first of `LEVELS` that works."""
    levels, long = len(problem.machine.memories) - 1, steps > MOST_COUNTED
    streams: list[Stream] = []
    for name in LEVELS:
        if long and streams:
            break
        try:
            streams.append(_named(problem, name))
        except OptionError:
            if name == "revolve" and not streams:
                streams.append(_of_one_level(problem))
    used = max(LEVELS.get(stream.algorithm.name, 1) for stream in streams)
    best = streams[0] if len(streams) == 1 else min(streams, key=_time)
    if used < levels:
        left = ", ".join(repr(memory.name) for memory in problem.machine.memories[used + 1 :])
        text = f"the streamed schedule ({best.algorithm.name}) leaves {left} unused"
        warnings.warn(f"{text}; remat.solve looks for one that does not", stacklevel=4)
    return best


def _time(stream: Stream) -> Number:
    """Return the total time of a stream's forwards and transfers in sequence, in O(its operations)."""
    machine, chain = stream.problem.machine, stream.problem.chain
    until, size = [0, *accumulate(chain.forward_time.tolist())], chain.activation_size.tolist()
    total: Number = 0
    for operation, first, second in stream.operations():
        if operation == Operation.ADVANCE:
            total += until[second] - until[first]
        elif operation == Operation.WRITE:
            total += machine.links[machine.link_index[0, second]].time(size[first])
        elif operation in (Operation.READ, Operation.READ_LAST):
            total += machine.links[machine.link_index[second, 0]].time(size[first])
    return total


def _refusal(problem: Problem, name: str, answer: Proposal) -> str:
    least = answer.least
    if least is None:
        return f"{name} finds no schedule within it, and no minimum budget"
    memory, units = problem.machine.memories[least.memory], problem.units
    has = "" if memory.capacity is None else f", which has {format_budget(memory.capacity, units)}"
    several = len(problem.machine.memories) > 1
    size = budget_to_paste(least.size, units)
    ask = f"{memory.name}={size}" if several else size
    within = answer.infeasible_within or ALL_SCHEDULES
    needs = "it finds one in" if least.sufficient else f"for {within} no less will do than"
    size = format_budget(least.size, units, enough=least.sufficient)
    return f"{name} finds no schedule in memory {memory.name!r}{has}; {needs} {size}: ask for {ask}"
