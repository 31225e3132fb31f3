"""Sends of a rank: each tensor is held until its receiver is known to have it, and no longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remat.bridges.pipelining.actions import COMPUTING, Action, Kind, each_action
from remat.bridges.pipelining.layout import Layout


def arrivals_before(layout: Layout, rank: int) -> dict[Action, list[Action]]:
    """Return, for operations of a rank, its sends that have certainly arrived when they begin.

    A send has arrived when the receiver has run the operation that reads it. This is certain once an operation here
    begins that reads what the receiver sent at that operation, or later.

    Parameters
    ----------
    layout : Layout
        Cells without transfers.
    rank : int

    Notes
    -----
    O(operations).
    """
    operations = [(place.row, action) for place, action in each_action(layout.rows) if action.kind in COMPUTING]
    position = {action: number for number, (_, action) in enumerate(operations)}
    reader = {layout.transfers_of(action)[0]: action for _, action in operations}
    first: dict[tuple[int, int], int] = {}
    """First operation here that reads what another rank sends at an operation or later, by rank and operation."""
    earliest = dict.fromkeys(range(len(layout.rows)), len(operations))
    for number in reversed(range(len(operations))):
        row, action = operations[number]
        sent = layout.transfers_of(action)[1]
        if sent is not None:
            target = layout.other_end(sent)
            if row != rank and layout.home[target.stage] == rank:
                earliest[row] = min(earliest[row], position[reader[target]])
        first[row, number] = earliest[row]
    found: dict[Action, list[Action]] = {}
    for row, action in operations:
        sent = layout.transfers_of(action)[1]
        if row != rank or sent is None:
            continue
        target = layout.other_end(sent)
        known = first[layout.home[target.stage], position[reader[target]]]
        if known < len(operations):
            found.setdefault(operations[known][1], []).append(sent)
    return found


def operation_of(kind: Kind, stage: int, batch: int) -> Action:
    """Return an operation as the key of `arrivals_before`; a whole backward and its first half are one key."""
    return Action(Kind.INPUT if kind is Kind.BACKWARD else kind, stage, batch)


class Sends:
    """The sends of a rank that PyTorch has begun in a step.

    Parameters
    ----------
    arrived : mapping
        From `arrivals_before`.
    """

    def __init__(self, arrived: Mapping[Action, Sequence[Action]]) -> None:
        self._arrived = {operation_of(one.kind, one.stage, one.batch or 0): sends for one, sends in arrived.items()}
        self._works: dict[Action, list[Any]] = {}

    def post(self, send: Action, operations: Sequence[Any]) -> None:
        """Begin to send the tensors of PyTorch's P2P operations."""
        self._works[send] = [
            one.op(one.tensor, group=one.group, tag=one.tag, group_dst=one.group_peer) for one in operations
        ]

    def settle(self, kind: Kind, stage: int, batch: int) -> None:
        """Release the tensors that have arrived when an operation begins."""
        for send in self._arrived.get(operation_of(kind, stage, batch), ()):
            for work in self._works.pop(send, ()):
                work.wait()

    def finish(self) -> None:
        """Wait for all sends."""
        while self._works:
            for work in self._works.popitem()[1]:
                work.wait()
