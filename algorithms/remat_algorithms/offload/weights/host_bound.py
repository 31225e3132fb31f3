"""A lower bound for chains whose parameters and states are at a host that also computes, from traffic and work.

The first run of the loss to end, at T, divides a schedule. Before T, a run of every stage's forward has ended; after T,
one of every backward; each after the one before it. Binary choices place each of these first runs on the device or at
the host. The following holds for every schedule:

- parameters of forwards that ran on the device have crossed by T, except those still resident at T: a limited number of
  bytes fits on the device next to the loss;
- the values that the backward needs of its forward are still resident, cross again, or are recomputed by the device;
- a gradient crosses, or the host has run a backward, or the device updates: then states cross there and back;
- each processor and link does one thing at a time, and the work of the first stages comes last; states that come last
  still have to go back.

The program over these choices is an integer program. Times are rounded down to ticks, shares to parts. Rows are relaxed
by the amount that this may take from a solution. O(L^2) rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from remat.plugin import Link, Machine, Problem
from remat_algorithms.kit.programs.cp_sat import LOWERED, solve
from remat_algorithms.kit.programs.program import ProgramBuilder
from remat_algorithms.offload.weights.parameters import Setting

TICKS = 1 << 14
"""Number of ticks of the makespan to beat."""
PARTS = 1 << 10
"""Number of parts of a value's bytes."""
FIRST = 2
"""First stages that may be left out of those that the host has to wait for."""
MOST_STAGES = 60
WORK = 3.0
"""Maximum work on one of the two programs, in CP-SAT's units."""

Term = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Stage:
    """Ticks of one stage: `host` on the processor at the parameters' memory, `crossing` on its link.

    Attributes
    ----------
    forward, backward, update : (device, host)
    parameters, saved, states : (bytes, crossing to the device)
    gradient, renewed : int
        Crossing to the host.
    """

    forward: tuple[int, int]
    backward: tuple[int, int]
    update: tuple[int, int]
    parameters: tuple[int, int]
    saved: tuple[int, int]
    states: tuple[int, int]
    gradient: int
    renewed: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """Data of the program: `room` is the memory left next to the loss; None: unbounded."""

    stages: tuple[_Stage, ...]
    loss: tuple[int, int]
    activation: int
    room: int | None
    horizon: int


def crossing_bound(setting: Setting, makespan: float, stopped: Callable[[], bool]) -> float:
    """Return a lower bound on the makespan of every schedule; 0 if nothing is known.

    Parameters
    ----------
    setting : Setting
    makespan : float
        Makespan of a schedule, which the bound does not exceed.
    stopped : callable
    """
    facts = _facts(setting, makespan) if makespan > 0 else None
    if facts is None:
        return 0.0
    least = makespan
    for on_device in (True, False):
        bound = 0.0
        # With more rows a program is tighter, but its search gets less far in the same time.
        for last in (False, True):
            program = _Crossing(facts, on_device=on_device, last=last).program
            answer = solve(program, seconds=None, stopped=stopped, step=1, work=WORK, known=bound)
            if stopped():
                return 0.0
            bound = max(bound, answer.bound)
            if bound * (makespan / TICKS) * (1 - LOWERED) >= least:
                break
        least = min(least, bound * (makespan / TICKS) * (1 - LOWERED))
    return least


