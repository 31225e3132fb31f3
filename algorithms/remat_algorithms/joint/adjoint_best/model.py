"""The model of `adjoint-best`: states in memories with byte capacities, one operation at a time.

Memory 0 is the working memory; the others are storage levels. A `Situation` contains the states in each memory and the
next backward. An operation takes time and leads from one situation to the next. If the adjoint has tapes, they are
computed right before each backward and never stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from remat.plugin import Number, Problem, StepBuilder, StepKind, Steps
from remat_algorithms.adjoint.slots import initially_in
from remat_algorithms.adjoint.transfer_times import transfer_times_of

UNBOUNDED = 2**63


class Kind(IntEnum):
    """The effect of an operation."""

    FORWARD = 0
    BACK = 1
    COPY = 2
    DROP = 3


class Operation(NamedTuple):
    """One operation on state x_t.

    FORWARD: from x_t to x_{t+1} in the working memory, x_t stays. BACK: the backward of step t, which consumes x_t in
    the working memory. COPY: x_t from memory `source` to `target`. DROP: remove x_t from memory `source`.
    """

    kind: Kind
    state: int
    source: int = 0
    target: int = 0


class Situation(NamedTuple):
    """`back`: the next backward (-1: none left); `held`: for each memory the states in it, as bits."""

    back: int
    held: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    """An adjoint of n steps on synchronous memories.

    Attributes
    ----------
    forward : list of n-1 numbers
        Times from x_t to x_{t+1}.
    backward : list of n numbers
        Times of the backwards, including tapes and loss.
    state, adjoint : lists of n and n + 1 ints
        Sizes; the last adjoint, which no step computes, has size 0.
    extra : list of n ints
        Bytes that the backward of step t needs in the working memory in addition to its contents. These include x_t and
        y_{t+1}, which it consumes, so it may be negative.
    capacity : list of ints
        For each memory, without static memory and other bytes that do not move.
    copy : mapping from (source, target) to n numbers
        Time to copy each state.
    given : int or None
        Memory with an initial copy of x_0, in addition to the working memory.
    """

    forward: list[Number]
    backward: list[Number]
    state: list[int]
    adjoint: list[int]
    extra: list[int]
    capacity: list[int]
    copy: dict[tuple[int, int], list[Number]]
    given: int | None = None

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.backward)

    @property
    def start(self) -> Situation:
        """Only x_0 is present."""
        held = [0] * len(self.capacity)
        held[0] = 1
        if self.given is not None:
            held[self.given] = 1
        return Situation(self.steps - 1, tuple(held))

    @staticmethod
    def of(problem: Problem) -> Model | None:
        """Build the model of a problem; None if a transfer overlaps with computation, outside this model."""
        chain, machine = problem.chain, problem.machine
        n = chain.length + (0 if chain.saves else 1)
        copy: dict[tuple[int, int], list[Number]] = {}
        for source, target in machine.link_index:
            times = transfer_times_of(problem, chain.activation_size[:n], source, target)
            if times is None:
                return None
            copy[source, target] = times.tolist()
        state, adjoint = chain.activation_size.tolist(), chain.gradient_size.tolist()
        backward, extra = _backwards(problem, n, state, adjoint)
        capacity = [UNBOUNDED if memory.capacity is None else memory.capacity for memory in machine.memories]
        capacity[0] -= chain.static_memory
        return Model(
            forward=chain.forward_time[: n - 1].tolist(),
            backward=backward,
            state=state[:n],
            adjoint=[*adjoint[:n], 0],
            extra=extra,
            capacity=capacity,
            copy=copy,
            given=next((k for k in range(1, len(capacity)) if initially_in(problem, k)), None),
        )

    def used(self, held: int) -> int:
        """Return the bytes of a set of states."""
        total = 0
        while held:
            low = held & -held
            total += self.state[low.bit_length() - 1]
            held ^= low
        return total

    def time(self, operation: Operation) -> Number:
        """Return the time of an operation."""
        if operation.kind == Kind.FORWARD:
            return self.forward[operation.state]
        if operation.kind == Kind.BACK:
            return self.backward[operation.state]
        if operation.kind == Kind.COPY:
            return self.copy[operation.source, operation.target][operation.state]
        return 0

    def fits(self, situation: Situation) -> bool:
        """Whether a situation is within all capacities."""
        room = list(self.capacity)
        room[0] -= self.adjoint[situation.back + 1]
        return all(self.used(held) <= most for held, most in zip(situation.held, room, strict=True))


def apply(situation: Situation, operation: Operation) -> Situation:
    """Return the situation after an operation."""
    back, held = situation.back, list(situation.held)
    bit = 1 << operation.state
    if operation.kind == Kind.FORWARD:
        held[0] |= bit << 1
    elif operation.kind == Kind.BACK:
        held[0] &= ~bit
        back -= 1
    elif operation.kind == Kind.COPY:
        held[operation.target] |= bit
    else:
        held[operation.source] &= ~bit
    return Situation(back, tuple(held))


def _backwards(problem: Problem, n: int, state: list[int], adjoint: list[int]) -> tuple[list[Number], list[int]]:
    """Return the times of the backwards, and the bytes that they need in addition to the memory's contents."""
    chain = problem.chain
    if not chain.saves:
        times = [*chain.backward_time.tolist(), chain.loss_time]
        above = [*adjoint[1:n], 0]
        return times, [max(0, adjoint[t] - state[t] - above[t]) for t in range(n)]
    tape = chain.saved_size.tolist()
    times = (chain.saving_forward_time + chain.backward_time).tolist()
    extra = []
    for t in range(n):
        taped = tape[t] - state[t]  # the tape has replaced x_t
        making = state[t + 1] + taped
        if t == n - 1:
            turned = taped + max(state[n], adjoint[n])
            extra.append(max(making, turned, taped + adjoint[n] + max(0, adjoint[t] - tape[t] - adjoint[n])))
        else:
            extra.append(max(making, taped + max(0, adjoint[t] - tape[t] - adjoint[t + 1])))
    return times, [max(0, more) for more in extra]


