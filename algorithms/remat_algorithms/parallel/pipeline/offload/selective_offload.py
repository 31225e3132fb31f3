"""Selective offloading of named schedules: the minimum share, longest-lived values first, evenly spread."""

from __future__ import annotations

from typing import Any

import numpy as np

from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps
from remat_algorithms.parallel.pipeline.offload.offload_model import Choice, Hosting, Played
from remat_algorithms.parallel.pipeline.offload.search import EARLY, HostSearch, keys_of, worth_sending
from remat_algorithms.parallel.pipeline.stages import Staging

PARTS = 32
"""Resolution of the bisection for the share of worthwhile offloads."""


def offload_selectively(best: BestSteps, staged: Staging) -> None:
    """Consider the named orders of a placement, with the minimum offloading that fits and with full offloading."""
    hosting = Hosting(best.problem, staged)
    if not hosting.model.holds_fixed:
        return
    trial = _Trial(best, hosting)
    for lists in staged.starts:
        for early in EARLY:
            if best.context.stopped:
                return
            keys = keys_of(hosting, lists, early)
            if keys is not None:
                trial.bisect(keys)


class _Trial:
    def __init__(self, best: BestSteps, hosting: Hosting) -> None:
        self.best, self.hosting = best, hosting
        stop = best.context
        self.search = HostSearch(hosting, seed=stop.seed, stop=lambda: stop.stopped, offer=lambda *given: None)

    def bisect(self, keys: Any) -> None:
        """Find the smallest share that fits."""
        if not self._fits(keys, PARTS):
            return
        least, most = -1, PARTS
        while most - least > 1:
            middle = (least + most) // 2
            if self._fits(keys, middle):
                most = middle
            else:
                least = middle

    def _fits(self, keys: Any, parts: int) -> bool:
        sent = worth_sending(self.hosting, keys, parts / PARTS)
        sequence = self.search.sequence(keys, Choice(np.zeros_like(sent), sent), strict=True)
        played: Played | None = None if sequence is None else self.best.consider(self.hosting, sequence)
        return played is not None and not any(played.excess)
