"""What a stage may recompute, read off `rotor`'s fronts: one table says it for all memories, and all first layers.

The layers up to a stage's last one are a chain. Its fronts, with each layer running again once at most (`Cells.of`),
are the curves of bytes and time of all stages that end there. Along the way down to the end, what a point of a curve
sweeps over without saving it are the segments that run again (`remat.schedule.recompute`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from remat.plugin import ChainInstance, Context, Layer, Machine, Memory, Problem, Processor
from remat_algorithms.chain.rotor.excess_limit import Allowed
from remat_algorithms.chain.rotor.front_table import Cells
from remat_algorithms.chain.rotor.rotor import Setting
from remat_algorithms.chain.rotor.traceback import Reader
from remat_algorithms.chain.rotor.work_counter import Over, Work
from remat_algorithms.kit.subsample import spread_out

Segments = tuple[tuple[int, ...], ...]

LONGEST = 24
"""Layers of a table."""

WORK = 2_000_000
"""Points that are merged for a table before it is given up."""

POINTS = 24
"""Points of a curve that are read."""


class Fronts:
    """Curves of the stages that end with the last of some layers.

    Parameters
    ----------
    layers : sequence of Layer
        At most `LONGEST`.
    reads : sequence of sequences of str
        What the backward of each reads.
    name : str
        The type of device.
    input_size : int
        Of the first one.
    """

    def __init__(self, layers: Sequence[Layer], reads: Sequence[Sequence[str]], name: str, input_size: int) -> None:
        stages = [
            {
                "forward_time": layer.time_on("forward_time", name) or 0,
                "backward_time": layer.time_on("backward_time", name) or 0,
                "output_size": layer.output_size,
                "gradient_size": layer.gradient_bytes,
                "saved_size": layer.saved_size,
                "forward_workspace": layer.forward_workspace,
                "backward_workspace": layer.backward_workspace,
                "backward_reads": tuple(own),
            }
            for layer, own in zip(layers, reads, strict=True)
        ]
        chain = ChainInstance.model_validate(
            {
                "schema": "remat.instance/3",
                "kind": "chain",
                "units": {"time": "unit", "memory": "unit"},
                "input_size": input_size,
                "stages": stages,
            }
        )
        machine = Machine((Memory("device", None),), (Processor("device", 0),), ())
        self.count = len(layers)
        setting = Setting(Problem(chain, machine), Context())
        segments = setting.segments
        allowed = Allowed.all(segments, int(setting.whole.need))
        self.table: Cells | None
        try:
            self.table = Cells.of(segments, setting.costs, allowed, Work(WORK), once=True)
        except Over:
            self.table = None

    def segments(self, count: int) -> Iterator[Segments]:
        """Yield what the last so many layers may run again, along their curve; counted from the first of these."""
        table = self.table
        if table is None:
            return
        first = self.count - count
        state = int(table.segments.states.free[first])
        reader = Reader(table)
        need, _ = table.front(state, table.segments.length)
        for room in spread_out(np.unique(need).tolist(), POINTS):
            yield tuple(tuple(layer - first for layer in swept) for swept in reader.swept(first, room))