def steps_of(problem: Problem, operations: Sequence[Operation]) -> Steps:
    """Return the operations as steps of the problem's schedule."""
    chain = problem.chain
    length, taped = chain.length, chain.saves
    n = length + (0 if taped else 1)
    builder = StepBuilder()
    skip = False
    for index, operation in enumerate(operations):
        if skip:
            skip = False
            continue
        kind, t = operation.kind, operation.state
        following = operations[index + 1] if index + 1 < len(operations) else None
        if kind == Kind.FORWARD:
            consumed = following == Operation(Kind.DROP, t, 0)
            builder.run(t, drop=(t,) if consumed else ())
            skip = consumed
        elif kind == Kind.COPY:
            moved = following == Operation(Kind.DROP, t, operation.source)
            builder.copy(t, operation.source, operation.target, drop=moved)
            skip = moved
        elif kind == Kind.DROP:
            builder.drop([t], operation.source)
        elif not taped:
            y = length + 1 + t
            builder.run(length + 1 + t if t < length else length, drop=(t, y + 1) if t < length else (t,))
        else:
            tape, y, last = length + 1 + t, 2 * length + 1 + t, t == n - 1
            builder.run(length + t, drop=(t,) if last else (t, t + 1))
            if last:
                builder.run(2 * length, drop=(n,))
            builder.run(2 * length + 1 + t, drop=(tape, y + 1))
    return builder.build()


def operations_of(model: Model, problem: Problem, steps: Steps) -> list[Operation] | None:
    """Convert steps to operations of the model; None if it cannot express them (stored tapes, partial moves)."""
    chain = problem.chain
    if chain.saves or (steps.amount >= 0).any() or steps.on is not None:
        return None
    length = chain.length
    found: list[Operation] = []
    situation = model.start
    columns = zip(
        steps.kind.tolist(),
        steps.item.tolist(),
        steps.source.tolist(),
        steps.target.tolist(),
        steps.drop.to_lists(),
        strict=True,
    )
    for kind, item, source, target, drop in columns:
        made: list[Operation] = []
        memory = 0 if kind == StepKind.RUN else source
        if kind == StepKind.RUN and item < length:
            made.append(Operation(Kind.FORWARD, item))
        elif kind == StepKind.RUN:
            made.append(Operation(Kind.BACK, length if item == length else item - length - 1))
        elif kind == StepKind.COPY:
            made.append(Operation(Kind.COPY, item, source, target))
        made += [Operation(Kind.DROP, value, memory) for value in drop if value <= length]
        for operation in made:
            if operation.kind == Kind.DROP and not situation.held[memory] >> operation.state & 1:
                continue  # already dropped with its backward
            if not _allowed(model, situation, operation):
                return None
            for each in (operation, *cleared(situation, operation)):
                found.append(each)
                situation = apply(situation, each)
    return found if situation.back == -1 else None


def without_unread(operations: Sequence[Operation]) -> list[Operation]:
    """Leave out the copies that nothing reads before they are dropped, with their drops. O(operations)."""
    read: set[tuple[int, int]] = set()
    dropped: dict[tuple[int, int], int] = {}
    out: set[int] = set()
    for index in range(len(operations) - 1, -1, -1):
        operation = operations[index]
        place = operation.state, operation.source
        if operation.kind == Kind.DROP:
            read.discard(place)
            dropped[place] = index
        elif operation.kind != Kind.COPY:
            read.add(place)
        elif (there := (operation.state, operation.target)) in read:
            read.discard(there)
            read.add(place)
        else:
            out.add(index)
            if there in dropped:
                out.add(dropped.pop(there))
    return [operation for index, operation in enumerate(operations) if index not in out]


def cleared(situation: Situation, operation: Operation) -> list[Operation]:
    """Return the drops that follow a backward: no later operation needs its state."""
    if operation.kind != Kind.BACK:
        return []
    levels = range(1, len(situation.held))
    return [
        Operation(Kind.DROP, operation.state, level) for level in levels if situation.held[level] >> operation.state & 1
    ]


def _allowed(model: Model, situation: Situation, operation: Operation) -> bool:
    """Whether an operation's input is present, and its output is not."""
    held, bit = situation.held, 1 << operation.state
    if operation.kind == Kind.FORWARD:
        return bool(held[0] & bit) and not held[0] & bit << 1
    if operation.kind == Kind.BACK:
        return situation.back == operation.state and bool(held[0] & bit)
    if operation.kind == Kind.COPY:
        known = (operation.source, operation.target) in model.copy
        return known and bool(held[operation.source] & bit) and not held[operation.target] & bit
    return bool(held[operation.source] & bit)


def cost(model: Model, operations: Iterable[Operation]) -> Number:
    """Return the time of all operations."""
    return sum(model.time(operation) for operation in operations)
