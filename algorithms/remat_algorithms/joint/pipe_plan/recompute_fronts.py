"""Recompute options of stages from `rotor`'s fronts: one table covers all memory sizes and all first layers.

The layers up to a stage's last one form a chain. Its fronts, with each layer recomputed at most once (`Cells.of`), are
the curves of bytes and time of all stages that end there. On the path from a point of a curve to the end, the segments
that it sweeps without saving are the ones to recompute (`remat.schedule.recompute`).
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
"""Maximum number of layers in a table."""

WORK = 2_000_000
"""Maximum number of merged points for a table, after which it is given up."""

POINTS = 24
"""Maximum number of points to read from a curve."""


class Fronts:
    """Curves of the stages that end with the last of some layers.

    Parameters
    ----------
    layers : sequence of Layer
        At most `LONGEST`.
    reads : sequence of sequences of str
        Values that the backward of each layer reads.
    name : str
        The type of device.
    input_size : int
        Input size of the first one.
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
        """Yield the segments to recompute among the last `count` layers, along their curve; the first of them is 0."""
        table = self.table
        if table is None:
            return
        first = self.count - count
        state = int(table.segments.states.free[first])
        reader = Reader(table)
        need, _ = table.front(state, table.segments.length)
        for room in spread_out(np.unique(need).tolist(), POINTS):
            yield tuple(tuple(layer - first for layer in swept) for swept in reader.swept(first, room))
