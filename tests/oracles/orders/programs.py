"""Play orders whose transfers hold devices up."""

from functools import partial

from .operations import numbered, own_runs, runs_of


class Programs:
    """Devices that do one thing after the other: operations (strings of tasks), and sets of transfers."""

    def __init__(self, graph, machine, orders, initial, transfers):
        self.graph, self.machine, self.both = graph, machine, transfers != "blocking"
        self.there = {(memory, value) for value, memories in initial.items() for memory in memories}
        self.devices = list(orders)
        self.doing = dict.fromkeys(orders)  # an operation or a transfer that is going on
        self.held = set()  # channels, and devices that are no end of the transfer that occupies them
        self.events, self.steps, self.now = [], [], 0
        self.own = {device: own_runs(operations) for device, operations in orders.items()}
        self.over = set()  # tasks that have run
        self.can = {}  # transfers that all have come to: since when
        self.came = {}  # transfers: who has come to it
        first_reader, offers = {}, {}
        for device, operations in orders.items():
            for number, operation in enumerate(operations):
                for value in operation.needs:
                    first_reader.setdefault((device, value), number)
        for device, operations in orders.items():
            for number, operation in enumerate(operations):
                for value in operation.makes:
                    for other in self.devices:
                        if other != device and (other, value) in first_reader:
                            offers.setdefault((device, number + 1), []).append((device, other, value))
        asks = {}
        for listed in offers.values():
            for transfer in listed:
                _, other, value = transfer
                asks.setdefault((other, first_reader[other, value]), []).append(transfer)
        self.programs = {}
        for device, operations in orders.items():
            program = []
            for number in range(len(operations) + 1):
                turn = sorted(offers.get((device, number), []), key=self._rank)
                turn += sorted(asks.get((device, number), []), key=self._rank) if self.both else []
                program += [set(turn)] if transfers == "grouped" else [{transfer} for transfer in turn]
                program += operations[number : number + 1]
            self.programs[device] = [entry for entry in program if entry]

    def _rank(self, transfer):
        """Order by the number of the value, then by its receiver."""
        source, target, value = transfer
        return *numbered(value), self.devices.index(target), self.devices.index(source)

    def _first(self, transfer):
        return self.can[transfer], *(self.devices.index(end) for end in transfer[:2]), self._rank(transfer)

    def play(self):
        """Return the steps, or None where somebody waits for ever."""
        while True:
            while due := next((event for event in self.events if event[0] == self.now), None):
                self.events.remove(due)
                due[1]()
            self._come()
            if self._send() or self._run():
                continue
            if not self.events:
                return None if any(self.programs.values()) else self.steps
            self.now = min(when for when, _ in self.events)

    def _come(self):
        for device, program in self.programs.items():
            if program and isinstance(program[0], set) and self.doing[device] is None:
                for transfer in program[0]:
                    self.came.setdefault(transfer, set()).add(device)
                    if len(self.came[transfer]) == 1 + self.both:
                        self.can.setdefault(transfer, self.now)

    def _send(self):
        for transfer in sorted(self.can, key=self._first):
            source, target, value = transfer
            ends = (source, target) if self.both else (source,)
            here, there = self.machine.processors[source], self.machine.processors[target]
            link = self.machine.link(here, there)
            more = {link.channel, *link.also} - set(ends)
            if any(self.doing.get(name) is not None or name in self.held for name in (*ends, *more)):
                continue
            del self.can[transfer]
            for end in ends:
                self.doing[end] = transfer
            self.held |= more
            self.steps.append({"copy": value, "from": here, "to": there, "start": self.now})
            until = self.now + link.duration(self.graph.values[value])
            self.events.append((until, partial(self._left, transfer, ends, more)))
            self.events.append((until + link.delay, partial(self.there.add, (there, value))))
            return True
        return False

    def _left(self, transfer, ends, more):
        self.held -= more
        for end in ends:
            self.doing[end] = None
            self.programs[end][0].discard(transfer)
            if not self.programs[end][0]:
                del self.programs[end][0]

    def _run(self):
        begun = False
        for device, program in self.programs.items():
            memory = self.machine.processors[device]
            if self.doing[device] is not None or device in self.held or not program or isinstance(program[0], set):
                continue
            operation = program[0]
            again = [operation.tasks[index] for index in operation.again]
            if not all((memory, value) in self.there for value in operation.needs):
                continue
            if not self.over.issuperset(self.own[device].intersection(again)):
                continue
            self.doing[device] = operation
            steps, end = runs_of(self.graph, self.machine, operation, self.now)
            self.steps += steps
            self.events.append((end, partial(self._ran, device, operation)))
            begun = True
        return begun

    def _ran(self, device, operation):
        self.doing[device] = None
        del self.programs[device][0]
        self.over.update(operation.tasks)
        self.there.update((self.machine.processors[device], value) for value in operation.makes)
