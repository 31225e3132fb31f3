"""The best answer of a search so far: what is better is taken, and reported."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from remat.plugin import Bound, Context, Number, Steps

Found = TypeVar("Found")


class Incumbent(Generic[Found]):
    """The best answer of a search, of whatever shape, and the best bound.

    Parameters
    ----------
    context : Context
        Hears of each better answer and bound.
    steps_of : callable
        Makes the steps of an answer.
    better : callable
        Whether one rank is better than another one; by default, whether it is less.
    scope : str, optional
        The class of schedules for which its bounds hold; without one there are none.
    known : number, optional
        The makespan of an answer that is known elsewhere, and need not be found again.

    Attributes
    ----------
    best : Found or None
    makespan : number
        Infinite without an answer.
    bound : number or None
    scope : str or None
        What the bounds are reported with, and what the algorithm concludes with.
    """

    def __init__(
        self,
        context: Context,
        steps_of: Callable[[Found], Steps],
        *,
        better: Callable[[Any, Any], bool] = operator.lt,
        scope: str | None = None,
        known: Number | None = None,
    ) -> None:
        self.context, self.scope, self.known = context, scope, known
        self.best: Found | None = None
        self.makespan: Number = math.inf
        self.bound: Number | None = None
        self._steps_of, self._better = steps_of, better
        self._rank: Any = None

    @property
    def steps(self) -> Steps | None:
        """The steps of the best answer."""
        return None if self.best is None else self._steps_of(self.best)

    @property
    def least(self) -> Number | None:
        """The least makespan known, here or elsewhere."""
        return self.known if self.best is None else self.makespan

    def bounds(self, source: str) -> tuple[Bound, ...]:
        """The bound as a proposal names it: within the scope with which it was reported.

        A schedule from outside that class may be below all that it holds: the bound then says no more than that.
        """
        if not self.bound or self.scope is None:
            return ()
        return (Bound(min(self.bound, self.makespan), self.scope, source),)

    def take(
        self, found: Found, makespan: Number, *, rank: Any = None, bound: Number | None = None, message: str = ""
    ) -> bool:
        """Take an answer over if it is better, and report it; return whether it is.

        Parameters
        ----------
        found : Found
        makespan : number
        rank : optional
            What is compared; default: the makespan.
        bound : number, optional
            What is reported along with it, as far as the makespan allows.
        message : str
        """
        rank = makespan if rank is None else rank
        if self.best is not None and not self._better(rank, self._rank):
            return False
        self.best, self.makespan, self._rank = found, makespan, rank
        below = None if bound is None else min(bound, makespan)
        self.context.report(self._steps_of(found), makespan=makespan, bound=below, scope=self.scope, message=message)
        return True

    def take_bound(self, value: Number) -> bool:
        """Take a bound over if it says more, and report it; return whether it does. None is above what is known."""
        least = self.least
        if least is not None:
            value = min(value, least)
        if self.bound is not None and value <= self.bound:
            return False
        self.bound = value
        self.context.report(bound=value, scope=self.scope)
        return True
