"""`min-cut`: PyTorch's min-cut rematerialisation partitioner (AOTAutograd), on a task graph.

A minimum cut decides which values of the forward are saved for the backward. Each forward value v is an edge
v_in -> v_out of capacity size(v). Values that the backward reads have an edge from v_out to the sink. v may be
recomputed from the values that its task reads (edges u_out -> v_in). Values that must not be recomputed are joined to
the source. A cut is a set of saved values from which all values that the backward needs can be recomputed. A minimum
cut saves the fewest bytes. PyTorch also weighs bytes by the distance from the backward; here they are not weighted.

PyTorch bans compute-intensive operations from recomputation. A task graph knows no operations. The tasks with the most
time per byte are banned instead, and their number is searched for the budget. Banning all gives keep-all; banning none
saves the fewest bytes.

Every recomputed value is recomputed once, when the backward first needs it, and stays until its last use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal
from remat_algorithms.dag.literature.fastest_that_fits import fastest
from remat_algorithms.dag.literature.retention_phases import Training, training_of


class MinCutOptions(Options):
    """Options of `min-cut`."""

    bans: int = Field(64, ge=1, le=10_000, description="how many numbers of banned tasks to try, evenly spaced")


def solve(problem: Problem, options: MinCutOptions, context: Context) -> Proposal:
    """Return the fastest schedule that fits, over the numbers of banned tasks.

    Each number takes one maximum flow, and O(n * values).
    """
    training = training_of(problem, "min-cut")

    def schedules() -> Iterator[list[int]]:
        order = by_intensity(training)
        counts = {len(order) * step // options.bans for step in range(options.bans + 1)}
        for count in sorted(counts, reverse=True):
            _, saved = minimum_cut(training, order[:count])
            yield training.stages.runs(training.saved(saved))

    return fastest(problem, training.stages, schedules(), context)


def by_intensity(training: Training) -> list[int]:
    """Return the forward stages by time per byte, most first (of equals the later ones)."""
    time, weight = training.stages.time, training.weight
    return sorted(range(training.forward), key=lambda t: (-time[t] / max(weight[t], 1), -t))


Edge = tuple[int, int, int]
"""From a vertex to a vertex, and its capacity."""


def cut_network(training: Training, banned: Collection[int]) -> tuple[list[Edge], list[int]]:
    """Return the network and its values: value number k is the k-th edge, 2k -> 2k+1.

    For V values, the source is vertex 2V, the sink 2V+1.
    """
    stages = training.stages
    forward = [v for v, maker in enumerate(stages.maker) if 0 <= maker < training.forward]
    inputs = sorted({v for t in range(training.forward) for v in stages.reads[t] if stages.maker[v] < 0})
    values = inputs + forward
    number = {value: k for k, value in enumerate(values)}
    source, sink = 2 * len(values), 2 * len(values) + 1
    unbounded = sum(stages.size[value] for value in values) + 1
    held = set(banned)
    edges = [
        (2 * k, 2 * k + 1, 0 if value in stages.graph.pinned else stages.size[value]) for k, value in enumerate(values)
    ]
    for value, k in number.items():
        maker = stages.maker[value]
        if stages.fixed[value] or maker in held:
            edges.append((source, 2 * k, unbounded))
        else:
            # A value that a later stage overwrites is fixed, so everything read here is in the network.
            edges += [(2 * number[other] + 1, 2 * k, unbounded) for other in stages.reads[maker]]
        if training.backward_uses[value]:
            edges.append((2 * k + 1, sink, unbounded))
    return edges, values


def nearest_cut(edges: Iterable[Edge], source: int, sink: int) -> tuple[int, set[int]]:
    """Return the value of a maximum flow, and the smallest source side of any minimum cut.

    Capacities are integral and exact, up to a flow of 2^63 - 1. All maximum flows have the same smallest side: the
    vertices that the residual network reaches from the source.
    """
    from ortools.graph.python import max_flow

    # The last edge carries no flow: it tells the solver both ends.
    tails, heads, capacities = zip(*edges, (source, sink, 0), strict=True)
    flow: Any = max_flow.SimpleMaxFlow()
    flow.add_arcs_with_capacity(
        np.array(tails, dtype=np.int32), np.array(heads, dtype=np.int32), np.array(capacities, dtype=np.int64)
    )
    status = flow.solve(source, sink)
    assert status == flow.OPTIMAL, f"the solver reports {status} for a bounded flow"
    return flow.optimal_flow(), set(flow.get_source_side_min_cut())


def minimum_cut(training: Training, banned: Collection[int]) -> tuple[int, list[int]]:
    """Return the bytes of the minimum cut that is nearest to the inputs, and the forward values in it.

    Parameters
    ----------
    training : Training
    banned : collection of int
        Forward stages whose values may not be recomputed.

    Returns
    -------
    (int, list of int)
        Inputs count in the bytes, unless they are pinned, and are not listed.
    """
    edges, values = cut_network(training, banned)
    flow, side = nearest_cut(edges, 2 * len(values), 2 * len(values) + 1)
    saved = [
        v for k, v in enumerate(values) if 2 * k in side and 2 * k + 1 not in side and training.stages.maker[v] >= 0
    ]
    return flow, saved
