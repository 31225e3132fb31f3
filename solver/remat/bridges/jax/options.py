"""Sets of results that a part of the forward can save for its backward, by one minimum cut for each trade-off.

A policy saves named results, and the backward recomputes from them, and from the inputs of the part, what it reads.
The cut minimises `a * bytes saved + b * time recomputed`, so the sets found are the lower hull of all sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from remat.bridges.jax.fusion import Task, fuse, needed_for
from remat.bridges.jax.program import Program, flatten
from remat.bridges.jax.shim import jax
from remat.generate.devices import Rates

MOST = 12
"""Options of a part."""


@dataclass(frozen=True, slots=True)
class Option:
    """A set of names to save.

    Attributes
    ----------
    names : tuple of str
    saved : int
        Bytes.
    again : int
        Nanoseconds of recomputation.
    workspace : int
        Bytes of the backward beyond its inputs and what is saved.
    hosted : bool
        Whether what is saved goes to the host.
    """

    names: tuple[str, ...]
    saved: int
    again: int
    workspace: int
    hosted: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Costs of a part of the forward, and its options from no recomputation to nothing saved."""

    forward: int
    forward_workspace: int
    backward: int
    options: tuple[Option, ...]


def analyse(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    rates: Rates,
    *,
    flowing: Iterable[int],
    sliced: bool = False,
) -> Part:
    """Return the costs and options of a function of arrays.

    Parameters
    ----------
    function : callable
        Takes arrays and returns a list of arrays; its candidates have names (`jax.ad_checkpoint.checkpoint_name`).
    inputs : sequence of ShapeDtypeStruct
    rates : Rates
    flowing : iterable of int
        Inputs that are activations: the backward before needs their gradients.
    sliced : bool
        Whether inputs and saved results are slices of a loop's arrays, so that the backward reads copies. Gradients
        then count as workspace; otherwise they are counted elsewhere.
    """
    program, ends = _joint(function, inputs, set(flowing), sliced)
    return _Analysis(program, fuse(program, rates), ends, sliced).part()


@dataclass(frozen=True, slots=True)
class _Ends:
    """The values that enter the backward, those that leave the forward, and the gradients.

    Attributes
    ----------
    flowing : frozenset of int
        Gradients of activations.
    elsewhere : frozenset of int
        Gradients that are no workspace.
    """

    tangents: frozenset[int]
    results: frozenset[int]
    flowing: frozenset[int]
    elsewhere: frozenset[int]


def is_float(aval: Any) -> bool:
    """Whether an array has a gradient."""
    return bool(jax.numpy.issubdtype(aval.dtype, jax.numpy.inexact))


def _joint(
    function: Callable[..., Any], inputs: Sequence[Any], activations: set[int], sliced: bool
) -> tuple[Program, _Ends]:
    """Trace forward and backward together."""
    moving = [index for index, each in enumerate(inputs) if is_float(each)]

    def primal(args: Sequence[Any], changed: Sequence[Any]) -> Any:
        full = list(args)
        for index, each in zip(moving, changed, strict=True):
            full[index] = each
        found = function(*full)
        return [each for each in found if is_float(each)], [each for each in found if not is_float(each)]

    def both(args: Sequence[Any], tangents: Sequence[Any]) -> Any:
        results, back, others = jax.vjp(
            lambda *changed: primal(args, changed), *[args[index] for index in moving], has_aux=True
        )
        return results, others, back(tangents)

    results, _ = jax.eval_shape(primal, list(inputs), [inputs[index] for index in moving])
    closed = jax.make_jaxpr(both)(list(inputs), results)
    program = flatten(closed)
    first = len(closed.consts) + len(inputs)
    tangents = frozenset(program.inputs[first : first + len(results)])  # constants of calls follow
    gradients = program.outputs[len(program.outputs) - len(moving) :] if moving else []
    flowing = frozenset(value for index, value in zip(moving, gradients, strict=True) if index in activations)
    leaving = frozenset(program.outputs[: len(program.outputs) - len(moving)])
    return program, _Ends(tangents, leaving, flowing, frozenset() if sliced else frozenset(gradients))


