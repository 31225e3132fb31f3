"""Lower bounds on the makespan of a pipeline and on the largest span of a device, by source.

`work`
    The total work of the busiest device.
`fill`
    One device at a time. An operation has a head, the earliest time at which its sources are done, and a tail, the
    remaining time after its result. The best preemptive order of the device's operations bounds every order (Jackson
    1955).
`in-flight`
    The same, with heads and tails that include the memory: a stage can hold a limited number of micro-batches. The next
    forward waits for a backward or for a W.
`little`
    Memory x time (Little's law). A device holds each micro-batch at least for its round trip. These byte-times fit into
    the bytes of the device times the time in which it can use them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from itertools import pairwise

from remat_algorithms.parallel.pipeline.model import B, F, Op, PipelineModel, W, needed


def waits(model: PipelineModel) -> Iterator[tuple[Op, Op]]:
    """Yield pairs of operations where the memory requires the first to end before the second, a forward, starts.

    When a forward of stage s starts, let b be the last micro-batch whose backward has passed s. The micro-batches after
    b are held by s and by all stages before s on the same device, in the same chain.
    """
    for free, own in ((free, own) for free, parts in zip(model.free, model.on_by_chain, strict=True) for own in parts):
        if free is None:
            continue
        held = 0
        for stage in own:
            held += model.activation[stage]
            lasting = min(model.activation[stage], model.kept[stage])
            for batch in range(model.count[stage]):
                if held and batch >= free // held:
                    yield (B, stage, batch - free // held), (F, stage, batch)
                if lasting and batch >= (most := 1 + (free - model.activation[stage]) // lasting):
                    yield (W, stage, batch - most), (F, stage, batch)


def lower_bounds(model: PipelineModel, *, span: bool = False) -> dict[str, float]:
    """Return bounds on the makespan or on the largest span of a device, by source, for a feasible model.

    Parameters
    ----------
    model : PipelineModel
    span : bool
        Bound the span of a device, from the start of its first operation to the end of its last.
    """
    graph = _Graph(model, memory=False)
    limited = _Graph(model, memory=True)
    found: dict[str, float] = {
        "work": max(graph.work),
        "fill": _device_by_device(graph, span=span),
        "in-flight": _device_by_device(limited, span=span),
        "little": _little(model, graph, span=span),
    }
    if model.whole:
        found = {name: math.ceil(value) for name, value in found.items()}
    return found


def lower_bound(model: PipelineModel, *, span: bool = False) -> float:
    """Return the largest of these bounds."""
    return max(lower_bounds(model, span=span).values())


class _Graph:
    """Operations and their predecessors, in topological order: micro-batch after micro-batch."""

    def __init__(self, model: PipelineModel, *, memory: bool) -> None:
        self.model = model
        self.order: list[Op] = []
        for stages, count in model.by_chain:
            one = [(F, s) for s in stages] + [(B, s) for s in reversed(stages)]
            one += [(W, s) for s in stages if model.weight[s]]
            self.order += [(phase, s, batch) for batch in range(count) for phase, s in one]
        self.time = {op: model.times[op[0]][op[1]] for op in self.order}
        self.sources: dict[Op, list[tuple[Op, float]]] = {op: needed(model, op) for op in self.order}
        for phase, stage, batch in self.order:
            if batch:
                self.sources[phase, stage, batch].append(((phase, stage, batch - 1), 0))
        if memory:
            for before, after in waits(model):
                self.sources[after].append((before, 0))
        self.on: list[list[Op]] = [[] for _ in model.fixed]
        for op in self.order:
            self.on[model.place[op[1]]].append(op)
        self.work = [sum(self.time[op] for op in own) for own in self.on]

    def heads(self, origin: Op | None = None) -> dict[Op, float]:
        """Return the earliest start of each operation; given an origin, of its successors relative to its start."""
        found: dict[Op, float] = {}
        for op in self.order:
            ends = (found[source] + self.time[source] + delay for source, delay in self.sources[op] if source in found)
            start = max(ends, default=None)
            if op == origin or origin is None:
                found[op] = 0 if start is None else start
            elif start is not None:
                found[op] = start
        return found

    def tails(self, device: int | None = None) -> dict[Op, float]:
        """Return the minimum time from the end of each operation to the end of all, or of all on one device."""
        found: dict[Op, float] = dict.fromkeys(self.order if device is None else self.on[device], 0)
        for op in reversed(self.order):
            if op in found:
                for source, delay in self.sources[op]:
                    found[source] = max(found.get(source, 0), delay + self.time[op] + found[op])
        return found


def _device_by_device(graph: _Graph, *, span: bool) -> float:
    if not span:
        heads, tails = graph.heads(), graph.tails()
        return max((_jackson(graph, own, heads, tails) for own in graph.on if own), default=0)
    # All operations of a device follow the first forward of its first stage.
    return max(_jackson(graph, own, graph.heads(own[0]), graph.tails(k)) for k, own in enumerate(graph.on) if own)


def _jackson(graph: _Graph, own: list[Op], heads: dict[Op, float], tails: dict[Op, float]) -> float:
    """Return the earliest end of all operations, tails included, if a device may preempt operations."""
    waiting = sorted(own, key=lambda op: -heads[op])
    ready: list[tuple[float, float]] = []
    clock: float = 0
    most: float = 0
    while waiting or ready:
        if not ready:
            clock = max(clock, heads[waiting[-1]])
        while waiting and heads[waiting[-1]] <= clock:
            op = waiting.pop()
            heapq.heappush(ready, (-tails[op], graph.time[op]))
        tail, left = heapq.heappop(ready)
        if waiting and clock + left > heads[waiting[-1]]:
            heapq.heappush(ready, (tail, left - (heads[waiting[-1]] - clock)))
            clock = heads[waiting[-1]]
        else:
            clock += left
            most = max(most, clock - tail)
    return most


def _little(model: PipelineModel, graph: _Graph, *, span: bool) -> float:
    """Return the minimum time in which a device can hold its activations for their minimum lifetimes."""
    ways: list[float] = [0] * model.stages
    lasts: list[float] = [0] * model.stages
    homewards: list[float] = [0] * model.stages  # from the end of a stage's backward to that of the first stage
    for stages, _ in model.by_chain:
        there: float = 0
        for stage in stages:
            there += model.delays[stage]
            ways[stage] = there
            there += model.forward[stage]
        back = there
        for stage in reversed(stages):
            back += model.backward[stage]
            lasts[stage] = back - ways[stage]
            back += model.delays[stage]
        for before, stage in pairwise(stages):
            homewards[stage] = homewards[before] + model.backward[before] + model.delays[stage]
    most: float = 0
    for free, own, parts in zip(model.free, model.on, model.on_by_chain, strict=True):
        heads = [part[0] for part in parts]
        if not free or not heads:
            continue
        begin = min(ways[s] for s in heads)
        held = sum(model.count[s] * model.activation[s] * lasts[s] for s in own)
        late = sum(
            model.count[s]
            * (model.kept[s] * model.weight[s] + max(0, model.kept[s] - model.activation[s]) * model.backward[s])
            for s in own
        )
        # Activations are freed when the last backward on the device ends. The gradient then continues to its stage 0.
        outside = 0 if span else begin + min(homewards[s] for s in heads)
        most = max(most, held / free + outside, (held + late) / free + (0 if span else begin))
    return most
