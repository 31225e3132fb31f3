"""The reference of an overhead in words; every output that prints an overhead names it in this way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.units import format_time

WITHOUT_RECOMPUTATION = "without recomputation"
"""What an overhead refers to, unless transfers or exchanges take longer."""

if TYPE_CHECKING:
    from remat.solving.facts import Facts
    from remat.solving.result import Result


def reference_words(timed: Result | Facts, alone: str = "") -> str:
    """Return the time and the meaning of the reference: ``the 12.1 ms without recomputation``.

    Parameters
    ----------
    timed : Result or Facts
    alone : str
        Where the reference runs, such as ``on gpu alone ``, if the schedule uses other processors, too.
    """
    time = format_time(timed.reference_time, timed.units)
    if timed.transfer_bound == timed.reference_time > timed.no_recompute_time - timed.exchange_time:
        return f"the {time} that mandatory transfers take"
    if not timed.exchange_time:
        return f"the {time} {alone}{WITHOUT_RECOMPUTATION}"
    if timed.exchange_time == timed.reference_time:
        return f"the {time} that the exchanges between ranks take"
    return f"the {time} {alone}{WITHOUT_RECOMPUTATION}, exchanges overlapped"
