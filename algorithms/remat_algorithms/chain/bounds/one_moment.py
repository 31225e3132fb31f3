"""Minimum recomputation time after one moment, exactly, for each moment of a chain.

For each stage k below p, Z_k states that it is recomputed after B_p has started. Values that later backwards read are
in memory or recomputed: s_k is in memory, or Z_k; x_{k+1} is in memory, or Z_k. Each recomputed stage has its input,

    Z_k <= x_k is in memory, or Z_{k-1}.

Consider all choices whose bytes fit along with B_p. Their minimum total forward time is a lower bound on the
recomputation of every schedule. One pass over the stages, with fronts of (bytes, time) for x_k present and absent,
computes it for all moments.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from remat_algorithms.chain.bounds.moment_facts import Moments
from remat_algorithms.chain.rotor.front import NEVER, NO_FRONT, Front

NOTHING_KEPT = Front(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))


class _Stages(NamedTuple):
    """Fronts of the stages before k: with x_k in memory, and without."""

    there: Front
    absent: Front


def least_remade(moments: Moments, most: int = NEVER) -> list[int]:
    """Return for each moment the minimum ticks that every schedule spends on later recomputation.

    Parameters
    ----------
    moments : Moments
    most : int
        Ticks of a known schedule. Larger values are not considered; `NEVER` means that no limit is known.

    Returns
    -------
    list of int
        By p = 0..L; `NEVER` if nothing fits within `most` ticks.
    """
    length, room = moments.length, moments.room.tolist()
    # The kept bytes are at most those that the least restrictive later moment allows.
    widest = np.maximum.accumulate(moments.room[::-1])[::-1].tolist()
    sizes, saved, forward = (column.tolist() for column in (moments.activation, moments.saved, moments.forward))
    needs = [False, *moments.reads_output[:-1]]  # whether B_{k-1} reads x_k
    begin = NOTHING_KEPT.shifted(sizes[0], 0)
    stages = _Stages(begin, NO_FRONT if moments.reads_input[0] else NOTHING_KEPT)
    least = [0]
    for k in range(length):
        limits = {"within": widest[k + 1], "most": most}
        kept = Front.best(*(front.shifted(saved[k], 0) for front in stages), **limits)
        again = [stages.there.shifted(0, forward[k])]
        made = Front.best(*again, **limits)
        # At moment k+1, B_{k+1} reads x_{k+1} itself, or x_{k+1} is one of the values that must be in memory.
        held = kept.shifted(sizes[k + 1], 0)
        at = [made, kept] if moments.reads_input[k + 1] or not needs[k + 1] else [made, held]
        own = Front.best(*at, within=room[k + 1], most=most)
        least.append(int(own.excess[-1]) if len(own.excess) else NEVER)
        needed = needs[k + 1] or moments.reads_input[k + 1]
        stages = _Stages(Front.best(made, held, **limits), NO_FRONT if needed else kept)
    if room[0] < 0:
        least[0] = NEVER
    return least
