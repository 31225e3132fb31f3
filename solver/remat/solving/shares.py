"""Budgets as shares of the peak that an instance has when nothing is recomputed."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from remat.instance import Instance, MachineModel


def whole_peak(instance: Instance, machine: MachineModel | None = None) -> int | None:
    """Return the no-recompute peak of the memory that a bare budget means.

    That of the first storage level with all states stored, if an adjoint has storage; None where no such schedule
    exists.
    """
    from remat.solving.facts import show

    if instance.has_storage:
        return _stored_whole(instance, machine)
    return show(instance, machine=machine).no_recompute_peak


def _stored_whole(instance: Instance, machine: MachineModel | None) -> int | None:
    from remat.errors import RematError
    from remat.plugin.proposal import Status
    from remat.solving.entry import solve

    try:
        result = solve(instance, algorithm="store-all", budget={"": None}, machine=machine)
    except RematError:
        return None
    if result.status not in (Status.OPTIMAL, Status.FEASIBLE):
        return None
    return result.peak_memory[result.machine.memories[1].name]


def share_of(text: str) -> Decimal | None:
    """Return the share that a text such as ``80%`` means; None for another text.

    Raises
    ------
    ValueError
        A percentage that is no number above 0 and up to 10,000.
    """
    if not text.endswith("%"):
        return None
    try:
        percent = Decimal(text.removesuffix("%").strip())
    except InvalidOperation:
        percent = Decimal("NaN")
    if not (percent.is_finite() and 0 < percent <= 10_000):
        raise ValueError(f"{text[:60]!r} is no share of the peak; write a size such as 8GB, or 80%")
    return percent / 100
