"""Training a chain with parameters: where they lie, where they are updated, and the transfers that follow.

Activations stay in the first processor's memory, the *device*. What is decided for each stage (`Choice`) is whether its
parameters leave between forward and backward, which processor updates them, and whether its forward keeps nothing but
its output and runs again before its backward. The transfers between the *homes* of parameters and optimizer
states (where they lie at the start and at the end), the device and the updating processor's memory are then forced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from remat.plugin import ChainInstance, OptionError, Problem
from remat_algorithms.offload.swaps.program import AT_ONCE, Program, Run, Transfer
from remat_algorithms.offload.swaps.routes import device_of, paths, routes


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One stage: its tasks and values by index; None for what it does not have.

    Attributes
    ----------
    forward, plain, backward : int
        The forward that the backward needs, the one that only makes the next activation, and the backward.
    update : int or None
    parameters, gradient, optimizer, new_parameters, new_optimizer : int or None
        Values w, g, o, nw, no.
    """

    forward: int
    plain: int
    backward: int
    update: int | None
    parameters: int | None
    gradient: int | None
    optimizer: int | None
    new_parameters: int | None
    new_optimizer: int | None


@dataclass(frozen=True, slots=True)
class Choice:
    """What is decided for one stage.

    Attributes
    ----------
    streams : bool
        Whether its parameters leave the device between forward and backward.
    updater : int
        The processor that updates them.
    again : bool
        Whether its forward runs again.
    """

    streams: bool = False
    updater: int = 0
    again: bool = False


