"""Placement of orders with blocking transfers: a transfer occupies its sender, or both ends.

Between two operations, a device has *posts*: it sends the results of the one, and receives the inputs of the other
that it has not received yet. The modes differ in who blocks:

- ``blocking``: only the sender; it sends one value after the other, and continues.
- ``rendezvous``: both ends must have posted a transfer; each device posts its transfers one by one.
- ``grouped``: each device posts all its transfers at once. Among transfers that both ends have posted, the first to
  become ready goes first.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from remat.units import Number


@dataclass(frozen=True, slots=True)
class Stuck:
    """Orders that deadlock: the numbers of operations that wait for each other, as a cycle."""

    cycle: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer between two devices: the operation that writes the value, its first reader, and the durations.

    `held` are the resources of the machine that its link occupies; the devices come first among them.
    """

    maker: int
    first_reader: int
    source: int
    target: int
    held: tuple[int, ...]
    occupied: Number
    delay: Number


@dataclass(slots=True)
class Played:
    """Start times and event numbers of operations and transfers."""

    started: list[Number]
    number_of: list[int]
    sent: list[Number]
    sent_number: list[int]


class Work(Protocol):
    """The duration of operations: maps the start time to the end time."""

    def __call__(self, operation: int, begin: Number, /) -> Number:
        """Return when the operation ends."""
        ...


@dataclass
class _Device:
    """A device: its next operation, and the transfers before it.

    Attributes
    ----------
    up, last : int
        The next operation, and the end of its operations.
    queue : list of int
        Transfers that it has not posted yet.
    left : int
        Transfers before the next operation that are not complete.
    busy : bool
        Whether it runs an operation or takes part in a transfer.
    """

    up: int
    last: int
    queue: list[int] = field(default_factory=list)
    left: int = 0
    busy: bool = False


