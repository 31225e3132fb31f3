"""The schedules that have a name, as rules: of numbers of devices and of micro-batches alone.

Each is a function ``rule(devices, batches, ...) -> Lists`` (of `dualpipe` and `dualpipev`, PairedLists), devices and
micro-batches counted from 0. Where layers give the time of the gradient of their weights apart, `split` makes the whole
backwards BW; the rules without that argument take B and W apart by themselves. In figures, p is the number of devices,
m that of micro-batches, and an activation is what a device keeps of a micro-batch from its forward to its backward. A
rule that is not for these numbers raises OptionError.
"""

from remat_algorithms.parallel.pipeline.rules.bidirectional import chimera, gems
from remat_algorithms.parallel.pipeline.rules.dual_pipe import Pair, PairedLists, dualpipe, dualpipev
from remat_algorithms.parallel.pipeline.rules.interleaved import interleaved
from remat_algorithms.parallel.pipeline.rules.operation_lists import Lists
from remat_algorithms.parallel.pipeline.rules.unidirectional import (
    eager_one_forward_one_backward,
    gpipe,
    one_forward_one_backward,
    zb_h1,
    zb_h2,
)
from remat_algorithms.parallel.pipeline.rules.v_shape import v_half, v_min, zb_v

__all__ = [
    "Lists",
    "Pair",
    "PairedLists",
    "chimera",
    "dualpipe",
    "dualpipev",
    "eager_one_forward_one_backward",
    "gems",
    "gpipe",
    "interleaved",
    "one_forward_one_backward",
    "v_half",
    "v_min",
    "zb_h1",
    "zb_h2",
    "zb_v",
]
