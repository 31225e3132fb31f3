"""Facts for choosing among the gaps of an order of runs, independent of their computation."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from remat.plugin import BoolArray, IntArray, NumberArray, Problem


class Gaps:
    """An order of runs on a machine, and its gaps.

    Attributes
    ----------
    problem : Problem
    budget : int or None
        Capacity of the processor's memory.
    profile : (runs,) int
        Bytes that each run must hold when nothing leaves.
    value, size, after, before : (gaps,) int
        Its value, the value's bytes, and the runs around it (see `copies.Gap`).
    """

    problem: Problem
    budget: int | None
    profile: IntArray
    value: IntArray
    size: IntArray
    after: IntArray
    before: IntArray

    @cached_property
    def start_times(self) -> NumberArray:
        """Start of each run if no run waits for transfers and, last, the end of the last one."""
        raise NotImplementedError

    @cached_property
    def candidates(self) -> IntArray:
        """Gaps with at least one run between, of values with at least one byte."""
        raise NotImplementedError

    @cached_property
    def goes_anyhow(self) -> BoolArray:
        """Whether each gap's value is in another memory in any case, so that nothing needs to be sent."""
        raise NotImplementedError

    @cached_property
    def transfer_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Times of each gap's transfers on the nearest route, out and back; out is 0 for values elsewhere anyway."""
        raise NotImplementedError

    @cached_property
    def length(self) -> np.ndarray:
        """Length of each gap if no run waits."""
        begins = self.start_times
        length: np.ndarray = begins[self.before] - begins[self.after + 1]
        return length

    @cached_property
    def round_trip(self) -> np.ndarray:
        """Time of each gap's transfers on the nearest route."""
        out, back = self.transfer_times
        both: np.ndarray = out + back
        return both

    @property
    def fits(self) -> bool:
        """Whether everything fits without offloading."""
        return self.budget is None or int(self.profile.max(initial=0)) <= self.budget
