"""From a schedule with orders to a CSV of `torch.distributed.pipelining`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from remat.bridges.pipelining.actions import Rows
from remat.bridges.pipelining.layout import Layout, check_layout
from remat.bridges.pipelining.orders import first_uneven, rows_of
from remat.bridges.pipelining.rendezvous import hang_of, told, with_transfers
from remat.errors import OptionError
from remat.instance import PipelineInstance
from remat.schedule.orders import Orders, of_firsts
from remat.solving.verifying import Examined

Transfers = Literal["none", "grouped", "single"]


@dataclass(frozen=True, slots=True)
class Exported:
    """A CSV schedule, and notes on the properties that it does not express."""

    rows: Rows
    notes: tuple[str, ...]


def export_csv(examined: Examined, *, transfers: Transfers = "none") -> Exported:
    """Return the orders of a schedule as a CSV for `torch.distributed.pipelining`.

    Parameters
    ----------
    examined : Examined
        The schedule, from `remat.solving.verifying.examine`.
    transfers : {"none", "grouped", "single"}
        Without sends and receives, which PyTorch adds by itself; or with them, those between two operations posted at
        once, or one by one (with an idle cell between two).

    Raises
    ------
    OptionError
        If the schedule breaks rules, has no orders or such as no CSV says, or if its sends and receives would wait for
        each other for ever.
    """
    if not examined.report.ok:
        named = ", ".join(sorted({violation.rule for violation in examined.report.violations}))
        raise OptionError(f"the schedule breaks rules ({named}), so it is not exported")
    orders = examined.orders
    if orders is None:
        raise OptionError("a CSV needs the orders of a pipeline, and the schedule lists steps")
    largest = orders.largest_group
    orders, left = of_firsts(orders)
    layout = check_layout(rows_of(orders))
    devices = [examined.machine.processors[device].name for device in left]
    if transfers == "none":
        return Exported(layout.rows, tuple(_notes(orders, layout, devices, largest)))
    if isinstance(examined.instance, PipelineInstance) and examined.instance.has_skips:
        raise OptionError(
            "layers read others than the one before, and a CSV has sends and receives between neighbouring stages only "
            "(none would do)",
            argument="transfers",
        )
    grouped = transfers == "grouped"
    full = with_transfers(layout, grouped=grouped)
    cycle = hang_of(full)
    if cycle is not None:
        how = "posted at once between two operations" if grouped else "one by one"
        would_do = "none"
        if not grouped and hang_of(with_transfers(layout, grouped=True)) is None:
            would_do = "none or grouped"
        raise OptionError(
            f"with transfers {how} this order hangs: {told(cycle, devices)}; it needs receives that are posted "
            f"beforehand ({would_do} would do)",
            argument="transfers",
        )
    return Exported(full.rows, tuple(_notes(orders, layout, devices, largest)))


def _notes(orders: Orders, layout: Layout, devices: list[str], largest: int) -> Iterator[str]:
    if largest > 1:
        yield f"up to {largest} devices run a stage together: a row is of the first of them, the others have the same"
    if len(layout.copies) > 1:
        own = ", ".join(f"{stages[0]} to {stages[-1]}" for stages in layout.copies[:8])
        yield f"the orders have {len(layout.copies)} copies of the model, as stages {own}; PyTorch supports one"
    if any(stage.recompute for stage in orders.stages):
        yield (
            "a CSV cannot express recomputation: the stages must recompute their layers themselves "
            "(pipe-plan with recompute=none plans without)"
        )
    uneven = first_uneven(orders)
    if uneven is not None:
        yield (
            f"a CSV cannot express the layers of a stage, and these stages are not equal parts (stage {uneven.stage} "
            f"on {devices[orders.stages[uneven.stage].device]} has {uneven.has} of them, not {uneven.even})"
        )