class Meetings:
    """A simulation of all devices.

    Parameters
    ----------
    bounds : sequence of int
        Device d runs the operations bounds[d] to bounds[d + 1], in this order.
    transfers : sequence of Transfer
        Sorted by the order in which the values of one operation are sent.
    missing : sequence of int
        For each operation, the number of operations on its device and of transfers that it waits for.
    followers : sequence of list of int
        For each operation, the operations on its device that wait for it.
    receivers : sequence of list of int
        For each transfer, the operations that wait for it.
    work : callable
    mode : str
        ``blocking``, ``rendezvous`` or ``grouped``.
    """

    def __init__(
        self,
        bounds: Sequence[int],
        transfers: Sequence[Transfer],
        *,
        missing: Sequence[int],
        followers: Sequence[list[int]],
        receivers: Sequence[list[int]],
        work: Work,
        mode: str,
    ) -> None:
        self.transfers, self.missing, self.followers, self.receivers = transfers, list(missing), followers, receivers
        self.work, self.grouped, self.both_ends = work, mode == "grouped", mode != "blocking"
        count = bounds[-1]
        self.devices = [_Device(first, last) for first, last in pairwise(bounds)]
        self.blocked = [self._blocks(transfer) for transfer in transfers]
        self.taken: set[int] = set()  # channels
        self.device_of = [device for device, own in enumerate(self.devices) for _ in range(own.last - own.up)]
        self.sends: list[list[int]] = [[] for _ in range(count)]
        self.receives: list[list[int]] = [[] for _ in range(count)]
        for number, transfer in enumerate(transfers):
            self.sends[transfer.maker].append(number)
            if self.both_ends:
                self.receives[transfer.first_reader].append(number)
        self.posts = [0] * len(transfers)
        # Transfers that may begin when their devices are free: time of the last post, then tie breakers.
        self.waiting: list[tuple[Number, int, int, int]] = []
        self.events: list[tuple[Number, int, int, int]] = []
        self.made = 0
        self.now: Number = 0
        self.played = Played([0] * count, [0] * count, [0] * len(transfers), [0] * len(transfers))
        self.done = 0

    def play(self) -> Played | Stuck:
        """Simulate all operations; O(operations x devices + accesses log accesses)."""
        for number, device in enumerate(self.devices):
            self._turn(number, [] if device.up == device.last else self.receives[device.up])
        while True:
            while self.events and self.events[0][0] == self.now:
                _, _, happens, item = heapq.heappop(self.events)
                (self._end, self._release, self._arrive)[happens](item)
            if self._transfer() or self._run():
                continue
            if not self.events:
                break
            self.now = self.events[0][0]
        return self.played if self.done == len(self.sends) else Stuck(self._cycle())

    def _blocks(self, transfer: Transfer) -> tuple[list[int], list[int]]:
        """Return the devices and the channels that a transfer occupies."""
        ends = {transfer.source, transfer.target} if self.both_ends else {transfer.source}
        devices = ends | {resource for resource in transfer.held if resource < len(self.devices)}
        return sorted(devices), [resource for resource in transfer.held if resource >= len(self.devices)]

    def _later(self, time: Number, happens: int, item: int) -> None:
        heapq.heappush(self.events, (time, self.made, happens, item))

    def _turn(self, number: int, transfers: list[int]) -> None:
        """Let a device start its posts between two operations."""
        device = self.devices[number]
        device.left = len(transfers)
        device.queue = transfers[::-1]
        self._post(device)

    def _post(self, device: _Device) -> None:
        """Post the next transfer of a device, or all of them."""
        while device.queue:
            item = device.queue.pop()
            self.posts[item] += 1
            if self.posts[item] == 1 + self.both_ends:
                transfer = self.transfers[item]
                insort(self.waiting, (self.now, transfer.source, transfer.target, item))
            if not self.grouped:
                break

    def _transfer(self) -> bool:
        """Begin the first transfer whose devices and channels are free."""
        for place, (_, _, _, item) in enumerate(self.waiting):
            devices, channels = self.blocked[item]
            if any(self.devices[device].busy for device in devices) or not self.taken.isdisjoint(channels):
                continue
            del self.waiting[place]
            self.made += 1
            for device in devices:
                self.devices[device].busy = True
            self.taken.update(channels)
            self.played.sent[item], self.played.sent_number[item] = self.now, self.made
            transfer = self.transfers[item]
            self._later(self.now + transfer.occupied, 1, item)
            # The same sum as for the end of a step.
            self._later(self.now + transfer.occupied + transfer.delay, 2, item)
            return True
        return False

    def _run(self) -> bool:
        """Begin all operations that can."""
        found = False
        for device in self.devices:
            ready = device.up < device.last and not device.busy and not device.left and not self.missing[device.up]
            if ready:
                found = device.busy = True
                self.made += 1
                self.played.started[device.up], self.played.number_of[device.up] = self.now, self.made
                self._later(self.work(device.up, self.now), 0, device.up)
        return found

    def _end(self, operation: int) -> None:
        number = self.device_of[operation]
        device = self.devices[number]
        self.done += 1
        device.busy = False
        device.up += 1
        for other in self.followers[operation]:
            self.missing[other] -= 1
        received = self.receives[device.up] if device.up < device.last else []
        self._turn(number, self.sends[operation] + received)

    def _release(self, item: int) -> None:
        transfer = self.transfers[item]
        ends = (transfer.source, transfer.target) if self.both_ends else (transfer.source,)
        self.devices[transfer.source].left -= 1
        devices, channels = self.blocked[item]
        for number in devices:
            self.devices[number].busy = False
        self.taken.difference_update(channels)
        for number in ends if not self.grouped else ():
            self._post(self.devices[number])

    def _arrive(self, item: int) -> None:
        if self.both_ends:
            self.devices[self.transfers[item].target].left -= 1
        for operation in self.receivers[item]:
            self.missing[operation] -= 1

    def _cycle(self) -> tuple[int, ...]:
        """Follow the waits between devices from a device with unfinished operations until a device repeats."""
        posted: dict[int, set[int]] = {}
        for number, device in enumerate(self.devices):
            if device.up < device.last or device.left:
                turn = self.receives[device.up] if device.up < device.last else []
                before = self.sends[device.up - 1] if device.up and self.device_of[device.up - 1] == number else []
                posted[number] = {*before, *turn} - set(device.queue)
        at, path = next(iter(posted)), dict[int, None]()
        while at not in path:
            path[at] = None
            waits = (self._other(item, at) for item in sorted(posted[at]) if self.posts[item] == 1)
            # Or it waits for a value that it writes itself, later.
            at = next((other for other in waits if other in posted), at)
        listed = list(path)
        return tuple(
            min(self.devices[number].up, self.devices[number].last - 1) for number in listed[listed.index(at) :]
        )

    def _other(self, item: int, number: int) -> int:
        transfer = self.transfers[item]
        return transfer.target if transfer.source == number else transfer.source
