"""Lower bound on the makespan of every sequential schedule of a chain in one memory, by a covering argument.

While B_p runs, each value that later backwards read is either in memory or recomputed afterwards. A stage with a
missing value then runs at least twice, because it has run before. In any schedule, the stages with missing values at
B_p therefore cover the bytes by which all values together exceed the budget. The minimum time of a fractional cover is
a bound:

    makespan >= time without recomputation
                + max over p of min { sum_k z_k t_k : sum_k z_k size_k >= excess_p, 0 <= z <= 1 },

with t_k the time of the fastest forward of stage k. size_k counts the bytes of s_k and x_{k+1} that the backwards
p-1..0 read, without those that B_p itself reads. O(L^2 log L).
"""

from __future__ import annotations

import math

import numpy as np

from remat.plugin import Chain, Number
from remat_algorithms.chain.bounds.moment_facts import backward_bytes


def recompute_bound(chain: Chain, budget: int) -> Number:
    """Return the minimum time that every schedule spends on recomputation (an integer for integer times).

    Parameters
    ----------
    chain : Chain
    budget : int
        Total capacity, including static memory.
    """
    length = chain.length
    x = chain.activation_size
    saved = np.append(np.where(chain.reads_saved & chain.saves, chain.saved_size, 0), 0)
    own = backward_bytes(chain, saved)
    forward = chain.forward_time
    quickest = np.minimum(forward, chain.saving_forward_time) if chain.saves else forward
    exact = forward.dtype == np.int64
    highest = 0.0
    for phase in range(1, length + 1):
        # B_k reads x_{k+1} as its output, and B_{k+1} reads it as its input.
        later = chain.reads_output[:phase] | np.append(chain.reads_input[1:phase], [False])
        held = np.where(later, x[1 : phase + 1], 0)
        if phase == length or chain.reads_input[phase]:
            held[-1] = 0
        size = held + saved[:phase]
        first = int(x[0]) if chain.reads_input[0] else 0
        excess = chain.static_memory + first + int(own[phase]) + int(size.sum()) - budget
        if excess > 0:
            highest = max(highest, _cover(size, quickest[:phase], excess))
    if exact:
        return math.ceil(highest * (1 - 1e-12) - 1e-9)
    return highest * (1 - 1e-12)


def _cover(size: np.ndarray, time: np.ndarray, excess: int) -> float:
    """Return the minimum time of stages, the last one fractional, whose bytes cover the excess; 0 if they do not."""
    useful = size > 0
    size, time = size[useful].astype(np.float64), time[useful].astype(np.float64)
    total = 0.0
    for k in np.argsort(time / size, kind="stable"):
        if excess <= size[k]:
            return total + float(time[k]) * excess / float(size[k])
        total += float(time[k])
        excess -= int(size[k])
    return 0.0  # no schedule fits; other bounds prove that
