"""`feng-huang`: optimal single-reforward checkpoints on arbitrary computation graphs.

Feng and Huang 2018/2021, "Optimal gradient checkpoint search for arbitrary computation graphs" (CVPR 2021): choose
checkpoints C among the vertices of the forward graph. Each other vertex is recomputed exactly once. The segments are
the connected components of the graph without C. Each is recomputed as a whole, from checkpoints only. With l(v) the
bytes of a vertex, minimise

    sum of l(v) over C  +  max over segments of sum of l(v) in the segment.

The paper fixes the maximal term c and finds the minimum checkpoint bytes b(c) whose segments hold at most c each
(equations 3-4, its accessibility graph). It uses shortest paths on chains, and a division tree on other graphs. Here,
b(c) comes from a dynamic programme along the reference order over the frontier (vertices with an edge to a later one).
It is exact for all graphs. A state records the checkpoints of the frontier, which frontier vertices are connected, and
the bytes of each segment that is still open. Of two alike states, one with fewer bytes everywhere suffices.

Since b falls as c grows, an interval of c is skipped if b(its upper end) plus its lower end is no better than the best
answer. Graphs that are too wide for that, for example dense blocks, are divided as in the paper (`division`). The
division gives the same b(c) for rows and parallel sets, and few bytes for others.

This class of schedules minimises memory without a budget: this is a strategy, with one schedule per instance.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count as counting

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.dag.literature.division import CHECKPOINT, divided_bytes, freed, largest_segment, segments_of
from remat_algorithms.dag.literature.retention_phases import Training, training_of


class FengHuangOptions(Options):
    """Options of `feng-huang`."""

    states: int = Field(
        2_000,
        ge=1,
        description="maximum number of simultaneous states of the exact search; with more, use the division tree",
    )


MOST_CAPS = 60
EVEN_CAPS = 40
"""Number of values of c for which a graph is divided."""

Fewest = Callable[[int, int], tuple[int, list[int]] | None]


class TooWide(Exception):
    """More states than allowed."""


class Stopped(Exception):
    """The time is over."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _State:
    """Bytes of checkpoints, bytes of the open segments, and the states before."""

    bytes: int
    open: tuple[int, ...]
    checkpoint: int
    origin: _State | None


def best_checkpoints(
    before: Sequence[Sequence[int]], weight: Sequence[int], most_states: int, stopped: Callable[[], bool] = _never
) -> tuple[int, list[int]]:
    """Return the minimum sum of checkpoints and largest segment, and checkpoints that reach it.

    Parameters
    ----------
    before : sequence of sequences of int
        For each vertex the earlier ones that it is joined to.
    weight : sequence of int
        Bytes of each vertex.
    most_states : int
    stopped : callable
        Whether to give up.

    Returns
    -------
    (int, list of int)

    Raises
    ------
    TooWide
        If the frontier takes more than `most_states` states.
    Stopped
    """

    def fewest(cap: int, ceiling: int) -> tuple[int, list[int]] | None:
        return fewest_bytes(before, weight, cap, ceiling, most_states, stopped)

    return _best(before, weight, fewest)


def divided_checkpoints(
    before: Sequence[Sequence[int]], weight: Sequence[int], stopped: Callable[[], bool] = _never
) -> tuple[int, list[int]]:
    """Return checkpoints by the division tree, and the sum of their bytes and those of the largest segment.

    The arguments are those of `best_checkpoints`. At most `MOST_CAPS` values of c are tried, and `EVEN_CAPS` in equal
    proportions, since the bytes found need not fall as c grows. A stop ends the tries.
    """
    tried = counting(1)
    low, high = max(1, *weight, 1), max(1, sum(weight))
    caps = {round(low * (high / low) ** (k / EVEN_CAPS)) for k in range(EVEN_CAPS)}

    def fewest(cap: int, ceiling: int) -> tuple[int, list[int]] | None:
        if next(tried) > MOST_CAPS or stopped():
            return None
        found = divided_bytes(before, weight, cap)
        return found if found[0] < ceiling else None

    best = _best(before, weight, fewest)
    for cap in sorted(caps):
        if not stopped():
            stored, checkpoints = divided_bytes(before, weight, cap)
            best = min(best, (stored + largest_segment(before, weight, checkpoints), checkpoints))
    return freed(before, weight, *best)


def _best(before: Sequence[Sequence[int]], weight: Sequence[int], fewest: Fewest) -> tuple[int, list[int]]:
    """Return the minimum of c + b(c) and its checkpoints; `fewest` computes b from c and a ceiling for b."""
    largest = max(weight, default=0)
    best_total, best = sum(weight), list(range(len(weight)))
    # Best first over intervals [low, high] of c, by the lower bound b(high + 1) + low.
    order = counting()
    queue = [(0, next(order), 0, sum(weight))]
    while queue:
        bound, _, low, high = heapq.heappop(queue)
        if bound >= best_total or low > high:
            continue
        middle = high if high - low <= largest // 64 else (low + high) // 2
        found = fewest(middle, best_total - low)
        if found is None:
            # b(middle) + low is no better than the best total, and no c in between is better.
            heapq.heappush(queue, (max(bound, middle + 1), next(order), middle + 1, high))
            continue
        used, checkpoints = found
        actual = largest_segment(before, weight, checkpoints)
        if used + actual < best_total:
            best_total, best = used + actual, checkpoints
        heapq.heappush(queue, (max(bound, middle + 1), next(order), middle + 1, high))
        # Between the largest segment found and `middle`, b is the same, and the sum no better.
        heapq.heappush(queue, (used + low, next(order), low, min(middle, actual) - 1))
    return best_total, best


