"""Linear program of shared loads: each unit may run on several processors, each for a fraction of the samples.

    minimise T,  sum over p of x[u, p] = 1,  x[u, p] <= y[w, M(p)] for the parameters w of u,
    sum over w of size_w y[w, M] <= room_M,  sum over M of y[w, M] <= copies_w,
    sum over u of t[u, p] x[u, p] + transfers of p <= T

On a star, a memory receives a value at least for the excess of its reading share over its producing share of the
samples. It sends at least the opposite excess. In a chain of units, samples can be assigned such that these minima are
attained. On other machines, transfers cost nothing in the program, and the results are measured with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from remat.plugin import Context
from remat_algorithms.kit.programs.duals import solve_linear
from remat_algorithms.kit.programs.program import FloatArray, Program, ProgramBuilder
from remat_algorithms.parallel.placement.model import Model

ROUNDING = 1e-9
"""Relative difference up to which shares count as reaching the bound on the time per sample."""

Copies = Mapping[tuple[int, int], bool]
"""Whether an input is in a memory, by (value, memory); other pairs are undecided."""


@dataclass(frozen=True)
class Split:
    """A solution of the program.

    Attributes
    ----------
    share : (units, processors) float64
    copies : mapping of (value, memory) to float
    """

    share: FloatArray
    copies: dict[tuple[int, int], float]


class Fractions:
    """The program of a model, for any choice of copies, solved within the time left."""

    def __init__(self, model: Model, context: Context, less: Sequence[int] = ()) -> None:
        self.model, self.context = model, context
        graph = model.graph
        self.most = {place.value: place.copies for place in graph.placeable}
        self.memories = sorted(set(model.memory_of))
        builder = ProgramBuilder()
        self.period = builder.add_column(cost=1.0)
        self.share = [
            [builder.add_column(upper=1.0 if math.isfinite(model.time[p, u]) else 0.0) for p in range(model.processors)]
            for u in range(model.units)
        ]
        values = sorted({value for own in model.parameters for value in own})
        self.copy = {(value, memory): builder.add_column() for value in values for memory in self.memories}
        for own in self.share:
            builder.add_row([(column, 1.0) for column in own], lower=1.0, upper=1.0)
        for unit, parameters in enumerate(model.parameters):
            for value in parameters:
                for memory in self.memories:
                    own = [self.share[unit][p] for p in range(model.processors) if model.memory_of[p] == memory]
                    builder.add_row([*((c, 1.0) for c in own), (self.copy[value, memory], -1.0)], upper=0.0)
        for value in values:
            builder.add_row([(self.copy[value, m], 1.0) for m in self.memories], lower=1.0, upper=self.most[value])
        self._hold(builder, values, less)
        busy: dict[int, list[tuple[int, float]]] = {p: [] for p in range(model.processors)}
        for unit in range(model.units):
            for processor in range(model.processors):
                if model.time[processor, unit] and math.isfinite(model.time[processor, unit]):
                    busy[processor].append((self.share[unit][processor], float(model.time[processor, unit])))
        self.transfers: list[int] = []
        self._send(builder, busy)
        # A power of two near the longest time: the tolerances of the solver are absolute, and dividing is exact.
        longest_time = max((time for own in busy.values() for _, time in own), default=1.0)
        self.unit = 2.0 ** math.frexp(longest_time)[1]
        builder.upper[self.period] = longest(busy.values()) / self.unit
        for resource in sorted(busy):
            scaled = [(column, time / self.unit) for column, time in busy[resource]]
            builder.add_row([*scaled, (self.period, -1.0)], upper=0.0)
        self.program = builder.build()

    def _hold(self, builder: ProgramBuilder, values: Sequence[int], less: Sequence[int]) -> None:
        sizes = {value: int(self.model.graph.size[value]) for value in values}
        largest = float(max(sizes.values(), default=1) or 1)
        for memory in self.memories:
            room = self.model.room[memory]
            if room is not None:
                room = max(0, room - (less[memory] if less else 0))
                entries = [(self.copy[value, memory], sizes[value] / largest) for value in values if sizes[value]]
                builder.add_row(entries, upper=room / largest)

    def _send(self, builder: ProgramBuilder, busy: dict[int, list[tuple[int, float]]]) -> None:
        """Add the shares of each flow that a memory sends and receives; on a star, they occupy the links."""
        model, star = self.model, self.model.star
        for flow in model.flows:
            for memory in self.memories:
                if star is not None and memory == star.hub:
                    continue
                made = self._inside(flow.maker, memory)
                sent, received = builder.add_column(), builder.add_column()
                for reader in flow.readers:
                    read = self._inside(reader, memory)
                    # The excess of production over reading is sent, and the opposite excess is received.
                    difference = [*((c, 1.0) for c in read), *((c, -1.0) for c in made)]
                    builder.add_row([(received, 1.0), *((c, -f) for c, f in difference)], lower=0.0)
                    builder.add_row([(sent, 1.0), *difference], lower=0.0)
                self.transfers += sent, received
                if star is not None:
                    for link, used in ((star.away[memory], sent), (star.back[memory], received)):
                        for resource in model.machine.held_by_link[link]:
                            busy.setdefault(resource, []).append((used, float(model.copy_time(link, flow.value))))

    def _inside(self, unit: int, memory: int) -> list[int]:
        return [self.share[unit][p] for p in range(self.model.processors) if self.model.memory_of[p] == memory]

    def solve(self, copies: Copies) -> tuple[float, Split | None]:
        """Solve the program with some copies fixed.

        Returns
        -------
        float, Split or None
            A proved lower bound on the time per sample with these copies, infinite if infeasible. And the best shares,
            or None if the solver found none.
        """
        program = self._fixed(copies)
        solved = solve_linear(program, self.context.seconds_left)
        return solved.bound * self.unit, None if solved.solution is None else self._split(solved.solution)

    def with_fewest_transfers(self, copies: Copies, bound: float) -> Split | None:
        """Return the shares that move the fewest values, among those that reach a bound except for rounding."""
        program = self._fixed(copies)
        program.upper[self.period] = bound / self.unit * (1 + ROUNDING)
        cost = np.zeros(program.columns)
        cost[self.transfers] = 1.0
        solved = solve_linear(replace(program, cost=cost), self.context.seconds_left)
        return None if solved.solution is None else self._split(solved.solution)

    def _fixed(self, copies: Copies) -> Program:
        lower, upper = self.program.lower.copy(), self.program.upper.copy()
        for place, there in copies.items():
            column = self.copy[place]
            lower[column] = upper[column] = 1.0 if there else 0.0
        return replace(self.program, lower=lower, upper=upper)

    def _split(self, solution: FloatArray) -> Split:
        share = np.array([[solution[c] for c in row] for row in self.share], dtype=np.float64)
        share = np.maximum(share, 0.0)
        found = {place: float(solution[column]) for place, column in self.copy.items()}
        return Split(share / share.sum(axis=1, keepdims=True), found)

    def fits(self, copies: Copies) -> bool:
        """Whether the inputs fixed in memories respect the capacities and the numbers of copies."""
        held = dict.fromkeys(self.memories, 0)
        count: dict[int, int] = {}
        for (value, memory), there in copies.items():
            if there:
                held[memory] += int(self.model.graph.size[value])
                count[value] = count.get(value, 0) + 1
        rooms = self.model.room
        return all(rooms[m] is None or size <= (rooms[m] or 0) for m, size in held.items()) and all(
            number <= self.most[value] for value, number in count.items()
        )


def longest(busy: Iterable[Sequence[tuple[int, float]]]) -> float:
    """Return an upper bound on the period: the total busy time of all resources."""
    return sum(time for own in busy for _, time in own) or 1.0


def dealt(model: Model, share: FloatArray, most: int) -> list[list[list[int]]]:
    """Return placements of the samples of a period, as processors, for several numbers of samples up to `most`.

    Counts are the shares rounded to whole samples. The samples of each unit are assigned near their previously assigned
    producers and readers where possible.
    """
    found = []
    for samples in _denominators(share, most):
        counts = _rounded(share, samples)
        found.append(_deal(model, counts, samples))
    return found


def _denominators(share: FloatArray, most: int) -> list[int]:
    """Return numbers of samples per period: the smallest that makes all shares integers, and the closest others."""
    best: list[tuple[float, int]] = []
    for samples in range(1, most + 1):
        off = float(np.abs(share * samples - np.rint(share * samples)).max()) / samples
        best.append((off, samples))
        if off * samples < 1e-7:
            break
    exact = best[-1][1] if best[-1][0] * best[-1][1] < 1e-7 else None
    chosen = sorted(best)[:3]
    return sorted({samples for _, samples in chosen} | ({exact} if exact else set()))


def _rounded(share: FloatArray, samples: int) -> list[list[int]]:
    """Return integers close to the shares of `samples`, with the same total (largest remainders)."""
    found = []
    for row in share.tolist():
        whole = [math.floor(part * samples + 1e-9) for part in row]
        rest = sorted(range(len(row)), key=lambda p: (whole[p] - row[p] * samples, p))
        for processor in rest[: samples - sum(whole)]:
            whole[processor] += 1
        found.append(whole)
    return found


def _deal(model: Model, counts: Sequence[Sequence[int]], samples: int) -> list[list[int]]:
    homes = [[-1] * model.units for _ in range(samples)]
    near: list[list[tuple[int, int]]] = [[] for _ in range(model.units)]
    for flow in model.flows:
        for reader in flow.readers:
            near[reader].append((flow.maker, flow.size + 1))
            near[flow.maker].append((reader, flow.size + 1))
    for unit in range(model.units):
        left = list(counts[unit])
        scores = []
        for sample in range(samples):
            there: dict[int, int] = {}
            for other, size in near[unit]:
                home = homes[sample][other]
                if home >= 0:
                    there[model.memory_of[home]] = there.get(model.memory_of[home], 0) + size
            for processor, number in enumerate(left):
                if number:
                    scores.append((-there.get(model.memory_of[processor], 0), sample, processor))
        for _, sample, processor in sorted(scores):
            if left[processor] and homes[sample][unit] < 0:
                homes[sample][unit] = processor
                left[processor] -= 1
    return homes
