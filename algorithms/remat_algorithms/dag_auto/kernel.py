"""The compiled twin of `ruin.act`: the same functions, handed to numba.

Helpers are registered where they stand, so that the compiled text is the interpreted one. Compiling takes about
ten seconds, once: the machine code is kept on disk, under a name that changes with the text. `python -m` this
module compiles and keeps it.
"""

from __future__ import annotations

import hashlib
import types
from pathlib import Path

from numba import njit
from numba.extending import register_jitable

from remat_algorithms.dag_auto import greedy, packed, replay, ruin

_HELPERS = (
    (replay, ("_enter", "_copies", "_list_accesses", "replay")),
    (greedy, ("draw", "find", "_after", "_alive", "collect", "_add", "_release", "_clear", "_gain")),
    (
        greedy,
        (
            "_time_of",
            "_keep",
            "_can_free",
            "propose",
            "insert",
            "take_trial",
            "_try",
            "_best_of",
            "_next_peak",
            "greedy",
        ),
    ),
    (ruin, ("is_first", "without", "_hopeless", "_key", "_next_dearest", "prune", "ruin", "force", "clear")),
)
for _module, _names in _HELPERS:
    for _name in _names:
        register_jitable(getattr(_module, _name))


def _digest() -> str:
    """Return a name for the text of the kernel: numba itself would only look at one of its files."""
    text = b"".join(Path(module.__file__ or "").read_bytes() for module in (packed, replay, greedy, ruin))
    return hashlib.sha256(text).hexdigest()[:12]


def _renamed(function: types.FunctionType) -> types.FunctionType:
    copy = types.FunctionType(function.__code__, function.__globals__, f"{function.__name__}_{_digest()}")
    copy.__module__, copy.__qualname__ = function.__module__, copy.__name__
    return copy


act = njit(cache=True, nogil=True)(_renamed(ruin.act))  # type: ignore[arg-type]


def is_kept() -> bool:
    """Whether the machine code lies on disk, so that loading it takes a fraction of a second."""
    return any(Path(str(act.stats.cache_path)).glob(f"*_{_digest()}*.nbc"))


def compile_now() -> None:
    """Compile, or load what is on disk."""
    from remat.instance import load
    from remat.lowering import machine_of
    from remat.problem import Problem
    from remat_algorithms.dag_auto.model import stage_model
    from remat_algorithms.dag_auto.state import Search

    tasks = [{"id": "a", "time": 1, "size": 1}, {"id": "b", "time": 1, "size": 1, "reads": ["a"]}]
    instance = load({"schema": "remat.instance/1", "kind": "dag", "tasks": tasks})
    Search(stage_model(Problem(instance, machine_of(instance))), 2, 0, compiled=True).construct(1.0)


if __name__ == "__main__":
    from remat_algorithms.dag_auto.kernel import compile_now as _compile_now

    _compile_now()
