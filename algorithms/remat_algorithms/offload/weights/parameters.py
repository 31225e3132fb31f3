"""A chain with parameters on its machine: values of its stages, their homes, and the choices for each stage.

Parameters and optimizer states have *homes*, the memories that hold them at the start and at the end. The instance
names them, or leaves them to the schedule, stage by stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from remat.plugin import ChainInstance, OptionError, Problem, TaskGraph
from remat_algorithms.offload.swaps.routes import device_of, paths, routes

ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One stage: its tasks and values by index; None for absent ones.

    Attributes
    ----------
    forward, plain, backward : int
        The forward that the backward needs, the one that only produces the next activation, and the backward.
    update : int or None
    exchange : int or None
        The collective that adds up its gradients, or reduces them to the rank's share; neighbours may share it.
    gather : int or None
        The collective that gathers its parameters, for every use, or once they are new.
    parameters, gradient, optimizer, new_parameters, new_optimizer : int or None
        Values w, g, o, nw, no.
    bucket, reduced, gathered, share : int or None
        Values b, r, f, p.
    """

    forward: int
    plain: int
    backward: int
    update: int | None
    exchange: int | None
    gather: int | None
    parameters: int | None
    gradient: int | None
    optimizer: int | None
    new_parameters: int | None
    new_optimizer: int | None
    bucket: int | None
    reduced: int | None
    gathered: int | None
    share: int | None

    @property
    def values(self) -> Iterable[int]:
        """All values that it has because of its parameters."""
        every = (
            *(self.parameters, self.gradient, self.optimizer, self.new_parameters, self.new_optimizer),
            *(self.bucket, self.reduced, self.gathered, self.share),
        )
        return (value for value in every if value is not None)


@dataclass(frozen=True, slots=True)
class Choice:
    """The decisions for one stage.

    Attributes
    ----------
    streams : bool
        Whether its parameters leave the device between forward and backward.
    updater : int
        The processor that updates them.
    again : bool
        Whether its forward is recomputed.
    keeps : bool
        Whether gathered parameters stay from forward to backward.
    home, state_home : int or None
        The homes of its parameters and of its optimizer states, if they are open; None: the setting's.
    helped : int
        The part that the helper runs next to the parameters: 0 nothing, 1 its first forward (recomputed on the
        device), 2 its forward and its backward.
    delay : int
        Number of backwards on the device between its backward and its update there.
    yields : bool
        Whether its new optimizer state leaves the device after the transfers that the helper waits for.
    """

    streams: bool = False
    updater: int = 0
    again: bool = False
    keeps: bool = False
    home: int | None = None
    state_home: int | None = None
    helped: int = 0
    delay: int = 0
    yields: bool = False


Choices = list[Choice]
"""One choice per stage."""

Place = tuple[int | None, int | None]
"""The homes of a stage's parameters and of its optimizer states; None: the setting's."""


