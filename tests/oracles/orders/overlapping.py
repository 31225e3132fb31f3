"""Simulate orders whose transfers overlap with computation."""

import heapq
import typing
from dataclasses import dataclass, field
from itertools import count

from tests.oracles import closing

from .operations import numbered, own_runs, runs_of


@dataclass
class _Way:
    """A channel, or a device that links occupy: until when it is occupied, and what waits for it.

    Transfers wait as (link, value), exchanges as their name. Each begins when it is the first one for all its ways.
    """

    free_at: typing.Any = 0
    waiting: list = field(default_factory=list)


def play(graph, machine, orders, initial):
    """Return runs and copies with their starts, or None where somebody waits for ever."""
    return _Player(graph, machine, orders, initial).play()


class _Player:
    """A clock that goes from event to event."""

    def __init__(self, graph, machine, orders, initial):
        self.graph, self.machine, self.orders = graph, machine, orders
        self.targets = {}  # by value, the memories of those that need it from elsewhere, in the order of devices
        for device, operations in orders.items():
            for operation in operations:
                for value in operation.needs - set(operation.makes):
                    self.targets.setdefault(value, {})[machine.processors[device]] = None
        self.there = {(memory, value) for value, memories in initial.items() for memory in memories}
        self.ways = {name: _Way() for link in machine.links for name in _held(link)}
        self.busy, self.next = dict.fromkeys(orders), dict.fromkeys(orders, 0)
        self.together = {name: task for name, task in graph.tasks.items() if task.parts}
        self.own = {device: own_runs(operations) for device, operations in orders.items()}
        self.over = set()  # tasks that have run
        self.events, self.number = [], count()
        self.steps, self.now = [], 0

    def at(self, when, happen):
        """Let something happen then."""
        heapq.heappush(self.events, (when, next(self.number), happen))

    def play(self):
        """Return the steps, or None where somebody waits for ever."""
        while True:
            while self._advance():
                pass
            if not self.events:
                break
            self.now = self.events[0][0]
        done = all(self.next[device] == len(operations) for device, operations in self.orders.items())
        return self.steps if done else None

    def _advance(self):
        """Execute all actions possible now, and return whether any ran."""
        moved = False
        while self.events and self.events[0][0] == self.now:
            heapq.heappop(self.events)[2]()
            moved = True
        for way in self.ways.values():
            if way.waiting and isinstance(way.waiting[0], str):
                moved = self._meet(way.waiting[0]) or moved
            elif way.waiting:
                moved = self._send(*way.waiting[0]) or moved
        if moved:
            return True
        for device in self.orders:
            moved = self._begin(device) or moved
        if moved:
            return True
        for name, task in self.together.items():
            if all((place, value) in self.there for read, _, place in task.parts for value in read):
                del self.together[name]
                for channel in closing.channels(self.machine, task):
                    self.ways[channel].waiting.append(name)
                return True
        return False

    def _begin(self, device):
        """Begin the next operation of a device, if it can."""
        if self.busy[device] is not None or self.next[device] == len(self.orders[device]):
            return False
        own = self.ways.get(device, _Way())
        if own.waiting or own.free_at > self.now:
            return False
        operation, memory = self.orders[device][self.next[device]], self.machine.processors[device]
        again = [operation.tasks[index] for index in operation.again]
        if not all((memory, value) in self.there for value in operation.needs):
            return False
        if not self.over.issuperset(self.own[device].intersection(again)):
            return False
        remade = {value for name in again for value in self.graph.tasks[name].writes}
        if any((target, value) not in self.there for value in remade for target in self.targets.get(value, ())):
            return False  # it is still in transfer
        if any(remade & one.needs - set(one.makes) for one in self._others(device, memory)):
            return False  # another device still reads the earlier value there
        self.busy[device] = operation
        self.next[device] += 1
        steps, end = runs_of(self.graph, self.machine, operation, self.now)
        self.steps += steps
        own.free_at = end
        self.at(end, lambda: self._end(operation))
        return True

    def _others(self, device, memory):
        """Yield the operations of other devices of a memory that have not ended."""
        for other, operations in self.orders.items():
            if other != device and self.machine.processors[other] == memory:
                yield from ([self.busy[other]] if self.busy[other] else []) + operations[self.next[other] :]

    def _end(self, operation):
        """All results of an operation are ready at the same time."""
        self.busy[operation.device] = None
        self.over.update(operation.tasks)
        source = self.machine.processors[operation.device]
        self.there.update((source, value) for value in operation.makes)
        for value in sorted((value for value in operation.makes if value[0] in "xsyve"), key=numbered):
            for target in dict.fromkeys(self.machine.processors[device] for device in self.orders):
                if target != source and target in self.targets.get(value, ()):
                    link = self.machine.link(source, target)
                    for name in _held(link):
                        self.ways[name].waiting.append((link, value))

    def _meet(self, name):
        """Start an exchange if it is first in the queues of all its links."""
        task = self.graph.tasks[name]
        own = [self.ways[channel] for channel in closing.channels(self.machine, task)]
        if any(way.waiting[0] != name or way.free_at > self.now for way in own):
            return False
        on = [next(one for one, at in self.machine.processors.items() if at == place) for _, _, place in task.parts]
        self.steps.append({"run": name, "on": on, "start": self.now})
        for way in own:
            way.waiting.pop(0)
            way.free_at = self.now + task.time
        made = {(place, value) for _, written, place in task.parts for value in written}
        self.at(self.now + task.time, lambda: self.there.update(made))
        return True

    def _send(self, link, value):
        """Start a transfer if it is first in the queues of all that its link occupies."""
        own = [self.ways[name] for name in _held(link)]
        if any(way.waiting[0] != (link, value) or way.free_at > self.now for way in own):
            return False
        self.steps.append({"copy": value, "from": link.source, "to": link.target, "start": self.now})
        until = self.now + link.duration(self.graph.values[value])
        for way in own:
            way.waiting.pop(0)
            way.free_at = until
        self.at(until, lambda: None)
        self.at(until + link.delay, lambda: self.there.add((link.target, value)))
        return True


def _held(link):
    """Return the names of what a link occupies."""
    return dict.fromkeys((link.channel, *link.also))
