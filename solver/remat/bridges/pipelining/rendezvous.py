"""Deadlock check for rendezvous transfers, by simulation of each rank's program.

A rank runs its row in order. It posts adjacent sends and receives together as a group, and continues when all of them
are complete, in any order. A transfer completes when both ends have reached it. An idle cell ends a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat.bridges.pipelining.actions import COMPUTING, TRANSFERS, Action, Cell, Overlap
from remat.bridges.pipelining.layout import Layout, check_layout
from remat.bridges.pipelining.orders import rows_of
from remat.schedule.orders import Orders

MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Blocked:
    """A rank that waits in a transfer."""

    rank: int
    transfer: Action


def rendezvous_deadlock(orders: Orders, *, grouped: bool) -> tuple[Blocked, ...] | None:
    """Return a cycle of deadlocked ranks if transfers block both ends; None without deadlock.

    Parameters
    ----------
    orders : Orders
        Orders without deadlock for non-blocking transfers.
    grouped : bool
        The sends of an operation and the receives of the next are posted at once. Otherwise a rank sends what it has
        just made, then receives what it is about to need, one by one.

    Raises
    ------
    OptionError, InstanceError
        For orders that a CSV cannot say (see `rows_of`).
    """
    return hang_of(with_transfers(check_layout(rows_of(orders)), grouped=grouped))


def with_transfers(layout: Layout, *, grouped: bool) -> Layout:
    """Add sends and receives to a schedule without them; unless grouped, separate them by idle cells."""
    rows = []
    for cells in layout.rows:
        row: list[Cell] = []
        sent: list[Action] = []
        for cell in cells:
            operations = [cell.first, cell.second] if isinstance(cell, Overlap) else [cell] if cell else []
            pairs = [layout.transfers_of(one) for one in operations if one.kind in COMPUTING]
            if not pairs:
                continue
            row.extend(_posted(sent + [received for received, _ in pairs if received is not None], grouped))
            row.append(cell)
            sent = [given for _, given in pairs if given is not None]
        rows.append((*row, *_posted(sent, grouped)))
    return Layout(tuple(rows), layout.home, layout.copies, layout.batches)


def _posted(transfers: Sequence[Action], grouped: bool) -> Sequence[Cell]:
    if grouped:
        return transfers
    return [cell for transfer in transfers for cell in (None, transfer)][1:]


def hang_of(layout: Layout) -> tuple[Blocked, ...] | None:
    """Return a cycle of deadlocked ranks; None if all listed transfers can complete.

    Notes
    -----
    O(cells). The order of transfers does not matter: a rank that can continue now can also continue later.
    """
    groups = [_groups(cells) for cells in layout.rows]
    at = [0] * len(groups)
    left = [len(own[0]) if own else 0 for own in groups]
    posted: set[Action] = set()
    ready = list(range(len(groups)))
    while ready:
        rank = ready.pop()
        if at[rank] == len(groups[rank]):
            continue
        for transfer in groups[rank][at[rank]]:
            posted.add(transfer)
            other = layout.other_end(transfer)
            if other in posted:
                for end in (transfer, other):
                    own = layout.home[end.stage]
                    left[own] -= 1
                    if left[own] == 0:
                        at[own] += 1
                        left[own] = len(groups[own][at[own]]) if at[own] < len(groups[own]) else 0
                        ready.append(own)
    stuck = {rank for rank, own in enumerate(groups) if at[rank] < len(own)}
    if not stuck:
        return None
    waits: dict[int, dict[int, Action]] = {rank: {} for rank in stuck}
    for rank in stuck:
        for transfer in groups[rank][at[rank]]:
            other = layout.other_end(transfer)
            if other not in posted:
                waits[rank].setdefault(layout.home[other.stage], transfer)
    return _shortest_cycle(waits)


def _groups(cells: Sequence[Cell]) -> list[list[Action]]:
    """Return the groups of transfers of a row that are posted together."""
    found: list[list[Action]] = []
    open_ = False
    for cell in cells:
        if isinstance(cell, Action) and cell.kind in TRANSFERS:
            if not open_:
                found.append([])
            found[-1].append(cell)
            open_ = True
        elif cell is None or isinstance(cell, Overlap) or cell.kind in COMPUTING:
            open_ = False
    return found


def _shortest_cycle(waits: dict[int, dict[int, Action]]) -> tuple[Blocked, ...]:
    """Return a shortest cycle of ranks; each blocked rank waits for another blocked rank."""
    best: list[int] = []
    for origin in sorted(waits):
        came: dict[int, int] = {}
        front = [origin]
        while front and origin not in came:
            following = []
            for rank in front:
                for other in sorted(waits[rank]):
                    if other not in came:
                        came[other] = rank
                        following.append(other)
            front = following
        if origin in came:
            path = [came[origin]]
            while path[-1] != origin:
                path.append(came[path[-1]])
            if not best or len(path) < len(best):
                best = path[::-1]
    assert best, "each blocked device waits for another blocked device"
    return tuple(Blocked(rank, waits[rank][best[(k + 1) % len(best)]]) for k, rank in enumerate(best))


def told(cycle: Sequence[Blocked], devices: Sequence[str]) -> str:
    """Return a cycle as text."""
    shown = [f"{blocked.transfer} on {devices[blocked.rank]}" for blocked in cycle]
    if len(shown) > MOST_SHOWN:
        shown = [*shown[: MOST_SHOWN - 1], f"({len(shown) - MOST_SHOWN + 1} more)"]
    return " waits for ".join([*shown, shown[0]])
