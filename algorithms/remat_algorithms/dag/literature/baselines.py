"""Checkmate's baselines: Chen's checkpoints on linear, articulated and linearised forward graphs.

Jain et al. 2020, "Checkmate", table 1 and section 6.1. Each picks checkpoints among candidate tasks of the forward,
as Chen et al. 2016 ("Training deep nets with sublinear memory cost"). The minimal R for the resulting S completes the
schedule (`Stages.runs`):

- candidates: all tasks of a linear forward (`chen-*`); the articulation points of the undirected forward graph
  (`ap-*`); all tasks of any forward, as if the reference order were a chain (`linearized-*`);
- sqrt: every k-th candidate, where k is the square root of their number, rounded down;
- greedy (Chen's algorithm 3): add up bytes along the forward. A candidate at which the sum exceeds b becomes a
  checkpoint, and the sum restarts at zero. b is searched for the budget.

Segments lie between checkpoints. The values of a segment are freed in the forward and recomputed when the backward
first needs one of them. They stay until the backward has read the last one. The last segment is not freed before its
backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import isqrt

from remat.plugin import Context, OptionError, Problem, Proposal
from remat_algorithms.chain.revolve_chain import ChenGreedyOptions
from remat_algorithms.chain.revolve_chain import solve_chen_greedy as cut_greedily
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.retention_phases import Training, training_of

MOST_LIMITS = 96
"""Maximum number of values of b that the greedy strategies try."""

Candidates = Callable[[Training], Sequence[int]]


def all_tasks(training: Training) -> Sequence[int]:
    """Return all forward stages."""
    return range(training.forward)


def articulation_points(training: Training) -> list[int]:
    """Return the forward stages that are articulation points of the undirected forward graph.

    Hopcroft and Tarjan 1973, without recursion. A vertex is one if no edge leads from the subtree of some child in the
    depth-first tree to above the vertex. A root is one if it has several children. O(vertices + edges).
    """
    count = training.forward
    beside = [[*training.before[stage], *training.after[stage]] for stage in range(count)]
    depth, low, parent = [-1] * count, [0] * count, [-1] * count
    found: set[int] = set()
    for root in range(count):
        if depth[root] >= 0:
            continue
        depth[root] = low[root] = 0
        children_of_root = 0
        path = [(root, iter(beside[root]))]
        while path:
            vertex, others = path[-1]
            other = next(others, None)
            if other is None:
                path.pop()
                above = parent[vertex]
                if above >= 0:
                    low[above] = min(low[above], low[vertex])
                    if above != root and low[vertex] >= depth[above]:
                        found.add(above)
            elif depth[other] < 0:
                parent[other] = vertex
                depth[other] = low[other] = depth[vertex] + 1
                children_of_root += vertex == root
                path.append((other, iter(beside[other])))
            elif other != parent[vertex]:
                low[vertex] = min(low[vertex], depth[other])
        if children_of_root > 1:
            found.add(root)
    return sorted(found)


def every_root(candidates: Sequence[int]) -> list[int]:
    """Return every k-th candidate, where k is the rounded-down square root of their number."""
    step = max(1, isqrt(len(candidates)))
    return list(candidates[step - 1 :: step])


def cut_at(training: Training, candidates: Sequence[int], limit: int) -> list[int]:
    """Return the candidates at which the bytes since the last checkpoint exceed a limit (Chen's algorithm 3)."""
    allowed, chosen, total = set(candidates), [], 0
    for stage, weight in enumerate(training.weight):
        total += weight
        if stage in allowed and total > limit:
            chosen.append(stage)
            total = 0
    return chosen


def runs_for(training: Training, checkpoints: Sequence[int]) -> list[int]:
    """Return the runs for checkpoints, with segments between them."""
    segment, number, ends = [0] * training.forward, 0, set(checkpoints)
    for stage in range(training.forward):
        segment[stage] = number
        number += stage in ends
    # If the last task is a checkpoint, no task follows it: the segment before it is the last one.
    last = segment[-1] if segment else 0
    return training.stages.runs(training.segments(checkpoints, segment, last))


def _limits(training: Training, candidates: Sequence[int]) -> list[int]:
    """Return the limits to try, ascending: the sums between candidates, thinned out to `MOST_LIMITS`."""
    ends = [-1, *candidates, training.forward - 1]
    total, sums = 0, []
    for weight in training.weight:
        total += weight
        sums.append(total)
    pieces = [sums[b] - (sums[a] if a >= 0 else 0) for a, b in pairwise(ends) if b > a]
    least, most = min(pieces, default=0), max(total, 1)
    grid = {max(0, least - 1), total}
    for step in range(MOST_LIMITS):
        # Geometric, in exact integers: least * (most/least)^(step/steps); only the factor is a float.
        share = (max(least, 1) / most) ** (1 - step / MOST_LIMITS)
        grid.add(int(most * share))
    return sorted(grid)


def _sqrt(problem: Problem, name: str, candidates: Candidates) -> Proposal:
    training = training_of(problem, name)
    if candidates is _linear:
        _refuse_unless_linear(training, name)
    runs = runs_for(training, every_root(candidates(training)))
    replay = training.stages.replay(training.stages.useful(runs))
    return Proposal(steps=replay.steps, makespan=replay.time, peak=replay.peak)


def _greedy(
    problem: Problem, name: str, candidates: Candidates, context: Context, *, limit: int | None = None
) -> Proposal:
    training = training_of(problem, name)
    if candidates is _linear:
        _refuse_unless_linear(training, name)
    found = candidates(training)

    def schedules() -> Iterator[list[int] | None]:
        seen: set[tuple[int, ...]] = set()
        for most in _limits(training, found) if limit is None else [limit]:
            checkpoints = cut_at(training, found, most)
            if (key := tuple(checkpoints)) not in seen:
                seen.add(key)
                yield runs_for(training, checkpoints)

    return fastest(problem, training.stages, schedules(), context)


def _linear(training: Training) -> Sequence[int]:
    return all_tasks(training)


def _refuse_unless_linear(training: Training, name: str) -> None:
    if training.is_linear:
        return
    stage = next(t for t, earlier in enumerate(training.before) if earlier != ([t - 1] if t else []))
    task = training.stages.graph.tasks[training.stages.tasks[stage]]
    kind = name.rpartition("-")[2]
    raise OptionError(
        f"{name!r} is defined for a forward that is a chain, and {task!r} does not read exactly from the "
        f"task before it; use 'ap-{kind}' or 'linearized-{kind}'",
        argument="algorithm",
    )


def solve_chen_sqrt(problem: Problem, options: None, context: Context) -> Proposal:
    """Checkpoint every k-th task of a linear forward; raise OptionError for other graphs. O(n * values)."""
    return _sqrt(problem, "chen-sqrt", _linear)


def solve_chen_greedy(problem: Problem, options: ChenGreedyOptions, context: Context) -> Proposal:
    """Checkpoint a linear forward by bytes, b searched; raise OptionError for other graphs. O(n * values) for each b.

    A chain has saving forwards, and its segments are recomputed with them: see `remat_algorithms.chain.revolve_chain`.
    """
    if problem.kind == "chain":
        return cut_greedily(problem, options, context)
    return _greedy(problem, "chen-greedy", _linear, context, limit=options.limit)


def solve_ap_sqrt(problem: Problem, options: None, context: Context) -> Proposal:
    """Checkpoint every k-th articulation point of the forward graph. O(n * values)."""
    return _sqrt(problem, "ap-sqrt", articulation_points)


def solve_ap_greedy(problem: Problem, options: None, context: Context) -> Proposal:
    """Checkpoint articulation points of the forward graph by bytes, b searched. O(n * values) for each b."""
    return _greedy(problem, "ap-greedy", articulation_points, context)


def solve_linearized_sqrt(problem: Problem, options: None, context: Context) -> Proposal:
    """Checkpoint every k-th forward task in reference order. O(n * values)."""
    return _sqrt(problem, "linearized-sqrt", all_tasks)


def solve_linearized_greedy(problem: Problem, options: None, context: Context) -> Proposal:
    """Checkpoint forward tasks in reference order by bytes, b searched. O(n * values) for each b."""
    return _greedy(problem, "linearized-greedy", all_tasks, context)
