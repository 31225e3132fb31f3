"""Relative budgets: shares of an instance's peak without recomputation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any

from remat.errors import ClaimError, OptionError, QuantityError
from remat.instance.native import native
from remat.messages import brief
from remat.plugin import registry
from remat.plugin.applicability import check_reach
from remat.plugin.context import Context
from remat.plugin.options import make_options
from remat.plugin.problem import Problem
from remat.solving.conclusion import conclude
from remat.units import LARGEST_SIZE

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.registry import Algorithm

NO_RECOMPUTE_ALGORITHM = "keep-all"
STORE_ALL_ALGORITHM = "store-all"
PIPELINE_ALGORITHM = "1f1b"

COPYING_ALGORITHMS: tuple[tuple[str, dict[str, bool]], ...] = (
    ("offload-greedy", {"bound": False}),
    ("weight-offload", {}),
)
"""Algorithms for inputs or outputs in other memories: without a limit they run each task once and move no other
value."""

NOTHING = "{} of an unknown peak: no schedule without recomputation is known; write a size such as 8GB"
"""Error for a relative budget without a reference peak."""


def plainest(instance: Instance) -> str:
    """Return the algorithm whose peak is the reference for relative budgets: it runs everything once."""
    if instance.budgets_are_for_all:
        return PIPELINE_ALGORITHM
    return STORE_ALL_ALGORITHM if instance.has_storage else NO_RECOMPUTE_ALGORITHM


def plain_budget(budget: Any) -> Any:
    """Return a budget as a whole number or a text: a float between 0 and 1 is a share, 0.6 is ``60%``.

    Raises
    ------
    QuantityError
        For other floats, which could be meant as sizes or as shares.
    """
    plain = native(budget)
    if not isinstance(plain, float):
        return plain
    if 0 < plain < 1:
        return f"{(Decimal(repr(plain)) * 100).normalize():f}%"
    if plain == 1:
        remedy = "write '100%' for the whole peak, and 1 for a size of 1"
    elif 1 < plain < LARGEST_SIZE:
        remedy = f"for a size, write {int(plain)}, or a text such as '8GB'"
    else:
        remedy = "for a size, write a text such as '8GB' or '80%'"
    raise QuantityError(f"{brief(plain)} is not a share: as a float, a budget lies between 0 and 1; {remedy}")


def share_of(budget: object) -> Decimal | None:
    """Return the share that a text such as ``80%`` means; None for anything else.

    Raises
    ------
    QuantityError
        A percentage that is no number above 0 and up to 10,000.
    """
    if not isinstance(budget, str) or not budget.rstrip().endswith("%"):
        return None
    try:
        percent = Decimal(budget.rstrip().removesuffix("%").strip())
    except InvalidOperation:
        percent = Decimal("NaN")
    if not (percent.is_finite() and 0 < percent <= 10_000):
        raise QuantityError(f"{brief(budget)} is not a share of the peak; write a size such as 8GB, or 80%")
    return percent / 100


@dataclass(frozen=True)
class Wholes:
    """Peaks of a machine's memories (by name) without recomputation and without budgets.

    Each task runs once, in the reference order, and each value is freed after its last use. An adjoint with storage
    stores all states in its fastest level. For a pipeline it is the largest peak of any device under 1F1B. Inputs and
    outputs in other memories are copied from and to them at the earliest times.
    """

    problem: Problem

    @property
    def peaks(self) -> Mapping[str, int] | None:
        """The verified peaks; None if no such schedule is known. Computed on first use."""
        return None if self._reference is None else self._reference[1]

    @property
    def is_offered(self) -> bool:
        """Whether a solve by the algorithm of the reference schedule would accept the instance, too.

        The reference only has to be valid: the algorithm may ignore a feature, such as ratios of transfers.
        """
        if self._reference is None:
            return False
        try:
            check_reach(self.problem, self._reference[0])
        except OptionError:
            return False
        return True

    @cached_property
    def _reference(self) -> tuple[Algorithm, Mapping[str, int]] | None:
        """The algorithm whose schedule is the reference, and its peaks."""
        whole = self.problem
        # Computed here, they are shared with the problem itself.
        _ = whole.graph, whole.no_recompute_time, whole.least_objective, whole.memory_bounds
        problem = whole.with_capacities({memory.name: None for memory in whole.machine.memories})
        plain = plainest(whole.instance)
        for name, options in ((plain, {}), *COPYING_ALGORITHMS):
            try:
                solver = registry.find(name, problem.kind)
                made = make_options(solver, options)
                result = conclude(problem, solver, solver.load()(problem, made, Context()), options)
            except (ClaimError, OptionError):  # inputs or outputs elsewhere: it takes transfers; or no such algorithm
                continue
            if result.peak_memory and (name == plain or not result.recompute_time):
                return solver, result.peak_memory
        return None

    def part(self, share: Decimal, memory: str, shown: str) -> int:
        """Return a share of a memory's peak; `shown` is the text of the request.

        Raises
        ------
        remat.OptionError
            If no reference peak is known.
        """
        if self.peaks is None:
            raise OptionError(NOTHING.format(shown), argument="budget")
        whole = max(self.peaks.values()) if self.problem.instance.budgets_are_for_all else self.peaks.get(memory, 0)
        if whole == 0:
            raise OptionError(
                f"{shown} of 0: {memory!r} is empty without recomputation; write a size such as 8GB",
                argument="budget",
            )
        return int(share * whole)