class _Analysis:
    def __init__(self, program: Program, tasks: list[Task], ends: _Ends, sliced: bool) -> None:
        self.program, self.ends, self.sliced = program, ends, sliced
        late = set(ends.tangents)
        self.forward: list[Task] = []
        self.backward: list[Task] = []
        for task in tasks:
            if late.isdisjoint(task.reads):
                self.forward.append(task)
            else:
                self.backward.append(task)
                late.update(task.writes)
        self.made = {value for task in self.forward for value in task.writes}
        self.needed = {value for task in self.backward for value in task.reads} & self.made
        self.saveable = self.made.intersection(program.labels)

    def part(self) -> Part:
        run = needed_for(self.ends.results, self.forward)
        outside = self.ends.results | set(self.program.inputs)
        return Part(
            forward=sum(task.time for task in run),
            forward_workspace=self._peak(run, outside, self.ends.results),
            backward=sum(task.time for task in self.backward),
            options=self._hull(),
        )

    # --- options ------------------------------------------------------------------------------------------------------

    def _hull(self) -> tuple[Option, ...]:
        most, least = self._option(self._cut(0, 1)), self._option(frozenset())
        if least.again <= most.again:
            return (least,)
        found = {option.names: option for option in (most, least)}
        waiting = [(most, least)]
        while waiting and len(found) < MOST:
            left, right = waiting.pop(0)
            across, down = right.again - left.again, left.saved - right.saved
            if across <= 0 or down <= 0:
                continue
            option = self._option(self._cut(across, down))
            value = option.saved * across + option.again * down
            if option.names in found or value >= left.saved * across + left.again * down:
                continue
            found[option.names] = option
            waiting += [(left, option), (option, right)]
        return tuple(sorted(found.values(), key=lambda each: (each.again, each.saved)))

    def _cut(self, size: int, time: int) -> frozenset[int]:
        """Return the values to save so that `size * bytes + time * nanoseconds recomputed` is minimal."""
        import networkx

        graph: Any = networkx.DiGraph()
        graph.add_nodes_from(("source", "sink"))
        for index, task in enumerate(self.forward):
            graph.add_edge("source", ("task", index), capacity=task.time * max(time, 0) * _SCALE)
            for value in task.writes:
                graph.add_edge(("task", index), ("made", value))
                if value in self.saveable:
                    # Where bytes are free, the fewest among the fastest.
                    cost = self.program.sizes[value] * (size * _SCALE or 1)
                    graph.add_edge(("made", value), ("there", value), capacity=cost)
                else:
                    graph.add_edge(("made", value), ("there", value))
            for value in task.reads:
                if value in self.made:
                    graph.add_edge(("there", value), ("task", index))
        for value in self.needed:
            graph.add_edge(("there", value), "sink")
        _, (early, _) = networkx.minimum_cut(graph, "source", "sink")
        return frozenset(value for value in self.saveable if ("made", value) in early and ("there", value) not in early)

    def _option(self, saved: frozenset[int]) -> Option:
        sizes, labels = self.program.sizes, self.program.labels
        names = {labels[value] for value in saved}
        saved = frozenset(value for value in self.saveable if labels[value] in names)  # a name may be of several
        again = needed_for(self.needed, self.forward, given=saved)
        outside = saved | set(self.program.inputs) | self.ends.elsewhere
        return Option(
            names=tuple(sorted(names)),
            saved=sum(sizes[value] for value in saved),
            again=sum(task.time for task in again),
            workspace=self._peak([*again, *self._ordered], outside, set(self.program.outputs)),
        )

    @cached_property
    def _ordered(self) -> list[Task]:
        """The backward in XLA's worst order: tasks that no gradient of an activation needs come last."""
        early = needed_for(self.ends.flowing, self.backward)
        known = set(early)
        return [*early, *(task for task in self.backward if task not in known)]

    @cached_property
    def _invariant(self) -> int:
        """Bytes of results without inputs, such as masks: XLA computes them before the loop."""
        alone: set[int] = set()
        held: set[int] = set()
        for operation in self.program.operations:
            if alone.issuperset(operation.reads):
                alone.update(operation.writes)
            else:
                held.update(alone.intersection(operation.reads))
        return sum(self.program.sizes[value] for value in held)

    def _peak(self, tasks: Sequence[Task], outside: Iterable[int], stays: Iterable[int]) -> int:
        """Return the most bytes of values that the tasks make, in their order."""
        last: dict[int, int] = {}
        for index, task in enumerate(tasks):
            last.update(dict.fromkeys((*task.reads, *task.writes), index))
        last.update({value: len(tasks) for value in stays if value in last})
        free = set(outside)
        gone: dict[int, int] = {}
        sizes = self.program.sizes
        resident = 0
        if self.sliced:
            for value in free - self.ends.elsewhere - self.ends.tangents:
                if value in last:
                    resident += sizes[value]
                    gone[last[value]] = gone.get(last[value], 0) + sizes[value]
            resident += self._invariant
        peak = resident
        for index, task in enumerate(tasks):
            for value in task.writes:
                if value not in free:
                    resident += sizes[value]
                    gone[last[value]] = gone.get(last[value], 0) + sizes[value]
            peak = max(peak, resident + task.operation.workspace)
            resident -= gone.pop(index, 0)
        return peak


_SCALE = 1 << 40
"""Weight of the costs against the ties among them."""