class Setting:
    """A chain with parameters on its machine.

    Parameters
    ----------
    problem : Problem
    name : str
        Name of the algorithm, for messages.
    states_away : bool
        Whether optimizer states are outside the device, if their home is the schedule's choice; `parameters_away`:
        the same for parameters.

    Raises
    ------
    remat.OptionError
        If a home is a memory that the machine does not have.
    """

    def __init__(self, problem: Problem, name: str, *, states_away: bool = True, parameters_away: bool = False) -> None:
        assert isinstance(problem.instance, ChainInstance)
        self.problem, self.name = problem, name
        self.graph, self.machine = problem.graph, problem.machine
        self.device = device_of(self.machine)
        near = [route.memory for route in routes(self.machine)]
        beside = [p.memory for p in self.machine.processors if p.memory in near]
        away = next(iter(beside or near), self.device)
        open_to_schedule = all(memory.name != ANY for memory in self.machine.memories)
        given = (problem.instance.parameter_memory, problem.instance.optimizer_memory)
        self.open_parameters, self.open_states = (home == ANY and open_to_schedule for home in given)
        homes = (away if parameters_away else self.device, away if states_away else self.device)
        self.parameter_home, self.optimizer_home = (
            home if is_open else self._memory(memory)
            for memory, home, is_open in zip(given, homes, (self.open_parameters, self.open_states), strict=True)
        )
        self.stages = self._stages()

    @cached_property
    def updated(self) -> list[int]:
        """Indices of the stages that have an update."""
        return [index for index, stage in enumerate(self.stages) if stage.update is not None]

    @cached_property
    def movable(self) -> list[int]:
        """Indices of the updated stages whose parameters may leave the device between forward and backward."""
        if self.parameter_home == self.device and self.refuge is None:
            return []
        return [index for index in self.updated if self.stages[index].parameters is not None]

    @cached_property
    def helper(self) -> int | None:
        """The fastest processor outside the device, preferably one next to the optimizer states; None without one."""
        found = [p for p, processor in enumerate(self.machine.processors) if processor.memory != self.device]
        beside = [p for p in found if self.machine.processors[p].memory == self.optimizer_home]
        return max(beside or found, key=lambda p: (self.machine.processors[p].speed, -p), default=None)

    @cached_property
    def refuge(self) -> int | None:
        """The memory to which parameters that live on the device leave; None without one."""
        near = [route.memory for route in routes(self.machine)]
        return next((memory for memory in near if memory == self.optimizer_home), near[0] if near else None)

    @cached_property
    def shelter(self) -> int | None:
        """The nearest memory to which activations leave; None without one."""
        near = routes(self.machine)
        return near[0].memory if near else None

    @cached_property
    def far_shelter(self) -> int | None:
        """The most distant memory for activations, such as the host's NVMe; None without one."""
        near = routes(self.machine)
        return near[-1].memory if near else None

    @property
    def may_be_helped(self) -> bool:
        """Whether a processor next to the parameters may also run forwards and backwards."""
        if self.helper is None or self.device != 0 or self.open_parameters or self.open_states:
            return False
        beside = self.machine.processors[self.helper].memory
        plain = not self.graph.parts and self.graph.times is None and not self.problem.instance.is_stream
        ways = {(0, beside), (beside, 0)} <= self.machine.link_index.keys()
        return plain and ways and self.parameter_home == self.optimizer_home == beside

    def homes(self, choice: Choice) -> tuple[int, int]:
        """Return the homes of the parameters and of the optimizer state of a stage."""
        parameters = choice.home if self.open_parameters else None
        states = choice.state_home if self.open_states else None
        return (
            self.parameter_home if parameters is None else parameters,
            self.optimizer_home if states is None else states,
        )

    @cached_property
    def places(self) -> list[Place]:
        """The homes of parameters and of states among which the schedule chooses; None: the setting's home."""
        parameters = [None, self.refuge] if self.open_parameters and self.refuge is not None else [None]
        states = [None, self.device] if self.open_states and self.optimizer_home != self.device else [None]
        return list(itertools.product(parameters, states))

    def placed_at(self, choice: Choice, place: Place) -> Choice:
        """Return a choice with other homes; the device updates where states move to it, and the helper where back."""
        updater = choice.updater
        if place[1] != choice.state_home:
            updater = 0 if place[1] == self.device else self.helper or 0
        return replace(choice, home=place[0], state_home=place[1], updater=updater)

    @property
    def is_open(self) -> bool:
        """Whether the schedule chooses homes of stages that have an update."""
        return len(self.places) > 1 and bool(self.updated)

    def initial(self, choices: Sequence[Choice]) -> tuple[tuple[int, int], ...]:
        """Return the homes of inputs that the schedule chooses, as (value, memory)."""
        found: list[tuple[int, int]] = []
        for stage, choice in zip(self.stages, choices, strict=True):
            parameters, states = self.homes(choice)
            if self.open_parameters and stage.parameters is not None:
                found.append((stage.parameters, parameters))
            if self.open_states and stage.optimizer is not None:
                found.append((stage.optimizer, states))
        return tuple(found)

    def placed(self, choices: Sequence[Choice]) -> TaskGraph:
        """Return the graph with its inputs at their chosen homes."""
        names = [memory.name for memory in self.machine.memories]
        return self.graph.starting_with([(value, names[memory]) for value, memory in self.initial(choices)])

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the fewest links from one memory to another.

        Raises
        ------
        remat.OptionError
            If no path exists.
        """
        found = paths(self.machine, source)
        if target not in found:
            names = [self.machine.memories[memory].name for memory in (source, target)]
            raise OptionError(
                f"{self.name} needs links from {names[0]!r} to {names[1]!r}, but none connect them", argument="machine"
            )
        return found[target]

    def _memory(self, name: str | None) -> int:
        if name is None:
            return 0
        memory = self.machine.memory_index.get(name)
        if memory is None:
            known = ", ".join(map(repr, self.machine.memory_index))
            raise OptionError(f"parameters are in memory {name!r}, but this machine has {known}", argument="machine")
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
        exchanges = {value: task for task in graph.parts for value in graph.writes[task].tolist()}
        found = []
        for stage in sorted(backward):
            gradient, reduced = values.find(f"g{stage}"), values.find(f"r{stage}")
            made = exchanges.get(-1 if gradient is None else gradient)
            found.append(
                Trained(
                    forward=forward[stage],
                    plain=graph.task(f"F{stage}"),
                    backward=backward[stage],
                    update=tasks.find(f"U{stage}"),
                    exchange=exchanges.get(reduced) if made is None and reduced is not None else made,
                    gather=tasks.find(f"P{stage}"),
                    parameters=values.find(f"w{stage}"),
                    gradient=gradient,
                    optimizer=values.find(f"o{stage}"),
                    new_parameters=values.find(f"nw{stage}"),
                    new_optimizer=values.find(f"no{stage}"),
                    bucket=values.find(f"b{stage}"),
                    reduced=reduced,
                    gathered=values.find(f"f{stage}"),
                    share=values.find(f"p{stage}"),
                )
            )
        return found
