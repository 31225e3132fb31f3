"""The reference of an overhead in words; every output that prints an overhead names it in this way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.units import format_time

if TYPE_CHECKING:
    from remat.solving.result import Result


def reference_words(result: Result, alone: str = "") -> str:
    """Return the time and the meaning of the reference: ``the 12.1 ms without recomputation``.

    Parameters
    ----------
    result : Result
    alone : str
        Where the reference runs, such as `` on gpu alone``, if the schedule uses other processors, too.
    """
    time = format_time(result.reference_time, result.units)
    if result.transfer_bound == result.reference_time > result.no_recompute_time - result.exchange_time:
        return f"the {time} that mandatory transfers take"
    if not result.exchange_time:
        return f"the {time}{alone} without recomputation"
    if result.exchange_time == result.reference_time:
        return f"the {time} that the exchanges between ranks take"
    return f"the {time}{alone} without recomputation, exchanges overlapped"
