"""What is known of choosing among the gaps of an order of runs, however that is found."""

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
        Its value and that one's bytes, and the runs around it (see `copies.Gap`).
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
        """When each run would start if nothing made it wait, and, last, when the last one would end."""
        raise NotImplementedError

    @cached_property
    def candidates(self) -> IntArray:
        """Gaps with a run between, of values that take room."""
        raise NotImplementedError

    @cached_property
    def goes_anyhow(self) -> BoolArray:
        """Whether each gap's value lies in another memory whatever is chosen, so that nothing has to be sent."""
        raise NotImplementedError

    @cached_property
    def transfer_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Times of each gap's transfers on the nearest route, out and back; what leaves anyhow goes at once."""
        raise NotImplementedError

    @cached_property
    def length(self) -> np.ndarray:
        """Time that each gap lasts when nothing waits."""
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
        """Whether nothing has to leave."""
        return self.budget is None or int(self.profile.max(initial=0)) <= self.budget