def fewest_bytes(
    before: Sequence[Sequence[int]],
    weight: Sequence[int],
    cap: int,
    ceiling: int,
    most_states: int,
    stopped: Callable[[], bool] = _never,
) -> tuple[int, list[int]] | None:
    """Return the fewest bytes of checkpoints that leave segments of at most `cap` bytes; None if not below `ceiling`.

    Raises
    ------
    TooWide, Stopped
    """
    last = list(range(len(before)))
    for vertex, earlier in enumerate(before):
        for other in earlier:
            last[other] = vertex
    frontier: list[int] = []
    states: dict[tuple[int, ...], list[_State]] = {(): [_State(0, (), CHECKPOINT, None)]}
    for vertex, earlier in enumerate(before):
        if stopped():
            raise Stopped
        places = [frontier.index(other) for other in earlier]
        wide = [*frontier, vertex]
        stays = [place for place, other in enumerate(wide) if last[other] > vertex]
        following: dict[tuple[int, ...], list[_State]] = {}
        for labels, alike in states.items():
            joined = {labels[place] for place in places} - {CHECKPOINT}
            fresh = max(labels, default=CHECKPOINT) + 1
            merged = [fresh if label in joined else label for label in labels]
            for state in alike:
                if state.bytes + weight[vertex] < ceiling:
                    kept = _narrowed([*labels, CHECKPOINT], [*state.open, 0], stays)
                    following.setdefault(kept[0], []).append(
                        _State(state.bytes + weight[vertex], kept[1], vertex, state)
                    )
                together = weight[vertex] + sum(state.open[label] for label in joined)
                if together <= cap:
                    kept = _narrowed([*merged, fresh], [*state.open, together], stays)
                    following.setdefault(kept[0], []).append(_State(state.bytes, kept[1], CHECKPOINT, state))
        states = {labels: _undominated(alike) for labels, alike in following.items()}
        if sum(map(len, states.values())) > most_states:
            raise TooWide
        frontier = [wide[place] for place in stays]
    final = min((state for alike in states.values() for state in alike), key=lambda s: s.bytes, default=None)
    if final is None:
        return None
    used, checkpoints = final.bytes, []
    walk: _State | None = final
    while walk is not None:
        if walk.checkpoint != CHECKPOINT:
            checkpoints.append(walk.checkpoint)
        walk = walk.origin
    return used, checkpoints[::-1]


def _narrowed(labels: list[int], totals: list[int], stays: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Keep some places, and renumber their segments by first appearance."""
    number: dict[int, int] = {CHECKPOINT: CHECKPOINT}
    for place in stays:
        number.setdefault(labels[place], len(number) - 1)
    return tuple(number[labels[place]] for place in stays), tuple(totals[label] for label in number if label >= 0)


def _undominated(states: list[_State]) -> list[_State]:
    """Drop dominated states."""
    states.sort(key=lambda state: (state.bytes, state.open))
    if not states[0].open:
        return states[:1]
    if len(states[0].open) == 1:
        kept, least = [], None
        for state in states:
            if least is None or state.open[0] < least:
                kept.append(state)
                least = state.open[0]
        return kept
    kept = []
    for state in states:
        if not any(all(a <= b for a, b in zip(other.open, state.open, strict=True)) for other in kept):
            kept.append(state)
    return kept


def runs_for(training: Training, checkpoints: Sequence[int]) -> list[int]:
    """Return the runs: every segment except the last of the forward is recomputed once."""
    segment = segments_of(training.before, checkpoints)
    last = segment[-1] if segment and segment[-1] != CHECKPOINT else None
    for stage in checkpoints:
        # Values that a checkpoint does not keep (saved tensors of a chain) are recomputed with the segment before it.
        joined = [segment[other] for other in training.before[stage] if other not in checkpoints]
        segment[stage] = joined[-1] if joined else stage
    return training.stages.runs(training.segments(checkpoints, segment, last))


def solve(problem: Problem, options: FengHuangOptions, context: Context) -> Proposal:
    """Return the schedule of the checkpoints with minimum memory in the model.

    Each c takes O(n * states^2) at worst, O(n * states) on chains. If a wide forward needs more states than option
    `states` allows, the checkpoints are those of the division tree (`division`).
    """
    training = training_of(problem, "feng-huang")
    try:
        _, checkpoints = best_checkpoints(training.before, training.weight, options.states, lambda: context.stopped)
    except Stopped:
        return Proposal(termination=context.termination)
    except TooWide:
        _, checkpoints = divided_checkpoints(training.before, training.weight, lambda: context.stopped)
    stages = training.stages
    replay = stages.replay(stages.useful(runs_for(training, checkpoints)))
    return Proposal(steps=replay.steps, makespan=replay.time, peak=replay.peak)
