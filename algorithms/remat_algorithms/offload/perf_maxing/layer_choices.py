"""The choices within a layer of `auto-perf-maxing`: nodes to keep, recompute and offload, given the shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from remat_algorithms.kit.programs.cp_sat import solve
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.offload.perf_maxing.layer_storages import Node

MEBIBYTE = 2**20
OVERSHOOT = 1.05
"""Excess over the layer's share that the program may offload."""

MOST_CELLS = 512
"""Maximum cells per side of the knapsack's grid; a cell is one mebibyte, or more if there were too many."""

WORK = 0.05
"""Maximum work on the program of one layer, in CP-SAT's units."""

KEEP, REMAKE, SEND = "keep", "remake", "send"


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a layer that may be kept in addition to the fixed ones, must be recomputed, and may be offloaded."""

    keep: float
    remake: float
    send: float


def by_density(nodes: Sequence[Node]) -> list[int]:
    """Return the nodes by time of their task per byte, ascending."""
    return sorted(range(len(nodes)), key=lambda index: (float(nodes[index].time) / max(1, nodes[index].size), index))


def greedy(nodes: Sequence[Node], room: Room, stopped: Callable[[], bool]) -> list[str]:
    """Offload nodes that fit by descending time per byte; recompute by ascending time per byte; keep the rest.

    If the kept bytes exceed their share, more nodes are recomputed in ascending order; the last one may overshoot.
    """
    chosen = [KEEP] * len(nodes)
    order, sent = by_density(nodes), 0
    for index in reversed(order):
        if nodes[index].alone and nodes[index].size and sent + nodes[index].size <= room.send:
            sent += nodes[index].size
            chosen[index] = SEND
    remade = 0
    for index in order:
        if chosen[index] == KEEP:
            if remade + nodes[index].size > room.remake:
                break
            remade += nodes[index].size
            chosen[index] = REMAKE
    kept = sum(node.size for node, what in zip(nodes, chosen, strict=True) if what == KEEP)
    for index in order:
        if kept <= room.keep:
            break
        if chosen[index] == KEEP:
            kept -= nodes[index].size
            chosen[index] = REMAKE
    return chosen


def program(nodes: Sequence[Node], room: Room, stopped: Callable[[], bool]) -> list[str]:
    """Minimise the recomputation time: keep at most the share, and offload little more than the share.

    Only values of at least one mebibyte are offloaded. The program has two columns per node, for CP-SAT.
    """
    builder, chosen = ProgramBuilder(), [KEEP] * len(nodes)
    free = [index for index, node in enumerate(nodes) if node.size]
    kept, sent = [], []
    for index in free:
        node = nodes[index]
        # All other nodes are recomputed. The cost is expressed as time saved, because CP-SAT needs costs from 0 up.
        kept.append((builder.add_column(integer=True), -node.size))
        sendable = node.alone and node.size >= MEBIBYTE
        sent.append((builder.add_column(upper=1 if sendable else 0, integer=True), -node.size))
        remade = builder.add_column(cost=float(node.time), integer=True)
        builder.add_row([(kept[-1][0], 1), (sent[-1][0], 1), (remade, 1)], lower=1)
    builder.add_row(kept, lower=-math.floor(room.keep))
    builder.add_row(sent, lower=-math.floor(OVERSHOOT * room.send))
    scale = max(builder.cost, default=0) or 1
    builder.cost = [1000 * cost / scale for cost in builder.cost]
    answer = solve(builder, seconds=None, stopped=stopped, work=WORK)
    if answer.solution is None:
        return greedy(nodes, room, stopped)
    for index, (keep, _), (send, _) in zip(free, kept, sent, strict=True):
        chosen[index] = KEEP if answer.solution[keep] > 0.5 else SEND if answer.solution[send] > 0.5 else REMAKE
    return chosen


def knapsack(nodes: Sequence[Node], room: Room, stopped: Callable[[], bool]) -> list[str]:
    """Minimise the recomputation time with bytes in mebibytes, rounded up: a two-dimensional knapsack.

    O(nodes cells^2) for cells of kept and offloaded bytes.
    """
    free = [index for index, node in enumerate(nodes) if node.size]
    unit = max(MEBIBYTE, math.ceil(max(room.keep, room.send) / MOST_CELLS))
    keep_cells, send_cells = int(room.keep // unit), int(room.send // unit)
    best = np.zeros((keep_cells + 1, send_cells + 1))
    taken: list[np.ndarray] = []
    for index in free:
        node, cells = nodes[index], -(-nodes[index].size // unit)
        options = [best, np.full_like(best, -1.0), np.full_like(best, -1.0)]
        if cells <= keep_cells:
            options[1][cells:] = best[: keep_cells + 1 - cells] + float(node.time)
        if node.alone and cells <= send_cells:
            options[2][:, cells:] = best[:, : send_cells + 1 - cells] + float(node.time)
        stacked = np.stack(options)
        taken.append(stacked.argmax(axis=0).astype(np.int8))
        best = stacked.max(axis=0)
    chosen = [KEEP] * len(nodes)
    keep, send = keep_cells, send_cells
    for index, choice in zip(reversed(free), reversed(taken), strict=True):
        what, cells = int(choice[keep, send]), -(-nodes[index].size // unit)
        chosen[index] = (REMAKE, KEEP, SEND)[what]
        keep, send = keep - cells * (what == 1), send - cells * (what == 2)
    return chosen


INNER = {"greedy": greedy, "program": program, "knapsack": knapsack}