def _facts(setting: Setting, makespan: float) -> _Facts | None:
    """Read the instance; None if the program does not apply to it."""
    problem, graph, machine = setting.problem, setting.graph, setting.machine
    count = len(setting.stages)
    known = {stage.plain for stage in setting.stages} | {stage.forward for stage in setting.stages}
    known |= {stage.backward for stage in setting.stages} | {s.update for s in setting.stages if s.update is not None}
    loss = graph.tasks.find("loss")
    if loss is None or not count or count > MOST_STAGES or known | {loss} != set(range(len(graph.tasks))):
        return None
    into, out = _links(setting, machine)
    if into is None or out is None or not _is_plain(problem, setting, loss):
        return None
    tick = makespan / TICKS

    def ticks(time: float) -> int:
        return max(0, int(time / tick * (1 - LOWERED)))

    def both(tasks: Iterable[int]) -> tuple[int, int]:
        time = min(float(graph.time[task]) for task in tasks)
        device, host = machine.processors[0].speed, machine.processors[1].speed
        return ticks(time / device), ticks(time / host)

    def crossing(link: Link, size: int) -> int:
        return 0 if link.bandwidth is None else ticks(size / link.bandwidth)

    def size(value: int | None) -> int:
        return 0 if value is None else int(graph.size[value])

    stages = []
    for number, stage in enumerate(setting.stages, 1):
        saved = graph.values.find(f"s{number}")
        needed = saved is not None and saved in graph.reads[stage.backward].tolist()
        parameters, kept, states = size(stage.parameters), size(saved) if needed else 0, size(stage.optimizer)
        renewed = size(stage.new_parameters) + size(stage.new_optimizer)
        stages.append(
            _Stage(
                forward=both((stage.plain, stage.forward)),
                backward=both((stage.backward,)),
                update=(0, 0) if stage.update is None else both((stage.update,)),
                parameters=(parameters, crossing(into, parameters)),
                saved=(kept, crossing(into, kept)),
                states=(states, crossing(into, states)),
                gradient=0 if stage.update is None else crossing(out, size(stage.gradient)),
                renewed=crossing(out, renewed),
            )
        )
    beside = [*graph.reads[loss].tolist(), *graph.writes[loss].tolist()]
    needs = sum(map(size, beside)) + int(graph.workspace[loss]) + graph.static_bytes(machine, 0)
    capacity = machine.memories[0].capacity
    room = None if capacity is None else max(0, capacity - needs)
    activation = size(graph.values.find(f"x{count}"))
    return _Facts(tuple(stages), both((loss,)), crossing(out, activation), room, TICKS + 1)


def _links(setting: Setting, machine: Machine) -> tuple[Link | None, Link | None]:
    """Return the links to and from the device, if the machine has only a device and a host, each with a processor."""
    if not setting.may_be_helped or len(machine.memories) != 2 or len(machine.processors) != 2:
        return None, None
    if len(machine.links) != 2 or [p.memory for p in machine.processors] != [0, 1]:
        return None, None
    into, out = (machine.links[machine.link_index[ends]] for ends in ((1, 0), (0, 1)))
    return (None, None) if into.packed is not None or out.packed is not None else (into, out)


def _is_plain(problem: Problem, setting: Setting, loss: int) -> bool:
    """Whether every stage's tasks read and write as the bound assumes."""
    graph = setting.graph
    forced = set(range(len(graph.tasks))) - {s.plain for s in setting.stages} - {s.forward for s in setting.stages}
    if graph.parallel_max is not None or graph.in_place[loss] or not problem.needed.forced[sorted(forced)].all():
        return False
    makers = [set(tasks) for tasks in graph.producers.to_lists()]
    reads = [set(row) for row in graph.reads.to_lists()]

    def made(name: str, by: set[int], read_by: Iterable[int]) -> bool:
        value = graph.values.find(name)
        return value is not None and makers[value] <= by and all(value in reads[task] for task in read_by)

    count = len(setting.stages)
    for number, stage in enumerate(setting.stages, 1):
        forwards, last = {stage.plain, stage.forward}, number == count
        following = setting.stages[number] if not last else None
        readers = (loss,) if following is None else (following.plain, following.forward)
        maker = loss if following is None else following.backward
        if not made(f"x{number}", forwards, readers) or not made(f"y{number}", {maker}, (stage.backward,)):
            return False
        if stage.parameters is not None and any(stage.parameters not in reads[t] for t in (*forwards, stage.backward)):
            return False
        saved = graph.values.find(f"s{number}")
        if saved is not None and not makers[saved] <= {stage.forward}:
            return False
        if stage.update is None:
            continue
        if stage.gradient is None or stage.gradient not in reads[stage.update]:
            return False
        if makers[stage.gradient] != {stage.backward}:
            return False
        if stage.optimizer is not None and stage.optimizer not in reads[stage.update]:
            return False
    return _ends_at_host(setting)


