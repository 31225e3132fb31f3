"""The compiled twins of `replay`, `greedy` and `ruin`: the same functions, handed to numba.

Helpers are registered where they stand, so that the compiled text is the interpreted one.
"""

from __future__ import annotations

from numba import njit
from numba.extending import register_jitable

from remat_algorithms.dag_auto import greedy as _greedy
from remat_algorithms.dag_auto import replay as _replay
from remat_algorithms.dag_auto import ruin as _ruin

for _module, _names in (
    (_replay, ("_enter", "_copies", "_list_accesses", "replay")),
    (
        _greedy,
        ("draw", "find", "_after", "_alive", "collect", "_release", "_gain", "_time_of", "_keep", "propose")
        + ("stage_of_candidate", "insert", "take_trial", "_clear", "greedy"),
    ),
    (_ruin, ("is_first", "without", "_hopeless", "_key", "_next_dearest", "prune", "ruin", "copy_plan", "construct", "_restart")),
):
    for _name in _names:
        register_jitable(getattr(_module, _name))

replay = njit(cache=True, nogil=True)(_replay.replay)
construct = njit(cache=True, nogil=True)(_ruin.construct)
improve = njit(cache=True, nogil=True)(_ruin.improve)
