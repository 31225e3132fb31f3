"""The linear program of `offmate`: which shares of a chain's tensors leave the device, and what is recomputed.

The steps of an iteration are the forwards, the loss, the backwards from the last one, and an end. Of stage j,

    p[j]  share of the parameters that leaves between forward and backward,
    q[j]  share of the update that runs outside the device, next to the optimizer states,
    a[j]  share of the saved tensors that leaves,     c[j]  share that is recomputed,     a[j] + c[j] <= 1,
    e[j]  share of the stage's input that leaves until its backward.

T[k] is the length of step k. It is no shorter than the computation of the step, than the bytes that cross the link to
the host in it, than those that cross the link back, or than the work of the host. Each link has one queue: U[k] bytes
have left by the end of step k, no more than were ready, and D[k] have come, no fewer than step k reads. In each step,
the device holds what stays, what is ready and has not left, and what has come early.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from remat_algorithms.kit.programs.program import INFINITY, FloatArray, Program, ProgramBuilder
from remat_algorithms.offload.swaps.program import run_time
from remat_algorithms.offload.weights.parameters import Setting

Affine = dict[int, float]
"""A linear form: coefficient by column; column -1 is the constant."""

CONSTANT = -1

TIE = 1e-3
"""Cost of a share, in thousandths of all times: it avoids useless transfers and recomputations."""


@dataclass(frozen=True)
class Shares:
    """Columns of each stage; -1 where there is no choice."""

    parameters: list[int]
    updates: list[int]
    saved: list[int]
    recomputed: list[int]
    inputs: list[int]


@dataclass
class _Queue:
    """Bytes that become ready, and that are due, by step."""

    ready: defaultdict[int, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    due: defaultdict[int, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))


class FractionProgram:
    """The program of a chain with parameters for one capacity of the device.

    Parameters
    ----------
    setting : Setting
    capacity : int
    """

    def __init__(self, setting: Setting, capacity: int) -> None:
        self.setting, self.graph, self.capacity = setting, setting.graph, capacity
        self.count = len(setting.stages)
        self.steps = 2 * self.count + 2
        self.size: list[int] = self.graph.size.tolist()
        self.unit = max(1.0, capacity / 1000)
        self.time_unit = max(float(self.graph.time.sum()) / 1000, 1e-12)
        self.builder = ProgramBuilder()
        self.held: list[Affine] = [defaultdict(float) for _ in range(self.steps)]
        self.work: list[Affine] = [defaultdict(float) for _ in range(self.steps)]
        self.out, self.back = _Queue(), _Queue()
        self.shares = self._shares()
        self.lengths = [self.builder.add_column(cost=1.0, upper=INFINITY) for _ in range(self.steps)]
        for index in range(self.count):
            self._stage(index)
        self._loss()
        outs, backs = self._queue(self.out, leaves=True), self._queue(self.back, leaves=False)
        self._host()
        self._rows(outs, backs)

    @property
    def program(self) -> Program:
        """The program."""
        return self.builder.build()

    def share(self, solution: FloatArray, column: int) -> float:
        """Return a share of a solution; 0 without a choice."""
        return 0.0 if column < 0 else float(solution[column])

    def _shares(self) -> Shares:
        setting = self.setting

        def column() -> int:
            return self.builder.add_column(cost=TIE)

        helped = [setting.helper is not None and stage.update is not None for stage in setting.stages]
        away = setting.shelter is not None
        return Shares(
            parameters=[column() if index in setting.movable else -1 for index in range(self.count)],
            updates=[column() if may else -1 for may in helped],
            saved=[column() if away else -1 for _ in setting.stages],
            recomputed=[column() for _ in setting.stages],
            inputs=[column() if away else -1 for _ in setting.stages],
        )

    def _forward(self, index: int) -> int:
        return index

    def _backward(self, index: int) -> int:
        return 2 * self.count - index

    def _hold(self, first: int, last: int, size: float, *shares: tuple[int, float]) -> None:
        """Let (size + sum of share * coefficient) bytes be on the device in the steps from `first` to `last`."""
        for step in range(max(0, first), min(last, self.steps - 1) + 1):
            row = self.held[step]
            row[CONSTANT] += size
            for column, coefficient in shares:
                if column >= 0:
                    row[column] += coefficient

    def _bytes(self, value: int | None) -> float:
        return 0.0 if value is None else self.size[value] / self.unit

    def _seconds(self, task: int, processor: int) -> float:
        machine = self.setting.machine
        return float(run_time(machine.processors[processor], self.graph.time[task].item())) / self.time_unit

    def _stage(self, index: int) -> None:
        stage, shares, graph = self.setting.stages[index], self.shares, self.graph
        forward, backward = self._forward(index), self._backward(index)
        a, c, e = shares.saved[index], shares.recomputed[index], shares.inputs[index]
        time = self._seconds(stage.forward, 0)
        self.work[forward][CONSTANT] += time
        self.work[backward][c] += time
        self.work[backward][CONSTANT] += self._seconds(stage.backward, 0)
        # Workspaces: of the forward that saves or of the plain one, and of the backward.
        saving, plain = (graph.workspace[task].item() / self.unit for task in (stage.forward, stage.plain))
        self._hold(forward, forward, saving, (c, plain - saving))
        self._hold(backward, backward, graph.workspace[stage.backward].item() / self.unit)
        kept = set(graph.writes[stage.plain].tolist())
        saved = sum(self._bytes(value) for value in graph.writes[stage.forward].tolist() if value not in kept)
        self._hold(forward, forward, saved, (c, -saved))
        self._hold(forward + 1, backward - 1, saved, (a, -saved), (c, -saved))
        self._hold(backward, backward, saved)
        self._leaves(a, saved, forward, backward)
        if a >= 0:
            self.builder.add_row([(a, 1.0), (c, 1.0)], upper=1.0)
        # The input of this stage is the output of the one before.
        size = sum(self._bytes(value) for value in graph.reads[stage.plain].tolist() if value != stage.parameters)
        self._hold(forward - 1, forward, size)
        self._hold(forward + 1, backward - 1, size, (e, -size))
        # A backward also reads its stage's output, and makes the gradient of its input.
        self._hold(backward, backward + 1, 2 * size)
        self._leaves(e, size, forward, backward)
        self._parameters(index)

    def _leaves(self, share: int, size: float, ready: int, due: int) -> None:
        if share >= 0 and size:
            self.out.ready[ready].append((share, size))
            self.back.due[due].append((share, size))
            self.back.ready[ready].append((share, size))

    def _parameters(self, index: int) -> None:
        stage, setting = self.setting.stages[index], self.setting
        p, q = self.shares.parameters[index], self.shares.updates[index]
        forward, backward, end = self._forward(index), self._backward(index), self.steps - 1
        size, home = self._bytes(stage.parameters), setting.parameter_home == setting.device
        if home:
            self._hold(0, forward, size)
        else:
            self.back.ready[0].append((CONSTANT, size))
            self.back.due[forward].append((CONSTANT, size))
            self._hold(forward, forward, size)
        self._hold(forward + 1, backward - 1, size, (p, -size))
        self._hold(backward, backward, size)
        if p >= 0:
            self.back.due[backward].append((p, size))
            self.back.ready[forward].append((p, size))
            if home:
                self.out.ready[forward].append((p, size))
        if stage.update is None:
            return
        gradient, states = self._bytes(stage.gradient), self._bytes(stage.optimizer)
        new = self._bytes(stage.new_parameters)
        states_home = setting.optimizer_home == setting.device
        self._hold(backward, backward, gradient)
        self.work[backward][CONSTANT] += self._seconds(stage.update, 0)
        if q >= 0:
            self.work[backward][q] -= self._seconds(stage.update, 0)
            self.out.ready[backward].append((q, gradient))
        if states_home:
            self._hold(0, end, states)
        else:
            # An update on the device fetches the states, and sends the new ones home.
            self._hold(backward, backward, 2 * states, (q, -2 * states))
            for queue, step in ((self.back.ready, 0), (self.back.due, backward), (self.out.ready, backward)):
                queue[step].append((CONSTANT, states))
                if q >= 0:
                    queue[step].append((q, -states))
        if home:
            self._hold(backward + 1, end, new, (q, -new))
            if q >= 0:
                self.back.ready[backward].append((q, new))
                self.back.due[end].append((q, new))
        else:
            self.out.ready[backward].append((CONSTANT, new))
            if q >= 0:
                self.out.ready[backward].append((q, -new))

    def _loss(self) -> None:
        loss, step = self.graph.task("loss"), self.count
        self.work[step][CONSTANT] += self._seconds(loss, 0)
        touched = {*self.graph.reads[loss].tolist(), *self.graph.writes[loss].tolist()}
        self._hold(step, step, sum(map(self._bytes, touched)) + self.graph.workspace[loss].item() / self.unit)
        # The last stage's output, and its gradient.
        output = sum(map(self._bytes, self.graph.writes[self.setting.stages[-1].plain].tolist()))
        self._hold(step - 1, step - 1, output)
        self._hold(step + 1, step + 1, 2 * output)
        static = self.graph.static_bytes(self.setting.machine, self.setting.device)
        self._hold(0, self.steps - 1, static / self.unit)

    def _queue(self, queue: _Queue, *, leaves: bool) -> list[int]:
        """Add the columns of a queue: bytes moved by the end of each step."""
        moved = [self.builder.add_column(upper=INFINITY) for _ in range(self.steps)]
        ready, due = defaultdict[int, float](float), defaultdict[int, float](float)
        for step in range(self.steps):
            if step:
                self.builder.add_row([(moved[step], 1.0), (moved[step - 1], -1.0)], lower=0.0)
            for column, size in queue.due[step]:
                due[column] += size
            if not leaves:
                # The inputs of a step arrive before it; those of the first and the last step arrive during the step.
                before = step if step in (0, self.steps - 1) else step - 1
                self._compare(moved[before], due, at_least=True)
            # The outputs of a step leave in the next step, and count for this step until then.
            self._wait(step, moved[step], ready if leaves else due, leaves=leaves)
            for column, size in queue.ready[step]:
                ready[column] += size
            if step + 1 < self.steps:
                self._compare(moved[step + 1], ready, at_least=False)
        if leaves:
            self._compare(moved[-1], ready, at_least=True)
            self._compare(moved[0], {}, at_least=False)
        return moved

    def _wait(self, step: int, moved: int, total: Affine, *, leaves: bool) -> None:
        """Count the bytes in a step that are ready and have not left, or have arrived before they are due."""
        row = self.held[step]
        sign = 1.0 if leaves else -1.0
        row[moved] += -sign
        for column, size in total.items():
            row[column] += sign * size

    def _compare(self, column: int, total: Affine, *, at_least: bool) -> None:
        entries = [(column, 1.0), *((other, -size) for other, size in total.items() if other != CONSTANT)]
        constant = total.get(CONSTANT, 0.0)
        if at_least:
            self.builder.add_row(entries, lower=constant)
        else:
            self.builder.add_row(entries, upper=constant)

    def _host(self) -> None:
        """Let the host work on the updates whose backward has ended, and end in the last step."""
        helper = self.setting.helper
        if helper is None:
            return
        done = [self.builder.add_column(upper=INFINITY) for _ in range(self.steps)]
        total: Affine = {}
        for step in range(self.steps):
            before = [(done[step - 1], -1.0)] if step else []
            self.builder.add_row([(done[step], 1.0), *before], lower=0.0)
            self.builder.add_row([(done[step], 1.0), *before, (self.lengths[step], -1.0)], upper=0.0)
            self._compare(done[step], total, at_least=False)
            index = 2 * self.count - step
            if 0 <= index < self.count and self.shares.updates[index] >= 0:
                update = self.setting.stages[index].update
                assert update is not None
                total = total | {self.shares.updates[index]: self._seconds(update, helper)}
        self._compare(done[-1], total, at_least=True)

    def _rows(self, outs: list[int], backs: list[int]) -> None:
        rates = [self._rate(leaves=True), self._rate(leaves=False)]
        for step, length in enumerate(self.lengths):
            work = self.work[step]
            entries = [(length, 1.0), *((column, -time) for column, time in work.items() if column != CONSTANT)]
            self.builder.add_row(entries, lower=work.get(CONSTANT, 0.0))
            for moved, rate in zip((outs, backs), rates, strict=True):
                before = [(moved[step - 1], -1.0)] if step else []
                if rate is not None:
                    self.builder.add_row([(moved[step], 1.0), *before, (length, -rate)], upper=0.0)
            held = self.held[step]
            row = [(column, size) for column, size in held.items() if column != CONSTANT]
            self.builder.add_row(row, upper=self.capacity / self.unit - held.get(CONSTANT, 0.0))

    def _rate(self, *, leaves: bool) -> float | None:
        """Return the units of bytes per unit of time of the link to the nearest other memory, or back; None: free."""
        setting = self.setting
        away = setting.refuge if setting.refuge is not None else setting.shelter
        ends = (setting.device, away) if leaves else (away, setting.device)
        found = [link.bandwidth for link in setting.machine.links if (link.source, link.target) == ends]
        return None if not found or found[0] is None else float(found[0]) * self.time_unit / self.unit
