"""Incumbent of a search: it accepts and reports each improvement."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from remat.plugin import Bound, Context, Number, Steps

Found = TypeVar("Found")


class Incumbent(Generic[Found]):
    """Best answer of a search, whatever its type, and the best bound.

    Parameters
    ----------
    context : Context
        Receives each better answer and each better bound.
    steps_of : callable
        Builds the steps of an answer.
    better : callable
        Whether the first rank is better than the second; by default, whether it is smaller.
    scope : str, optional
        Class of schedules for which the bounds hold. Without it, no bound is proposed.
    known : number, optional
        Makespan of an answer that is known elsewhere and need not be found again.

    Attributes
    ----------
    best : Found or None
    makespan : number
        Infinite without an answer.
    bound : number or None
    scope : str or None
        Scope of the reported bounds and of the algorithm's conclusion.
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
        """Steps of the best answer."""
        return None if self.best is None else self._steps_of(self.best)

    @property
    def least(self) -> Number | None:
        """Smallest makespan known, here or elsewhere."""
        return self.known if self.best is None else self.makespan

    def bounds(self, source: str) -> tuple[Bound, ...]:
        """Return the bound as a proposal states it, within the reported scope.

        A schedule outside the scope may be faster than every schedule inside it. The bound is therefore capped at the
        best makespan.
        """
        if not self.bound or self.scope is None:
            return ()
        return (Bound(min(self.bound, self.makespan), self.scope, source),)

    def take(
        self, found: Found, makespan: Number, *, rank: Any = None, bound: Number | None = None, message: str = ""
    ) -> bool:
        """Accept and report an answer if it is better; return whether it is.

        Parameters
        ----------
        found : Found
        makespan : number
        rank : optional
            Value to compare; default: the makespan.
        bound : number, optional
            Bound to report with the answer, capped at the makespan.
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
        """Accept and report a bound if it is stronger; return whether it is.

        The smallest known makespan caps every bound.
        """
        least = self.least
        if least is not None:
            value = min(value, least)
        if self.bound is not None and value <= self.bound:
            return False
        self.bound = value
        self.context.report(bound=value, scope=self.scope)
        return True
