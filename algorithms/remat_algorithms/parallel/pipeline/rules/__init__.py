"""Named schedules as rules, which depend only on the numbers of devices and of micro-batches.

Each rule is a function ``rule(devices, batches, ...) -> Lists`` (PairedLists for `dualpipe` and `dualpipev`), with
devices and micro-batches counted from 0. If layers give separate times for weight gradients, `split` turns whole
backwards into BW; rules without that argument always separate B and W. In formulas, p is the number of devices and m
that of micro-batches. An activation is what a device keeps of a micro-batch from its forward to its backward. A rule
raises OptionError for numbers that it does not support.
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
