"""Fronts of a join: for each part, the minimum time as a step function of the bytes.

Segments (i, l) of one chain are those of `remat_algorithms.chain.segments`; bytes count beyond x_i. A *join state*
gives the position of each chain: the next stage i_j, and whether the previous backward holds x_{i_j}. From a state,
with bytes counted beyond all x_{i_j}, one chain j continues:

    J(s) = min over j of  save:   the forward of i_j that saves, J(s with i_j + 1), then the backward of i_j
                          split:  forwards i_j .. l-1, J(s with i_j = l), then the segment (i_j, l-1)

When all chains are at their ends, the loss follows. The runs after the inner J coexist with the gradients y_{i_m} of
all other chains, and with those x_{i_m} that are held. Values stored later are therefore used earlier, across all
chains. Equal chains share their states: only sorted ones are kept.

A front is a list of (bytes, time), with increasing bytes and decreasing time. A sum of two fronts has at most as many
points as both together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from remat.plugin import IntArray, Number, NumberArray
from remat_algorithms.chain.joins.recognition import Branch, Join
from remat_algorithms.chain.segments import Segments

Place = int
"""Position of a chain: an index into its `Places`."""

State = tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Front:
    """Minimum times: from ``need[i]`` bytes, ``time[i]``."""

    need: IntArray
    time: NumberArray

    @property
    def least(self) -> int | None:
        """Minimum bytes; None if nothing fits."""
        return int(self.need[0]) if len(self.need) else None

    def at(self, room: int) -> Number | None:
        """Return the time within this many bytes; None if nothing fits."""
        index = int(np.searchsorted(self.need, room, side="right")) - 1
        return None if index < 0 else self.time[index].item()


@dataclass(frozen=True, slots=True)
class Option:
    """A continuation: its own needs and costs, and its parts, each with the bytes held in addition to it."""

    floor: int
    cost: Number
    parts: tuple[tuple[Front, int], ...]
    what: Any

    def at(self, room: int) -> Number | None:
        """Return the time within this many bytes; None if it does not fit."""
        if room < self.floor:
            return None
        total = self.cost
        for front, beside in self.parts:
            time = front.at(room - beside)
            if time is None:
                return None
            total += time
        return total

    def points(self) -> tuple[IntArray, NumberArray] | None:
        """Return all (bytes, time) at which its time changes; None if a part never fits."""
        if any(not len(front.need) for front, _ in self.parts):
            return None
        floor = max([self.floor, *(int(front.need[0]) + beside for front, beside in self.parts)])
        if len(self.parts) == 1:
            ((front, beside),) = self.parts
            return np.maximum(front.need + beside, floor), front.time + self.cost
        if not self.parts:
            return np.array([floor]), np.array([self.cost])
        needs = np.maximum(np.concatenate([front.need + beside for front, beside in self.parts]), floor)
        times: Any = self.cost
        for front, beside in self.parts:
            times = times + front.time[front.need.searchsorted(needs - beside, side="right") - 1]
        return needs, times


@dataclass
class Work:
    """Limits of a table: total bytes (with inputs) and points per front; `thinned` records exceeded points."""

    room: int | None
    most_points: int
    stopped: Callable[[], bool]
    thinned: bool = False

    def front(self, options: Iterator[Option], base: int) -> Front:
        """Return the front of the best of all options, whose bytes are counted beyond `base` bytes."""
        found = [points for option in options if (points := option.points()) is not None]
        if not found:
            return Front(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        need = np.concatenate([points for points, _ in found])
        time = np.concatenate([points for _, points in found])
        need = np.maximum(need, 0)
        if self.room is not None:
            fits = need <= self.room - base
            need, time = need[fits], time[fits]
        order = np.lexsort((time, need))
        need, time = need[order], time[order]
        best = np.minimum.accumulate(time) if len(time) else time
        keep = np.ones(len(time), dtype=bool)
        keep[1:] = time[1:] < best[:-1]
        need, time = need[keep], time[keep]
        if len(need) > self.most_points:
            self.thinned = True
            some = np.unique(np.linspace(0, len(need) - 1, self.most_points).astype(np.int64))
            need, time = need[some], time[some]
        return Front(need, time)


class Places:
    """The positions of a chain, and the fronts of its segments.

    Attributes
    ----------
    stage, held : list
        For each position: the next stage (L at the end), and whether its input is held.
    rest : list of int
        Bytes that remain when all stages from this position are done: the gradient and a held input, minus the input.
    """

    def __init__(self, branch: Branch) -> None:
        self.branch, self.segments = branch, Segments.of(branch.chain)
        self.states, chain = self.segments.states, branch.chain
        self.length = chain.length
        self.reads_output = chain.alternatives.reads_output.tolist()
        self.first_way = chain.alternatives.start.tolist()
        reading = [any(self.reads_output[a:b]) for a, b in itertools.pairwise(self.first_way)]
        both = [
            (i, held) for i in range(self.length + 1) for held in (False, True) if not held or (i and reading[i - 1])
        ]
        self.stage = [i for i, _ in both]
        self.held = [held for _, held in both]
        self.place = {one: number for number, one in enumerate(both)}
        x, y = chain.activation_size.tolist(), chain.gradient_size.tolist()
        self.x: list[int] = x
        self.y: list[int] = y
        kept = [size if i or branch.keeps_gradient else 0 for i, size in enumerate(y)]
        self.rest = [kept[i] - (0 if held else x[i]) for i, held in both]
        self.sweep_need = [self.segments.sweep_need(i).tolist() for i in range(self.length)]
        self.sweep_time = [self.segments.sweep_time(i).tolist() for i in range(self.length)]
        names = ("inner", "kept", "save_need", "backward_need", "leaf_need", "time", "leaf_time")
        self.way = {name: getattr(self.states, name).tolist() for name in names}
        self.fronts: dict[tuple[int, int], Front] = {}

    def state(self, place: Place) -> int:
        """Return the state (of `States`) of segments that begin at a position."""
        states = self.states
        return int((states.held if self.held[place] else states.free)[self.stage[place]])

    def after(self, place: Place, way: int) -> Place:
        """Return the position after an option has saved the stage."""
        stage = self.stage[place]
        number = self.first_way[stage] + way - int(self.states.start[self.state(place)])
        return self.place[stage + 1, self.reads_output[number]]

    def fill(self, work: Work) -> None:
        """Compute the fronts of all segments (state, last) before the loss: O(L^2) fronts of O(L) options each."""
        self.fronts = {}
        stages = self.states.stage.tolist()
        for last in range(self.length):
            for state in range(int(self.states.held[last]), -1, -1):
                if work.stopped():
                    return
                if stages[state] <= last:
                    self.fronts[state, last] = work.front(self.options(state, last), self.x[stages[state]])

    def options(self, state: int, last: int) -> Iterator[Option]:
        """Yield the options of a segment; `what` is (option, split stage), with -1 if the first stage is saved."""
        first, live, way = int(self.states.stage[state]), self.y[last + 1], self.way
        for number in self.states.ways(state):
            if first == last:
                yield Option(way["leaf_need"][number], way["leaf_time"][number], (), (number, -1))
                continue
            floor = max(way["save_need"][number] + live, way["backward_need"][number])
            inner = self.fronts[way["inner"][number], last]
            yield Option(floor, way["time"][number], ((inner, way["kept"][number]),), (number, -1))
        for split in range(first + 1, last + 1):
            right = self.fronts[int(self.states.free[split]), last]
            floor, cost = self.sweep_need[first][split - first - 1] + live, self.sweep_time[first][split - first - 1]
            yield Option(floor, cost, ((right, self.x[split]), (self.fronts[state, split - 1], 0)), (-1, split))

    def runs(self, branch: Branch, state: int, last: int, room: int) -> list[int]:
        """Return the runs of a segment of this chain, or of an equal one, as tasks of the graph."""
        runs: list[int] = []
        task, states = branch.task.tolist(), self.states
        stack = [(state, last, room, -1)]
        while stack:
            state, last, room, finished = stack.pop()
            if finished >= 0:
                runs.append(task[states.backward_task[finished]])
                continue
            option = best(self.options(state, last), room)
            way, split = option.what
            first = int(states.stage[state])
            if split >= 0:
                runs.extend(task[first:split])
                stack.append((state, split - 1, room, -1))
                stack.append((int(states.free[split]), last, room - self.x[split], -1))
            elif first == last:
                runs.extend([task[states.forward_task[way]]] if states.leaf_forward[way] else [])
                runs.append(task[states.backward_task[way]])
            else:
                runs.append(task[states.forward_task[way]])
                stack.append((state, last, 0, way))
                stack.append((self.way["inner"][way], last, room - self.way["kept"][way], -1))
        return runs


def best(options: Iterator[Option], room: int) -> Option:
    """Return the fastest option within `room` bytes; ties prefer the first."""
    timed = [(time, number, option) for number, option in enumerate(options) if (time := option.at(room)) is not None]
    return min(timed, key=lambda one: one[:2])[2]


class JoinTable:
    """The fronts of all states of a join."""

    def __init__(self, join: Join) -> None:
        self.join = join
        self.kinds: list[Places] = []
        self.chains: list[Places] = []
        for branch in join.branches:
            same = next((places for places in self.kinds if places.branch.equals(branch)), None)
            if same is None:
                self.kinds.append(same := Places(branch))
            self.chains.append(same)
        self.groups = [[j for j, chain in enumerate(self.chains) if chain is kind] for kind in self.kinds]
        self.start: State = tuple(chain.place[0, False] for chain in self.chains)
        self.fronts: dict[State, Front] = {}
        self.inputs = sum(chain.x[0] for chain in self.chains)
        self.resident = join.resident + self.inputs

    @property
    def size(self) -> int:
        """Upper bound on the number of options of all states and segments."""
        of_segments = sum(kind.length**3 // 6 + kind.length**2 for kind in self.kinds)
        states = 1
        for kind, members in zip(self.kinds, self.groups, strict=True):
            count, several = len(kind.stage), len(members)
            for one in range(several):  # multisets
                states = states * (count + one) // (one + 1)
        return of_segments + states * sum(kind.length + 1 for kind in self.kinds)

    def sorted(self, state: State) -> State:
        """Return the state with equal chains in order."""
        found = list(state)
        for members in self.groups:
            if len(members) > 1:
                for j, place in zip(members, sorted(state[j] for j in members), strict=True):
                    found[j] = place
        return tuple(found)

    def fill(self, work: Work) -> None:
        """Compute all fronts; previous ones are discarded."""
        self.fronts = {}
        for kind in self.kinds:
            kind.fill(work)
        # In order from the loss backwards: each option leads to a state with a larger sum of stages.
        per_kind = [
            list(itertools.combinations_with_replacement(range(len(kind.stage)), len(members)))
            for kind, members in zip(self.kinds, self.groups, strict=True)
        ]
        states = []
        for parts in itertools.product(*per_kind):
            standing = [0] * len(self.chains)
            for members, places in zip(self.groups, parts, strict=True):
                for j, place in zip(members, places, strict=True):
                    standing[j] = place
            states.append(tuple(standing))
        states.sort(key=lambda state: -self.reached(state))
        for state in states:
            if work.stopped():
                return
            base = sum(chain.x[chain.stage[place]] for chain, place in zip(self.chains, state, strict=True))
            self.fronts[state] = work.front(self.options(state), base)

    def reached(self, state: State) -> int:
        """Return the number of stages before a state."""
        return sum(chain.stage[place] for chain, place in zip(self.chains, state, strict=True))

    def loss_need(self, state: State) -> int:
        """Return the bytes beyond all x_L while the loss runs."""
        made: int = sum(chain.y[-1] for chain in self.chains)
        if self.join.in_place:
            free = [chain.x[-1] for chain, place in zip(self.chains, state, strict=True) if not chain.held[place]]
            made = max(0, made - sum(free))
        return made + self.join.loss_workspace

    def options(self, state: State) -> Iterator[Option]:
        """Yield the continuations; `what` is (chain, option, split stage), with -1 if saved, or None for the loss."""
        if all(chain.stage[place] == chain.length for chain, place in zip(self.chains, state, strict=True)):
            yield Option(self.loss_need(state), self.join.loss_time, (), None)
            return
        rest = sum(chain.rest[place] for chain, place in zip(self.chains, state, strict=True))
        seen: set[tuple[int, Place]] = set()
        for j, (chain, place) in enumerate(zip(self.chains, state, strict=True)):
            if (id(chain), place) in seen or chain.stage[place] == chain.length:
                continue
            seen.add((id(chain), place))
            yield from self._options_of(state, j, rest - chain.rest[place])

    def _options_of(self, state: State, j: int, others: int) -> Iterator[Option]:
        chain, place = self.chains[j], state[j]
        own, first, way = chain.state(place), chain.stage[place], chain.way

        def inside(after: Place) -> Front:
            return self.fronts[self.sorted((*state[:j], after, *state[j + 1 :]))]

        for number in chain.states.ways(own):
            floor = max(way["save_need"][number], way["backward_need"][number] + others)
            inner = inside(chain.after(place, number))
            yield Option(floor, way["time"][number], ((inner, way["kept"][number]),), (j, number, -1))
        for split in range(first + 1, chain.length + 1):
            floor, cost = chain.sweep_need[first][split - first - 1], chain.sweep_time[first][split - first - 1]
            left = chain.fronts[own, split - 1]
            inner = inside(chain.place[split, False])
            yield Option(floor, cost, ((inner, chain.x[split]), (left, others)), (j, -1, split))

    def runs(self, room: int) -> list[int]:
        """Return the runs of the best schedule within `room` bytes beyond all inputs."""
        runs: list[int] = []
        stack: list[tuple[State, int, Callable[[], Sequence[int]] | None]] = [(self.start, room, None)]
        while stack:
            state, room, finish = stack.pop()
            if finish is not None:
                runs.extend(finish())
                continue
            option = best(self.options(state), room)
            if option.what is None:
                runs.append(self.join.loss)
                continue
            j, way, split = option.what
            chain, place = self.chains[j], state[j]
            task = self.join.branches[j].task
            if split >= 0:
                runs.extend(task[chain.stage[place] : split].tolist())
                left = room - option.parts[1][1]
                stack.append((state, room, self._segment(j, chain.state(place), split - 1, left)))
                after, under = chain.place[split, False], room - chain.x[split]
            else:
                runs.append(int(task[chain.states.forward_task[way]]))
                backward = int(task[chain.states.backward_task[way]])
                stack.append((state, room, partial(list[int], (backward,))))
                after, under = chain.after(place, way), room - chain.way["kept"][way]
            stack.append(((*state[:j], after, *state[j + 1 :]), under, None))
        return runs

    def _segment(self, j: int, state: int, last: int, room: int) -> Callable[[], Sequence[int]]:
        return lambda: self.chains[j].runs(self.join.branches[j], state, last, room)

    def whole(self) -> tuple[int, list[int]]:
        """Return bytes beyond the inputs, and runs, when each stage is saved once by its fastest option."""
        state, held, need = list(self.start), 0, 0
        backward: list[int] = []
        forward: list[int] = []
        for j, chain in enumerate(self.chains):
            task, quickest = self.join.branches[j].task, chain.states.quickest().tolist()
            for _ in range(chain.length):
                way = quickest[chain.state(state[j])]
                others = sum(c.rest[p] for m, (c, p) in enumerate(zip(self.chains, state, strict=True)) if m != j)
                own = max(chain.way["save_need"][way], chain.way["backward_need"][way] + others)
                need = max(need, held + own)
                held += chain.way["kept"][way]
                backward.append(int(task[chain.states.backward_task[way]]))
                forward.append(int(task[chain.states.forward_task[way]]))
                state[j] = chain.after(state[j], way)
        need = max(need, held + self.loss_need(tuple(state)))
        return need, [*forward, self.join.loss, *reversed(backward)]