class Setting:
    """A chain with parameters on its machine.

    Parameters
    ----------
    problem : Problem
    name : str
        Of the algorithm, for messages.

    Raises
    ------
    remat.OptionError
        If a home is a memory that the machine does not have.
    """

    def __init__(self, problem: Problem, name: str) -> None:
        assert isinstance(problem.instance, ChainInstance)
        self.problem, self.name = problem, name
        self.graph, self.machine = problem.graph, problem.machine
        self.device = device_of(self.machine)
        self.parameter_home = self._memory(problem.instance.parameter_memory)
        self.optimizer_home = self._memory(problem.instance.optimizer_memory)
        self.stages = self._stages()

    @cached_property
    def updated(self) -> list[int]:
        """Indices of the stages that have an update."""
        return [index for index, stage in enumerate(self.stages) if stage.update is not None]

    @cached_property
    def helper(self) -> int | None:
        """The fastest processor outside the device, one beside the optimizer states first; None if there is none."""
        found = [p for p, processor in enumerate(self.machine.processors) if processor.memory != self.device]
        beside = [p for p in found if self.machine.processors[p].memory == self.optimizer_home]
        return max(beside or found, key=lambda p: (self.machine.processors[p].speed, -p), default=None)

    @cached_property
    def refuge(self) -> int | None:
        """The memory to which parameters that live on the device leave; None if there is none."""
        near = [route.memory for route in routes(self.machine)]
        return next((memory for memory in near if memory == self.optimizer_home), near[0] if near else None)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the fewest links from one memory to another.

        Raises
        ------
        remat.OptionError
            If there is no way.
        """
        found = paths(self.machine, source)
        if target not in found:
            names = [self.machine.memories[memory].name for memory in (source, target)]
            raise OptionError(
                f"{self.name} needs a way from {names[0]!r} to {names[1]!r}; there is none", argument="machine"
            )
        return found[target]

    def _memory(self, name: str | None) -> int:
        if name is None:
            return 0
        memory = self.machine.memory_index.get(name)
        if memory is None:
            known = ", ".join(self.machine.memory_index)
            raise OptionError(f"parameters lie in memory {name!r}; this machine has {known}", argument="machine")
        return memory

    def _stages(self) -> list[Trained]:
        graph, once = self.graph, self.problem.needed.once.tolist()
        tasks, values = graph.tasks, graph.values
        forward: dict[int, int] = {}
        backward: dict[int, int] = {}
        for task, name in enumerate(tasks):
            kind = name.rstrip("0123456789.")
            if once[task] and kind in ("F", "Fe", "B"):
                stage = int(name[len(kind) :].partition(".")[0])
                (backward if kind == "B" else forward)[stage] = task
        return [
            Trained(
                forward=forward[stage],
                plain=graph.task(f"F{stage}"),
                backward=backward[stage],
                update=tasks.find(f"U{stage}"),
                parameters=values.find(f"w{stage}"),
                gradient=values.find(f"g{stage}"),
                optimizer=values.find(f"o{stage}"),
                new_parameters=values.find(f"nw{stage}"),
                new_optimizer=values.find(f"no{stage}"),
            )
            for stage in sorted(backward)
        ]


class Training:
    """One iteration as a program: the order of runs, and the transfers that the choices imply.

    Parameters
    ----------
    setting : Setting
    choices : sequence of Choice
        One for each stage.
    one_ahead : bool
        Whether parameters come back while the stage before them runs (double buffering), and not as early as they
        are in nobody's way.

    Notes
    -----
    Updates on the device follow their backward; those elsewhere keep the backward's order.
    """

    def __init__(self, setting: Setting, choices: Sequence[Choice], *, one_ahead: bool = False) -> None:
        self.setting, self.choices, self.one_ahead = setting, choices, one_ahead
        stages = setting.stages
        loss = setting.graph.task("loss")
        self.tasks: list[tuple[int, int]] = []  # (task, processor)
        self.first = [
            self._append(stage.plain if choice.again else stage.forward)
            for stage, choice in zip(stages, choices, strict=True)
        ]
        self.loss = self._append(loss)
        self.second, self.last, self.update = [0] * len(stages), [0] * len(stages), dict[int, int]()
        for index in reversed(range(len(stages))):
            stage = stages[index]
            self.second[index] = self._append(stage.forward) if choices[index].again else len(self.tasks)
            self.last[index] = self._append(stage.backward)
            if stage.update is not None and choices[index].updater == 0:
                self.update[index] = self._append(stage.update)
        for index in reversed(setting.updated):
            updater = choices[index].updater
            task = stages[index].update
            if task is not None and updater != 0:
                self.update[index] = self._append(task, updater)
        self.drops: list[list[int]] = [[] for _ in self.tasks]
        self.transfers: list[Transfer] = []
        self._activations()
        for index in reversed(setting.updated):  # the order in which they are updated, and go home
            self._parameters(index)
            self._gradient(index)
            self._optimizer(index)

    @property
    def program(self) -> Program:
        """The runs and transfers."""
        runs = [
            Run(task, processor, tuple(drops)) for (task, processor), drops in zip(self.tasks, self.drops, strict=True)
        ]
        return Program(runs, self.transfers)

    def _append(self, task: int, processor: int = 0) -> int:
        self.tasks.append((task, processor))
        return len(self.tasks) - 1

    def _activations(self) -> None:
        """Free every copy of an activation or its gradient after its last use; y0 ends where it must."""
        graph, setting = self.setting.graph, self.setting
        inputs, output = graph.value("x0"), graph.value("y0")
        weights = {value for index in setting.updated for value in _weights(setting.stages[index])}
        latest: dict[int, int] = {}
        for position, (task, processor) in enumerate(self.tasks):
            if processor != 0:
                continue
            for value in graph.reads[task].tolist():
                latest[value] = position
            for value in graph.writes[task].tolist():
                if value in latest and latest[value] != position and value not in weights:
                    self.drops[latest[value]].append(value)
                latest[value] = position
        for value, position in latest.items():
            if value not in weights and value != output:
                self.drops[position].append(value)
        if setting.device != 0:
            self._carry(inputs, 0, setting.device, ready=AT_ONCE, needed=self.first[0])
            self._carry(output, setting.device, 0, ready=latest[output], needed=len(self.tasks))

    def _parameters(self, index: int) -> None:
        stage, choice, setting = self.setting.stages[index], self.choices[index], self.setting
        value, home, device = stage.parameters, setting.parameter_home, setting.device
        if value is None:
            return
        place = self._place(index)
        first, second, last = self.first[index], self.second[index], self.last[index]
        read = stage.update is not None and value in setting.graph.reads[stage.update].tolist()
        begin, again = self._ahead(index)
        spare: int | None = None  # a memory with a copy for an update there
        if home != device:
            spare = home if read and place == home else None
            stays = spare is not None
            kept = stays or choice.streams
            self._carry(value, home, device, ready=AT_ONCE, needed=first, begin=begin, keep=kept)
            if choice.streams:
                self.drops[first].append(value)
                self._carry(value, home, device, ready=first, needed=second, begin=again, keep=stays)
        elif choice.streams:
            refuge = setting.refuge
            assert refuge is not None
            spare = refuge if read and place == refuge else None
            out = self._carry(value, device, refuge, ready=AT_ONCE, needed=len(self.tasks), last_use=first)
            self._carry(
                value, refuge, device, ready=first, needed=second, begin=again, keep=spare is not None, previous=out
            )
        if read:
            self.drops[self.update[index]].append(value)
        if read and place != device and spare is None:
            ready = second if choice.streams else AT_ONCE if home == device else first
            self._carry(value, device, place, ready=ready, needed=self.update[index], last_use=last)
        elif not read or place != device:
            self.drops[last].append(value)
        if place != home and stage.new_parameters is not None:
            self._carry(stage.new_parameters, place, home, ready=self.update[index], needed=len(self.tasks))

    def _gradient(self, index: int) -> None:
        value, place = self.setting.stages[index].gradient, self._place(index)
        assert value is not None
        self.drops[self.update[index]].append(value)
        if place != self.setting.device:
            self._carry(value, self.setting.device, place, ready=self.last[index], needed=self.update[index])

    def _optimizer(self, index: int) -> None:
        stage, place, home = self.setting.stages[index], self._place(index), self.setting.optimizer_home
        if stage.optimizer is None or stage.new_optimizer is None:
            return
        self.drops[self.update[index]].append(stage.optimizer)
        if place != home:
            self._carry(stage.optimizer, home, place, ready=AT_ONCE, needed=self.update[index])
            self._carry(stage.new_optimizer, place, home, ready=self.update[index], needed=len(self.tasks))

    def _place(self, index: int) -> int:
        """Memory of the processor that updates a stage."""
        return self.setting.machine.processors[self.choices[index].updater].memory

    def _ahead(self, index: int) -> tuple[int, int]:
        """Return the runs with whose start a stage's parameters may come, for the forward and for the backward."""
        if not self.one_ahead:
            return -1, -1
        after = self.second[index + 1] if index + 1 < len(self.second) else self.loss
        return self.first[index] - 1, after

    def _carry(
        self,
        value: int,
        source: int,
        target: int,
        *,
        ready: int,
        needed: int,
        last_use: int = AT_ONCE,
        keep: bool = False,
        begin: int = -1,
        previous: int = -1,
    ) -> int:
        """Append the transfers from one memory to another; return the index of the last one."""
        links = self.setting.path(source, target)
        for hop, link in enumerate(links):
            self.transfers.append(
                Transfer(
                    value=value,
                    link=link,
                    ready=ready,
                    needed=needed,
                    last_use=AT_ONCE if hop else None if keep else last_use,
                    previous=len(self.transfers) - 1 if hop else previous,
                    begin=begin,
                    leaves=source == self.setting.device,
                )
            )
        return len(self.transfers) - 1


def _weights(stage: Trained) -> Iterable[int]:
    values: Sequence[int | None] = (
        stage.parameters,
        stage.gradient,
        stage.optimizer,
        stage.new_parameters,
        stage.new_optimizer,
    )
    return (value for value in values if value is not None)