def _ends_at_host(setting: Setting) -> bool:
    """Whether the outputs of updates must end at the host, and no other task produces them."""
    graph, machine = setting.graph, setting.machine
    ends = {place.value for place in graph.outputs if place.memory == machine.memories[1].name}
    for stage in setting.stages:
        for value in (stage.new_parameters, stage.new_optimizer):
            if value is not None and (value not in ends or graph.producers[value].tolist() != [stage.update]):
                return False
    return True


def _last_backwards(stages: Sequence[_Stage]) -> int:
    """Return the minimum remaining time when the last parameters have come for a first backward on the device.

    That is the backward itself, those of the stages before it, and the remaining work of the first stage.
    """
    chain: list[int] = []
    before = 0
    for stage in stages:
        if stage.parameters[0]:
            chain.append(before + stage.backward[0])
        before += min(stage.backward)
    first = stages[0]
    return min(chain, default=0) + min(first.update[1], first.update[0] + first.renewed)


class _Crossing:
    """The program for one of both places of the loss whose run ends first; `last`: with rows for the last states.

    Columns are choices (0 or 1), shares (0 to `PARTS`) and ticks. A name tells the meaning of a column of 1, or
    `PARTS`.
    """

    def __init__(self, facts: _Facts, *, on_device: bool, last: bool) -> None:
        self.facts, self.stages = facts, facts.stages
        self.program = ProgramBuilder()
        self.continuous: set[int] = set()
        count = len(facts.stages)

        def choices() -> list[int]:
            return [self.program.add_column(integer=True) for _ in range(count)]

        def shares() -> list[int]:
            return [self._column(PARTS) for _ in range(count)]

        self.forward_there, self.backward_there = choices(), choices()  # on the device, the first one
        self.again, self.host_backward, self.host_forward = choices(), choices(), choices()
        self.device_updates = choices()
        self.kept, self.kept_saved, self.kept_states = shares(), shares(), shares()  # on the device, at T
        self.early, self.late = shares(), shares()  # crossing before and after T
        self.late_saved, self.late_states = shares(), shares()
        self.saved_out, self.gradient_out = shares(), shares()
        self.forward_end = [self._column(facts.horizon) for _ in range(count)]
        self.backward_end = [self._column(facts.horizon) for _ in range(count)]
        self.loss_start, self.loss_end = self._column(facts.horizon), self._column(facts.horizon)
        self.end = self._column(facts.horizon, cost=1)
        for index in range(count):
            self._forward(index)
        self._loss(on_device=on_device)
        for index in reversed(range(count)):
            self._backward(index, on_device=on_device)
            self._choices(index)
            self._out(index)
            self._host(index)
        self._into()
        if last:
            self._there_and_back()
        self._host_in_all()

    def _column(self, upper: int, *, cost: int = 0) -> int:
        column = self.program.add_column(cost=cost, upper=upper)
        self.continuous.add(column)
        return column

    def _row(self, terms: Iterable[Term], least: int = 0) -> None:
        """Add a row; rounding its columns down may reduce each term of the left side by one."""
        merged: dict[int, int] = {}
        for column, factor in terms:
            merged[column] = merged.get(column, 0) + factor
        lost = sum(factor for column, factor in merged.items() if factor > 0 and column in self.continuous)
        self.program.add_row(merged.items(), lower=least - lost)

    def _times(self, terms: Iterable[Term], shared: Iterable[Term] = (), least: int = 0) -> None:
        """Add a row of ticks; `shared` are columns of shares, whose factors are for all parts."""
        self._row([*((column, PARTS * factor) for column, factor in terms), *shared], PARTS * least)

    def _forward(self, index: int) -> None:
        device, host = self.stages[index].forward
        ends, there = self.forward_end, self.forward_there
        before = [(ends[index - 1], -1)] if index else []
        self._times([(ends[index], 1), (there[index], host - device), *before], least=host)
        crossed = [(there[k], -self.stages[k].parameters[1]) for k in range(index + 1)]
        self._times([(ends[index], 1), (there[index], -device), *crossed])
        self._row([(self.early[index], 1), (there[index], -PARTS)])
        self._row([(self.early[index], 1), (self.kept[index], -1)])

    def _loss(self, *, on_device: bool) -> None:
        facts, last = self.facts, len(self.stages) - 1
        if not on_device:
            device, host = self.stages[-1].forward
            before = [(self.forward_end[last - 1], -1)] if last else []
            self._times([(self.loss_start, 1), *before], least=min(host, device + facts.activation))
            self._times([(self.loss_end, 1), (self.loss_start, -1)], least=facts.loss[1])
            return
        self._times([(self.loss_start, 1), (self.forward_end[last], -1)])
        self._times([(self.loss_end, 1), (self.loss_start, -1)], least=facts.loss[0])
        early = [(column, -stage.parameters[1]) for column, stage in zip(self.early, self.stages, strict=True)]
        early += [(column, -stage.states[1]) for column, stage in zip(self.kept_states, self.stages, strict=True)]
        self._times([(self.loss_start, 1)], early)
        if facts.room is not None:
            held = [
                (column, -size)
                for columns, sizes in (
                    (self.kept, [stage.parameters[0] for stage in self.stages]),
                    (self.kept_saved, [stage.saved[0] for stage in self.stages]),
                    (self.kept_states, [stage.states[0] for stage in self.stages]),
                )
                for column, size in zip(columns, sizes, strict=True)
            ]
            self._row(held, -PARTS * facts.room)

    def _before(self, index: int) -> int:
        return self.loss_end if index == len(self.stages) - 1 else self.backward_end[index + 1]

    def _backward(self, index: int, *, on_device: bool) -> None:
        """Constrain the first backward to end: after the one before it, its inputs, and the device's other runs."""
        device, host = self.stages[index].backward
        ends, there, behind = self.backward_end, self.backward_there, range(index, len(self.stages))
        self._times([(ends[index], 1), (self._before(index), -1), (there[index], host - device)], least=host)
        late = [(self.late[k], -self.stages[k].parameters[1]) for k in behind]
        late += [(self.late_saved[k], -self.stages[k].saved[1]) for k in behind]
        self._times([(ends[index], 1), (there[index], -device), (self.loss_start, -1)], late)
        if on_device:
            runs = [(there[k], -self.stages[k].backward[0]) for k in behind]
            runs += [(self.again[k], -self.stages[k].forward[0]) for k in behind]
            self._times([(ends[index], 1), (self.loss_start, -1), *runs], least=self.facts.loss[0])

    def _choices(self, index: int) -> None:
        there, host = self.backward_there[index], self.host_backward[index]
        self._row([(self.late[index], 1), (self.kept[index], 1), (there, -PARTS)])
        saved = [(self.kept_saved[index], 1), (self.late_saved[index], 1), (self.again[index], PARTS)]
        self._row([*saved, (there, -PARTS)])
        self._row([(host, 1), (there, 1)], 1)
        self._row([(self.gradient_out[index], 1), (host, PARTS), (self.device_updates[index], PARTS)], PARTS)
        self._row([(self.host_forward[index], 1), (self.forward_there[index], 1)], 1)
        self._row([(self.host_forward[index], PARTS), (self.saved_out[index], 1), (host, -PARTS)])
        states = [(self.late_states[index], 1), (self.kept_states[index], 1)]
        self._row([*states, (self.device_updates[index], -PARTS)])

    def _out(self, index: int) -> None:
        """Constrain the transfers out of the device after a backward, of this stage and of those before it."""
        ahead = range(index + 1)
        renewed = [(self.device_updates[k], -self.stages[k].renewed) for k in ahead]
        gradients = [(self.gradient_out[k], -self.stages[k].gradient) for k in ahead]
        after = [(self.end, 1), (self.backward_end[index], -1)]
        self._times([*after, *renewed], gradients)
        stage = self.stages[index]
        device, host = stage.update
        self._times(
            [*after, (self.device_updates[index], host - device - stage.renewed)],
            [(self.gradient_out[index], -stage.gradient)],
            least=host,
        )

    def _host(self, index: int) -> None:
        """Constrain the host's backwards and updates of this stage and of those before it."""
        ahead = range(index + 1)
        work = [(self.host_backward[k], -self.stages[k].backward[1]) for k in ahead]
        work += [(self.device_updates[k], self.stages[k].update[1]) for k in ahead]
        least = sum(self.stages[k].update[1] for k in ahead)
        self._times([(self.end, 1), (self._before(index), -1), *work], least=least)
        before = self.stages[index].backward[1]
        most = sum(self.stages[k].backward[1] for k in ahead)
        for first in range(min(index + 1, FIRST)):
            # No gradient of these stages is at the host earlier, and none of the stages before them exists. Backwards
            # that the host runs may start earlier and are left out; if the last one is among them, no bound follows.
            own = range(first, index)
            wait = min(self.stages[k].gradient for k in (*own, index))
            wait = min([wait, *(self.stages[k].backward[1] for k in own)])
            if first:
                wait = min(wait, sum(self.stages[k].backward[0] for k in own))
            if wait > 0:
                freed = [(self.host_backward[k], self.stages[k].backward[1]) for k in own]
                freed.append((self.host_backward[index], before + least + wait + most))
                self._times([(self.end, 1), (self.backward_end[index], -1), *work, *freed], least=least + wait)

    def _into(self) -> None:
        """Constrain the transfers into the device after T, and the work that follows the last of them."""
        tails = []
        for stage in self.stages:
            device, host = stage.update
            home, states = stage.gradient + host, device + stage.renewed
            tails.append(min(states, stage.backward[0] + min(home, states), stage.backward[1] + host))
        for least in sorted(set(tails)):
            some = [k for k, tail in enumerate(tails) if tail >= least]
            late = [(self.late[k], -self.stages[k].parameters[1]) for k in some]
            late += [(self.late_states[k], -self.stages[k].states[1]) for k in some]
            # A backward that runs on both has no tail: transfers for it are left out.
            twice = [
                (row[k], self.stages[k].parameters[1])
                for k in some
                for row in (self.host_backward, self.backward_there)
            ]
            least += sum(self.stages[k].parameters[1] for k in some)
            self._times([(self.end, 1), (self.loss_start, -1), *twice], late, least=least)

    def _there_and_back(self) -> None:
        """Constrain the work after the last states of several equal stages, as many as the device updates.

        Once the states of all but the last j - 1 have come, those of j go back, one after the other. After that
        transfer, parameters for first backwards still have the whole chain of backwards before the end. If there are
        none, the states of j - 1 follow.
        """
        stages = self.stages
        kinds = Counter((one.states[1], one.renewed, one.update[0]) for one in stages if one.states[1] and one.renewed)
        if not kinds:
            return
        kind, number = max(kinds.items(), key=lambda entry: (entry[1], entry[0]))
        alike = [k for k, one in enumerate(stages) if (one.states[1], one.renewed, one.update[0]) == kind]
        come, renewed, update = kind
        chain = _last_backwards(stages)
        late = [(self.late[k], -one.parameters[1]) for k, one in enumerate(stages)]
        late += [(self.late_states[k], -come) for k in alike]
        everything = sum(one.parameters[1] for one in stages) + number * come
        for some in range(2, number + 1):
            # Rounding the subtracted amount up is safe.
            least = min(chain, update + some * renewed) - (some - 1) * (come + 1)
            if update + some * renewed > chain + renewed:
                break
            enough = self.program.add_column(integer=True)  # whether the device updates that many of them
            self._row([(enough, number), *((self.device_updates[k], -1) for k in alike)], 1 - some)
            most = self.facts.horizon + everything + max(0, least)
            self._times([(self.end, 1), (self.loss_start, -1), (enough, -most)], late, least=least - most)

    def _host_in_all(self) -> None:
        work = [(self.host_forward[k], -stage.forward[1]) for k, stage in enumerate(self.stages)]
        work += [(self.host_backward[k], -stage.backward[1]) for k, stage in enumerate(self.stages)]
        work += [(self.device_updates[k], stage.update[1]) for k, stage in enumerate(self.stages)]
        self._times([(self.end, 1), *work], least=sum(stage.update[1] for stage in self.stages))
