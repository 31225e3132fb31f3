"""`kusumoto-exact`, `kusumoto-approx`: canonical strategies over sequences of lower sets.

Kusumoto, Inoue, Watanabe, Akiba and Koyama 2019, "A graph theoretic framework of recomputation algorithms for
memory-efficient backpropagation". The forward graph (V, E) has bytes M_v and times T_v. A lower set is closed under
predecessors. Its boundary d(L) consists of its vertices with a successor outside. A canonical strategy is a sequence
L_1 < ... < L_k = V of lower sets. The forward keeps the boundaries U_i = d(L_1) + ... + d(L_i) and frees the rest of
each V_i = L_i - L_{i-1}. The backward recomputes V_k, ..., V_1, one after the other. In the paper's model

- overhead: sum over i of T(V_i - d(L_i));
- memory: max over i of M(U_{i-1}) + 2 M(V_i) + M(S_i - L_i) + M(P_i - L_i), with S_i the successors of L_i and P_i the
  predecessors of S_i.

A dynamic programme over (L, t) minimises M(U). From L to L' > L, t' = t + T(V' - d(L')) and m' = m + M(d(L') - L), if
the memory of V' is within the model's budget. The exact algorithm uses all lower sets, O(T #L^2). The approximate one
uses the ancestors of each vertex (itself included) and V, O(T n^2).

The model's budget differs from the budget of the true peak. A fixed set of model budgets is solved. Each result is
placed without recomputing its last segment, and measured. The fastest schedule that fits is returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from remat.plugin import BoolArray, Context, Options, Problem, Proposal
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.retention_phases import Training, training_of

FloatArray = NDArray[np.float64]
LOWEST = 64
"""Smallest model budget, as a share of the model budget of keep-all."""

CONDENSED = 100
"""Maximum number of lower sets of a condensed graph; the lower sets of `kusumoto-approx` are searched with them."""

Objective = Literal["time", "memory"]


class ApproximateOptions(Options):
    """Options of `kusumoto-approx`."""

    budgets: int = Field(32, ge=1, le=10_000, description="number of model budgets to try")
    objective: Objective = Field(
        "time",
        description="objective in the paper's model: minimum overhead (time), or maximum overhead (memory), which "
        "usually has the lowest peak",
    )


class ExactOptions(ApproximateOptions):
    """Options of `kusumoto-exact`."""

    most_sets: int = Field(
        2_000,
        ge=1,
        le=20_000,
        description="maximum number of lower sets; in graphs with more, neighbouring tasks are merged",
    )


@dataclass(frozen=True)
class Family:
    """Lower sets of a forward graph, ascending, the empty one first and V last; figures of all pairs.

    Attributes
    ----------
    sets : (sets, vertices) bool
    overhead : (sets, sets) float64
        T(L' - L - d(L')), for L in row and L' in column.
    kept : (sets, sets) float64
        M(d(L') - L).
    memory : (sets, sets) float64
        2 M(L' - L) + M(S' - L') + M(P' - L'), without M(U); infinite if L is not a subset of L'.
    """

    sets: BoolArray
    overhead: FloatArray
    kept: FloatArray
    memory: FloatArray


def family_of(sets: BoolArray, before: Sequence[Sequence[int]], size: FloatArray, time: FloatArray) -> Family:
    """Return the figures of all pairs of lower sets; O(sets^2 * vertices)."""
    count = len(before)
    edges = np.zeros((count, count), dtype=bool)
    for vertex, earlier in enumerate(before):
        edges[list(earlier), vertex] = True
    inside = sets[np.argsort(sets.sum(axis=1), kind="stable")]
    as_number = inside.astype(np.float64)
    follows = as_number @ edges > 0
    boundary = inside & ((~inside).astype(np.float64) @ edges.T > 0)
    feeds = follows.astype(np.float64) @ edges.T > 0
    beyond = ((follows & ~inside) * size).sum(axis=1) + ((feeds & ~inside) * size).sum(axis=1)
    freed = (inside & ~boundary) * time
    overhead = freed.sum(axis=1)[None, :] - as_number @ freed.T
    kept = (boundary * size).sum(axis=1)[None, :] - as_number @ (boundary * size).T
    bytes_of = (inside * size).sum(axis=1)
    memory = 2 * (bytes_of[None, :] - bytes_of[:, None]) + beyond[None, :]
    part = (as_number @ (~inside).astype(np.float64).T) == 0
    np.fill_diagonal(part, val=False)
    memory[~part] = np.inf
    return Family(inside, overhead, kept, memory)


def all_lower_sets(before: Sequence[Sequence[int]], most: int) -> BoolArray | None:
    """Return all lower sets, the empty one included; None if more than `most` others exist."""
    needs = [sum(1 << other for other in earlier) for earlier in before]
    found, frontier = {0}, [0]
    while frontier:
        following = []
        for mask in frontier:
            for vertex, need in enumerate(needs):
                larger = mask | 1 << vertex
                if not mask >> vertex & 1 and need & ~mask == 0 and larger not in found:
                    found.add(larger)
                    following.append(larger)
            if len(found) > most + 1:
                return None
        frontier = following
    return _matrix(sorted(found), len(needs))


def condensed(before: Sequence[Sequence[int]], weight: Sequence[int], most: int) -> tuple[list[list[int]], BoolArray]:
    """Join neighbouring vertices until a graph has few lower sets; return the groups, and the lower sets of these.

    First, neighbours in a row are joined (the second reads only the first, and is its only reader). Those whose cut
    would keep most bytes come first. Then vertices with the same neighbours are joined, then neighbours in the order of
    the graph. No join creates a cycle.

    Parameters
    ----------
    before : sequence of sequences of int
        For each vertex, in order, the earlier ones that it reads.
    weight : sequence of int
        Bytes of each vertex.
    most : int
        Maximum number of lower sets, without the empty one.
    """
    groups = [[vertex] for vertex in range(len(before))]
    while True:
        place = {vertex: index for index, group in enumerate(groups) for vertex in group}
        reads = [{place[o] for v in group for o in before[v]} - {index} for index, group in enumerate(groups)]
        found = all_lower_sets([sorted(row) for row in reads], most)
        if found is not None:
            return groups, found
        groups = _joined(groups, reads, weight)


def with_ancestors(before: Sequence[Sequence[int]], groups: Sequence[list[int]], found: BoolArray) -> BoolArray:
    """Return the lower sets of a graph that are those of its groups, or the ancestors of a vertex."""
    masks = {0}
    for row in found:
        masks.add(sum(1 << vertex for index in np.flatnonzero(row).tolist() for vertex in groups[index]))
    for row in ancestor_sets(before):
        masks.add(sum(1 << vertex for vertex in np.flatnonzero(row).tolist()))
    return _matrix(sorted(masks), len(before))


def _joined(groups: list[list[int]], reads: Sequence[set[int]], weight: Sequence[int]) -> list[list[int]]:
    """Join some groups, at most an eighth of them; each group still reads earlier ones only."""
    readers: list[set[int]] = [set() for _ in groups]
    for index, row in enumerate(reads):
        for other in row:
            readers[other].add(index)
    pairs = [(min(row), index) for index, row in enumerate(reads) if len(row) == 1 and readers[min(row)] == {index}]
    pairs.sort(key=lambda pair: (-weight[groups[pair[0]][-1]], pair))
    if not pairs:
        alike: dict[tuple[frozenset[int], frozenset[int]], int] = {}
        for index, row in enumerate(reads):
            first = alike.setdefault((frozenset(row), frozenset(readers[index])), index)
            pairs += [(first, index)] if first != index else []
    if not pairs:
        pairs = [(index, index + 1) for index in range(len(groups) - 1)]
    into: dict[int, int] = {}
    used: set[int] = set()
    for one, other in pairs:
        if not {one, other} & used:
            used |= {one, other}
            into[other] = one
            if len(into) > len(groups) // 8:
                break
    members: dict[int, list[int]] = {}
    needs: dict[int, set[int]] = {}
    for index, group in enumerate(groups):
        mine = into.get(index, index)
        members.setdefault(mine, []).extend(group)
        needs.setdefault(mine, set()).update({into.get(other, other) for other in reads[index]} - {mine})
    return [members[index] for index in TopologicalSorter(needs).static_order()]


def ancestor_sets(before: Sequence[Sequence[int]]) -> BoolArray:
    """Return the empty set, the ancestors of each vertex (itself included), and all vertices."""
    masks: list[int] = []
    for vertex, earlier in enumerate(before):
        mask = 1 << vertex
        for other in earlier:
            mask |= masks[other]
        masks.append(mask)
    return _matrix(sorted({0, *masks, (1 << len(masks)) - 1}), len(masks))


def _matrix(masks: Sequence[int], count: int) -> BoolArray:
    width = (count + 7) // 8
    rows = np.frombuffer(b"".join(mask.to_bytes(max(width, 1), "little") for mask in masks), dtype=np.uint8)
    bits = np.unpackbits(rows.reshape(len(masks), -1), axis=1, bitorder="little")
    return bits[:, :count].astype(bool)


def best_sequence(
    family: Family, budget: float, objective: Objective, context: Context
) -> tuple[float, list[int]] | None:
    """Return the overhead and the sequence of lower sets (rows) that is best within a model budget.

    Returns
    -------
    (float, list of int) or None
        None if no sequence is within the budget, or the context is stopped.
    """
    sign = 1.0 if objective == "time" else -1.0
    # All states: set, signed overhead, bytes kept, and predecessor state.
    at, cost, held, origin = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1), np.full(1, -1)
    for target in range(1, len(family.sets)):
        if context.stopped:
            return None
        open_states = np.flatnonzero(held + family.memory[at, target] <= budget)
        source = at[open_states]
        new_cost = cost[open_states] + sign * family.overhead[source, target]
        new_held = held[open_states] + family.kept[source, target]
        order = np.lexsort((new_held, new_cost))
        low = np.minimum.accumulate(new_held[order])
        order = order[np.concatenate(([True], low[1:] < low[:-1]))] if len(order) else order
        at = np.concatenate((at, np.full(len(order), target)))
        cost, held = np.concatenate((cost, new_cost[order])), np.concatenate((held, new_held[order]))
        origin = np.concatenate((origin, open_states[order]))
    final = np.flatnonzero(at == len(family.sets) - 1)
    if not len(final):
        return None
    state = int(final[np.argmin(cost[final])])
    best, sequence = float(cost[state]), []
    while state > 0:
        sequence.append(int(at[state]))
        state = int(origin[state])
    return sign * best, sequence[::-1]


def runs_for(training: Training, family: Family, sequence: Sequence[int]) -> list[int]:
    """Return the runs of a canonical strategy."""
    segment = np.zeros(training.forward, dtype=np.int64)
    for row in sequence[:-1]:
        segment += ~family.sets[row]
    checkpoints: set[int] = set()
    for row in sequence:
        inside = family.sets[row]
        checkpoints.update(
            stage
            for stage in np.flatnonzero(inside).tolist()
            if any(not inside[other] for other in training.after[stage])
        )
    return training.stages.runs(training.segments(checkpoints, segment.tolist(), len(sequence) - 1))


def _solve(
    problem: Problem, training: Training, sets: BoolArray, options: ApproximateOptions, context: Context
) -> Proposal:
    size = np.array(training.weight, dtype=np.float64)
    time = np.array(training.stages.time[: training.forward], dtype=np.float64)

    def schedules() -> Iterator[list[int] | None]:
        yield None
        family = family_of(sets, training.before, size, time)
        seen = set()
        for step in range(options.budgets + 1):
            budget = 2 * float(size.sum()) * LOWEST ** (-step / options.budgets)
            found = best_sequence(family, budget * (1 + 1e-12), options.objective, context)
            if found is None:
                return
            if (key := tuple(found[1])) not in seen:
                seen.add(key)
                yield runs_for(training, family, found[1])

    return fastest(problem, training.stages, schedules(), context)


def solve_exact(problem: Problem, options: ExactOptions, context: Context) -> Proposal:
    """Search all lower sets, for each of the model budgets. Memory O(#L^2).

    If the forward has more lower sets than option `most_sets`, the search uses those of its condensed graph, and those
    of `kusumoto-approx`.
    """
    training = training_of(problem, "kusumoto-exact")
    sets = all_lower_sets(training.before, options.most_sets)
    notes: tuple[str, ...] = ()
    if sets is None:
        groups, found = condensed(training.before, training.weight, min(options.most_sets, CONDENSED))
        sets = with_ancestors(training.before, groups, found)
        notes = (
            f"{training.forward} forward tasks have too many lower sets: they are searched as {len(groups)} groups",
        )
    proposal = _solve(problem, training, sets, options, context)
    return replace(proposal, notes=(*proposal.notes, *notes))


def solve_approx(problem: Problem, options: ApproximateOptions, context: Context) -> Proposal:
    """Search the lower sets that are the ancestors of a vertex, for each of the model budgets."""
    training = training_of(problem, "kusumoto-approx")
    return _solve(problem, training, ancestor_sets(training.before), options, context)
