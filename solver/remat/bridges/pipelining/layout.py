"""Layout of a CSV schedule: places and sequence of the stages, and a check that every operation occurs once.

The stages of a CSV follow each other by number. In bidirectional schedules (which PyTorch does not have), stages run
different micro-batches; stages with the same micro-batches form one copy of the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from remat.bridges.pipelining.actions import COMPUTING, TRANSFERS, Action, Kind, Overlap, Place, Rows, each_action
from remat.errors import InstanceError

_ENDS = {Kind.SEND_F: 1, Kind.RECV_B: 1, Kind.RECV_F: -1, Kind.SEND_B: -1}
"""On which side of its stage the other end of a transfer is."""

OTHER_END = {
    Kind.SEND_F: Kind.RECV_F,
    Kind.RECV_F: Kind.SEND_F,
    Kind.SEND_B: Kind.RECV_B,
    Kind.RECV_B: Kind.SEND_B,
}


@dataclass(frozen=True)
class Layout:
    """A checked CSV schedule.

    Attributes
    ----------
    rows : Rows
    home : tuple of int
        The row of each stage.
    copies : tuple of tuple of int
        The stages of each copy of the model, in the order in which a micro-batch passes them.
    batches : int
        Number of micro-batches.
    """

    rows: Rows
    home: tuple[int, ...]
    copies: tuple[tuple[int, ...], ...]
    batches: int

    @cached_property
    def neighbours(self) -> dict[tuple[int, int], int]:
        """The stage after (1) and before (-1) each one; missing at the ends of a copy."""
        found = {}
        for stages in self.copies:
            for one, other in pairwise(stages):
                found[one, 1], found[other, -1] = other, one
        return found

    @cached_property
    def has_transfers(self) -> bool:
        """Whether sends and receives are listed."""
        return any(action.kind in TRANSFERS for _, action in each_action(self.rows))

    @cached_property
    def overlaps(self) -> int:
        """Number of cells with two simultaneous operations."""
        return sum(isinstance(cell, Overlap) for cells in self.rows for cell in cells)

    def transfers_of(self, action: Action) -> tuple[Action | None, Action | None]:
        """Return the receive and the send of an operation; None for a transfer within its rank."""
        if action.kind is Kind.FORWARD:
            return self._transfer(action, Kind.RECV_F), self._transfer(action, Kind.SEND_F)
        if action.kind is Kind.WEIGHT:
            return None, None
        return self._transfer(action, Kind.RECV_B), self._transfer(action, Kind.SEND_B)

    def _transfer(self, action: Action, kind: Kind) -> Action | None:
        other = self.neighbours.get((action.stage, _ENDS[kind]))
        if other is None or self.home[other] == self.home[action.stage]:
            return None
        return Action(kind, action.stage, action.batch)

    def other_end(self, transfer: Action) -> Action:
        """Return the receive of a send, the send of a receive."""
        stage = self.neighbours[transfer.stage, _ENDS[transfer.kind]]
        return Action(OTHER_END[transfer.kind], stage, transfer.batch)


def check_layout(rows: Rows, name: str = "the schedule") -> Layout:
    """Check the cells of a schedule; `name` is for the messages.

    Raises
    ------
    InstanceError
        By row and cell: stages in two rows, operations that are missing or there twice, numbers that are left out,
        transfers that the operations do not ask for.

    Notes
    -----
    O(cells): large numbers alone cause no allocation.
    """
    try:
        home, at = _places(rows)
        ran = _check_operations(home, at)
        copies = _copies(home, ran)
        batches = 1 + max(batch for own in ran for batch in own)
        layout = Layout(rows, home, copies, batches)
        if layout.has_transfers:
            _check_transfers(layout, at)
    except InstanceError as error:
        raise InstanceError(f"{name}: {error}") from None
    return layout


def _places(rows: Rows) -> tuple[tuple[int, ...], dict[Action, tuple[int, Place]]]:
    """Return the row of each stage, and the number and place of each action that occurs once."""
    home: dict[int, int] = {}
    at: dict[Action, tuple[int, Place]] = {}
    computing: set[int] = set()
    for number, (place, action) in enumerate(each_action(rows)):
        own = home.setdefault(action.stage, place.row)
        if own != place.row:
            raise InstanceError(f"{place}: {action}: stage {action.stage} is in row {own + 1}, too")
        if action.batch is None:
            continue
        if action in at:
            raise InstanceError(f"{place}: {action} is there already, in cell {at[action][1].cell + 1}")
        at[action] = number, place
        if action.kind in COMPUTING:
            computing.add(action.stage)
    if not computing:
        raise InstanceError("no row has an operation such as 0F0")
    for number, stage in enumerate(sorted(home)):
        if number != stage or stage not in computing:
            raise InstanceError(f"stage {number} has no operations, but stage {max(home)} has")
    return tuple(home[stage] for stage in range(len(home))), at


def _check_operations(home: tuple[int, ...], at: dict[Action, tuple[int, Place]]) -> list[set[int]]:
    """Check that each stage runs forward and backward of the same micro-batches; return these."""
    ran: list[set[int]] = [set() for _ in home]
    for action, (_, place) in at.items():
        if action.kind not in COMPUTING:
            continue
        assert action.batch is not None
        forward, half, weight, whole = (
            Action(kind, action.stage, action.batch) for kind in (Kind.FORWARD, Kind.INPUT, Kind.WEIGHT, Kind.BACKWARD)
        )
        if action.kind is Kind.FORWARD:
            ran[action.stage].add(action.batch)
            if whole not in at and half not in at:
                raise InstanceError(f"{place}: {action} has no backward: {whole}, or {half} and {weight}")
        elif forward not in at:
            raise InstanceError(f"{place}: {action} has no forward, {forward}")
        elif action.kind is Kind.BACKWARD:
            if half in at or weight in at:
                raise InstanceError(
                    f"{place}: {action} is a whole backward, but the CSV also has {half} or {weight} "
                    "(older files use B for I)"
                )
        elif (other := weight if action.kind is Kind.INPUT else half) not in at:
            raise InstanceError(f"{place}: {action} is half a backward without {other}")
    known = {batch for own in ran for batch in own}
    for number, batch in enumerate(sorted(known)):
        if number != batch:
            raise InstanceError(f"micro-batch {number} has no operations, but micro-batch {max(known)} has")
    return ran


def _copies(home: tuple[int, ...], ran: list[set[int]]) -> tuple[tuple[int, ...], ...]:
    """Group stages by the micro-batches that they run."""
    found: list[list[int]] = []
    first_with: dict[int, int] = {}
    for stage, own in enumerate(ran):
        if found and ran[found[-1][0]] == own:
            found[-1].append(stage)
            continue
        if other := next((first_with[batch] + 1 for batch in sorted(own) if batch in first_with), 0):
            _refuse_mixed(home, ran, other - 1, stage)
        first_with.update(dict.fromkeys(own, stage))
        found.append([stage])
    return tuple(map(tuple, found))


def _refuse_mixed(home: tuple[int, ...], ran: list[set[int]], one: int, other: int) -> None:
    apart = ran[one] ^ ran[other]
    if not apart:
        raise InstanceError(f"stage {other} runs the micro-batches of stage {one}, and does not follow it")
    batch = min(apart)
    has, lacks = (one, other) if batch in ran[one] else (other, one)
    missing = Action(Kind.FORWARD, lacks, batch)
    raise InstanceError(f"row {home[lacks] + 1}: {missing} is missing; stage {has} runs micro-batch {batch}")


def _check_transfers(layout: Layout, at: dict[Action, tuple[int, Place]]) -> None:
    """Check that the transfers match the needs of the operations, each on the right side of its operation."""
    wanted: set[Action] = set()
    for operation, (number, place) in at.items():
        if operation.kind not in COMPUTING:
            continue
        received, sent = layout.transfers_of(operation)
        for transfer, before in ((received, True), (sent, False)):
            if transfer is None:
                continue
            wanted.add(transfer)
            if transfer not in at:
                raise InstanceError(f"{place}: {operation} needs {transfer}, which is missing; others are listed")
            if (at[transfer][0] < number) is not before:
                right = "before" if before else "after"
                raise InstanceError(f"{at[transfer][1]}: {transfer} belongs {right} {operation}")
    for transfer, (_, place) in at.items():
        if transfer.kind in TRANSFERS and transfer not in wanted:
            raise InstanceError(f"{place}: {transfer}: {_why_not(layout, transfer)}")


def _why_not(layout: Layout, transfer: Action) -> str:
    other = layout.neighbours.get((transfer.stage, _ENDS[transfer.kind]))
    if other is None:
        return f"stage {transfer.stage} is the {'last' if _ENDS[transfer.kind] > 0 else 'first'} one"
    if layout.home[other] == layout.home[transfer.stage]:
        return f"stages {transfer.stage} and {other} are in the same row, so no transfer is needed"
    return f"stage {transfer.stage} does not run micro-batch {transfer.batch}"
