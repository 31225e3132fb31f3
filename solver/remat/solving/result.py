"""The result of a solve: figures that the verifier has checked, and the schedule."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from remat.documents import write_text
from remat.graph.bounds import MemoryBound, exchange_time, reference_of
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance.digest import digest
from remat.instance.kinds import is_pipeline
from remat.plugin.proposal import ALL_SCHEDULES, Bound, LeastBudget, Status, Termination, Untried
from remat.schedule.steps import Steps
from remat.solving.display import Shown
from remat.units import Number, Units
from remat.verifier import Report, Steady

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.plugin.context import Progress
    from remat.schedule.addresses import AddressTable
    from remat.schedule.document import Step
    from remat.schedule.orders import Orders
    from remat.schedule.patterns import PeriodicSchedule
    from remat.solving.decisions.stages import StageDecisions
    from remat.solving.decisions.values import Decisions
    from remat.solving.peak import Peak
    from remat.solving.questions.layout import Addresses
    from remat.solving.shortfall import Shortfall


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Answer of `remat.least_budget` or `remat.largest_batch`.

    Attributes
    ----------
    question : str
        In words.
    quantity : str
        ``budget`` or ``batch``.
    value : int or None
        The minimum budget (in bytes or units), or the largest batch; None if there is none.
    memory : str
        The memory that the budget is for.
    slots : int or None
        The budget in states of an adjoint, where its storage level holds states of one size.
    bound, scope : int or None, str or None
        No schedule of the class `scope` meets the limits with a budget below (a batch above) this one.
    ask : int or None
        The budget for which the algorithm finds this schedule: an algorithm that rounds sizes may need more than the
        schedule does. None if unknown.
    solves : int
        Number of verified solves.
    instance : Instance or None
        For batches: the scaled instance, to which the schedule belongs.
    """

    question: str
    quantity: str
    value: int | None
    memory: str
    slots: int | None = None
    bound: int | None = None
    scope: str | None = None
    ask: int | None = None
    solves: int = 0
    instance: Instance | None = None

    @property
    def proved(self) -> bool:
        """Whether the value is proved to be the least (the largest) within `scope`."""
        return self.value is not None and self.value == self.bound

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as a JSON document (without the instance)."""
        return {
            "question": self.question,
            "quantity": self.quantity,
            "value": self.value,
            "memory": self.memory,
            **({} if self.slots is None else {"slots": self.slots}),
            "proved": self.proved,
            "bound": self.bound,
            "scope": self.scope,
            **({} if self.ask is None else {"ask": self.ask}),
            "solves": self.solves,
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(Shown):
    """Result of a solve.

    All times are in the instance's time unit and all sizes in its memory unit (`units`), except `solve_seconds`.

    Attributes
    ----------
    instance_name : str
        The instance's name; empty without one.
    instance : Instance or None
        None if it is unknown.
    instance_digest : str
        Computed on first use, which takes a while for large instances.
    graph : TaskGraph
        The task graph to which the instance was lowered.
    machine : Machine
        With the budgets applied.
    units : Units
        Units of times and sizes.
    algorithm : str
        The algorithm that found the schedule (for `auto`, the chosen algorithm).
    options : mapping
        Its options that differ from their defaults.
    seed : int
        Seed of random numbers.
    status : Status
    termination : Termination
        Why the solve ended.
    columns : Steps or None
        The steps as arrays of indices; None without a schedule. `timeline` has names, `steps` has objects, and `order`
        only the tasks.
    makespan : int, float or None
        Verified; None without a schedule. For a stream, makespan, bounds and gap refer to the time per sample or
        micro-batch.
    lower_bound : int or float
        The best lower bound on the makespan that holds for all schedules.
    bounds : tuple of Bound
        All bounds, each with the class of schedules for which it holds.
    optimal_within : str or None
        The class of schedules over which the makespan is proved optimal.
    scope : str or None
        Without a schedule: the class of schedules that is proved empty. `ALL_SCHEDULES` if the status is infeasible, a
        smaller class or None if it is unknown.
    least_budget : LeastBudget or None
        For answers without a schedule: a budget at which the algorithm finds one, or the largest proved bound on it.
        Its `scope` is the class that needs it, which may be smaller than the `scope` of the result.
    memory_bounds : mapping of memory name to MemoryBound
        Minimum memory of any schedule.
    total_bound : MemoryBound or None
        Minimum of all memories together, of any schedule; None if unknown, or for one memory.
    report : Report or None
        Everything that the verifier measured.
    no_recompute_time : int or float
        Time of all needed tasks, each once, one after the other.
    transfer_bound : int or float
        Lower bound on the time of transfers that every schedule needs; 0 if none.
    solve_seconds : float
        Wall time of the algorithm, in seconds.
    notes : tuple of str
        Remarks of the algorithm, and remedies if there is no schedule.
    answer : Answer or None
        Answer of `remat.least_budget` or `remat.largest_batch`.
    history : tuple of Progress
        Each improvement of schedule or bound, with its time, as the algorithms reported it.
    orders : Orders or None
        For a pipeline: the operations of each device, in order, from which the steps follow.
    log : tuple of str
        Failures of algorithms that `auto` asked, and refuted claims. A line that begins with ``bug:`` is a fault of an
        algorithm, not of the input.
    untried : Untried
        What `auto` would also run within a time limit of the caller.
    asked : str
        The algorithm that the caller named, such as ``auto``; empty if none was.
    default_limit : float or None
        Seconds of the default time limit; None if the caller gave a limit.
    pattern : Pattern, ModuloSchedule or None
        For a stream: the work for one micro-batch or sample. The steps cover as many as the instance checks, and
        `report.steady` has the figures of a period.
    addresses : AddressTable or None
        Addresses of values and workspaces (`with_addresses`).
    """

    _short_by: ClassVar[str] = "remat.solving.shortfall"

    instance_name: str
    instance: Instance | None
    graph: TaskGraph
    machine: Machine
    units: Units
    algorithm: str
    options: Mapping[str, Any]
    seed: int
    status: Status
    termination: Termination
    columns: Steps | None
    report: Report | None
    lower_bound: Number
    no_recompute_time: Number
    transfer_bound: Number = 0
    bounds: tuple[Bound, ...] = ()
    optimal_within: str | None = None
    scope: str | None = None
    least_budget: LeastBudget | None = None
    memory_bounds: Mapping[str, MemoryBound] = field(default_factory=dict)
    total_bound: MemoryBound | None = None
    solve_seconds: float = 0.0
    notes: tuple[str, ...] = ()
    answer: Answer | None = None
    history: tuple[Progress, ...] = ()
    log: tuple[str, ...] = ()
    untried: Untried = field(default=Untried(), compare=False, repr=False)
    asked: str = field(default="", compare=False)
    default_limit: float | None = field(default=None, compare=False)
    orders: Orders | None = None
    pattern: PeriodicSchedule | None = None
    addresses: AddressTable | None = None

    @property
    def instance_digest(self) -> str:
        """Digest of the instance; empty if that is unknown."""
        return "" if self.instance is None else digest(self.instance)

    @property
    def steps(self) -> Sequence[Step]:
        """The steps, with names; empty without a schedule."""
        from remat.schedule.document import StepView

        return StepView(self.columns, self.graph, self.machine) if self.columns is not None else ()

    @cached_property
    def decisions(self) -> Decisions:
        """The decision for each value: kept, recomputed, offloaded or dropped; empty without a schedule.

        Examples
        --------
        >>> import remat
        >>> chain = remat.chain(forward_time=[1, 1, 1], backward_time=1, output_size=4, input_size=4)
        >>> remat.solve(chain, algorithm="keep-all").decisions.of("recomputed")
        []
        """
        from remat.solving.decisions.values import decisions_of

        return decisions_of(self)

    @cached_property
    def peak(self) -> Peak | None:
        """The values at the peak of the working memory (pipelines: of the fullest device); None without a schedule.

        Examples
        --------
        >>> import remat
        >>> chain = remat.chain(forward_time=[1, 1, 1], backward_time=1, output_size=4, input_size=2)
        >>> peak = remat.solve(chain, algorithm="keep-all").peak
        >>> [(held.name, held.size, held.waits_for) for held in peak.held][:2]
        [('x1', 4, ('B2', 'B1')), ('x2', 4, ('B2',))]
        """
        from remat.solving.peak import fullest_memory

        memory = fullest_memory(self)
        return None if memory is None else self.peak_of(memory)

    def peak_of(self, memory: str) -> Peak | None:
        """Return the values at the peak of a memory: size, producer, since when, and which tasks each waits for."""
        from remat.solving.peak import peak_of

        return peak_of(self, memory)

    @cached_property
    def shortfall(self) -> Shortfall | None:
        """The reason why there is no schedule: the needed memory by purpose, and remedies; None if there is one."""
        found: Shortfall | None = import_module(self._short_by).shortfall_of(self)
        return found

    @cached_property
    def stage_decisions(self) -> StageDecisions:
        """The decision for each stage (for a pipeline, for each stage and micro-batch).

        Empty without a schedule, and for trees and task graphs. Numbers count from 0, as indices do.

        Examples
        --------
        >>> import remat
        >>> chain = remat.chain(forward_time=[1, 1, 1, 1], backward_time=1, output_size=4, saved_size=4, input_size=4)
        >>> [row.runs for row in remat.solve(chain, algorithm="periodic").stage_decisions]
        [2, 2, 1, 1]
        """
        from remat.solving.decisions.stages import stage_decisions_of

        return stage_decisions_of(self)

    @property
    def order(self) -> tuple[str, ...]:
        """The tasks in the order of the schedule, each as often as it runs; empty without a schedule."""
        from remat.solving.decisions.orders import order_of

        return order_of(self)

    def timeline(self) -> Mapping[str, Any]:
        """Return the steps as arrays with these keys: kind, name, start, end, source, target and on.

        `kind` is ``run``, ``copy`` or ``drop``, and `name` the task or the copied value (empty for a drop). `source`
        and `target` are memories, `on` is the processor of a run. Times are in the instance's unit.
        """
        from remat.solving.decisions.orders import timeline_of

        return timeline_of(self)

    def to_networkx(self) -> Any:
        """Return the task graph as a `networkx.DiGraph` whose nodes have the start and end times of their runs."""
        from remat.solving.decisions.orders import graph_of

        return graph_of(self)

    def actions(self) -> list[str]:
        """Return the schedule of a chain or an adjoint as lines of actions; empty without a schedule.

        Their grammar is that of `remat.report.text.actions`.

        Raises
        ------
        remat.OptionError
            For other kinds.
        """
        told: list[str] = import_module(self._shown_by).told(self)
        return told

    @property
    def makespan(self) -> Number | None:
        """The verified makespan; for a stream, the time per sample (`report.makespan`: of all checked samples)."""
        return None if self.report is None else self.report.objective

    @property
    def peak_memory(self) -> dict[str, int]:
        """Verified peak of each memory, by its name; empty without a schedule."""
        return {} if self.report is None else self.report.peak_memory

    @property
    def steady(self) -> Steady | None:
        """Figures of one period of a periodic schedule."""
        return None if self.report is None else self.report.steady

    @property
    def recompute_time(self) -> Number | None:
        """Time of all runs minus the no-recompute time."""
        return None if self.report is None else self.report.recompute_time

    @property
    def energy(self) -> Number | None:
        """Verified energy of all runs and transfers; None without a schedule, and if the instance gives no energy."""
        return None if self.report is None else self.report.energy

    @property
    def idle_share(self) -> float | None:
        """Share of the makespan in which processors are idle, on average; None for streams and empty schedules."""
        report = self.report
        if report is None or not report.makespan or self.steady is not None:
            return None
        idle = sum(report.idle.get(processor.name, report.makespan) for processor in self.machine.processors)
        return float(idle / report.makespan) / len(self.machine.processors)

    @property
    def overhead(self) -> float | None:
        """Makespan over `reference_time`, minus 1; None for streams."""
        if self.makespan is None or not self.reference_time or self.steady is not None:
            return None
        return self.makespan / self.reference_time - 1

    @cached_property
    def exchange_time(self) -> Number:
        """Part of `no_recompute_time`: the time of the needed exchanges between ranks, each once; 0 without any."""
        return exchange_time(self.graph)

    @property
    def reference_time(self) -> Number:
        """The reference of `overhead`: the no-recompute time, or `transfer_bound` if that is larger.

        Exchanges between ranks overlap with computation: of the two, the longer one counts.
        """
        return reference_of(self.no_recompute_time, self.exchange_time, self.transfer_bound)

    @property
    def gap(self) -> float | None:
        """Distance of the makespan to `lower_bound`, as a share of the makespan."""
        if self.makespan is None:
            return None
        return (self.makespan - self.lower_bound) / self.makespan if self.makespan else 0.0

    def peak_step(self, memory: str) -> str:
        """Name the step of a memory's peak."""
        index = None if self.report is None else self.report.peaks[memory].step
        if index is None:
            return "initial residency"
        from remat.schedule.document import Copy, Run

        step = self.steps[index]
        match step:
            case Run():
                return step.task
            case Copy():
                return f"copy of {step.value} to {step.target}"
            case _:
                return f"drop of {', '.join(step.values)}"

    def peak_module(self, memory: str) -> str:
        """Return the module, stage or layer of the task at a memory's peak; empty if unknown.

        A stage, step or layer without a name is called by its number, as in the task's name: ``stage 3``.
        """
        from remat.solving.peak import module_at

        return module_at(self, memory)

    def to_dict(self) -> dict[str, Any]:
        """Return the schedule document."""
        from remat.schedule.writing import step_lines

        document = self.head()
        if self.columns is not None and self.orders is None and self.pattern is None:
            lines = step_lines(self.columns, self.graph, self.machine)
            document["steps"] = json.loads("[" + ",".join(lines) + "]")
        if (rows := self._address_lines()) is not None:
            document["addresses"] = json.loads("[" + ",".join(rows) + "]")
        return document

    def head(self) -> dict[str, Any]:
        """Return the schedule document without its steps."""
        from remat.schedule.document import initial_document, schema_of

        report = self.report
        newer = self.pattern or self.orders or self._division() or self.steady
        head: dict[str, Any] = {
            "schema": schema_of(self.columns, newer or self.addresses),
            "instance": {"name": self.instance_name, "digest": self.instance_digest},
            "machine": self.machine.to_document(),
            "algorithm": self.algorithm,
            "options": dict(self.options),
            "seed": self.seed,
            "status": str(self.status),
            "optimal_within": self.optimal_within,
            "termination": str(self.termination),
        }
        if self.scope is not None:
            head["scope"] = self.scope
        if report is not None:
            head |= {
                "makespan": report.objective,
                "peak_memory": report.peak_memory,
                "recompute_time": report.recompute_time,
                "transferred": dict(report.transferred),
            }
        head["lower_bound"] = self.lower_bound
        head["bounds"] = [{"value": b.value, "scope": b.scope, "source": b.source} for b in self.bounds]
        if self.least_budget is not None:
            least = self.least_budget
            head["least_budget"] = {
                "memory": self.machine.memories[least.memory].name,
                "size": least.size,
                "task": None if least.task is None else self.graph.tasks[least.task],
                "sufficient": least.sufficient,
                "scope": least.scope,
            }
        if self.answer is not None:
            head["answer"] = self.answer.to_dict()
        head["solve_seconds"] = round(self.solve_seconds, 6)
        if self.notes:
            head["notes"] = list(self.notes)
        head |= self._division()
        if self.pattern is not None:
            head |= self.pattern.to_document(self.machine)
        elif self.orders is not None:
            head |= self.orders.to_document([processor.name for processor in self.machine.processors])
        elif self.columns is not None and self.columns.initial:
            head["initial"] = initial_document(self.columns, self.graph, self.machine)
        if self.steady is not None and self.pattern is None:
            head["period"] = self.steady.period
        if self.addresses is not None:
            from remat.schedule.addresses import arena_documents

            head["arenas"] = arena_documents(self.addresses, self.machine)
        return head

    def _address_lines(self) -> Iterator[str] | None:
        if self.addresses is None or self.columns is None:
            return None
        from remat.schedule.addresses import address_lines

        return address_lines(self.addresses, self.graph, self.machine, len(self.columns))

    def with_addresses(self, layout: Addresses) -> Result:
        """Return this result with the addresses of one more memory, or with others of a memory that has some.

        Parameters
        ----------
        layout : Addresses
            A result of `remat.layout` for this result.

        Raises
        ------
        remat.OptionError
            If no layout was found, or its arena exceeds the memory.
        """
        table = layout.table_of(self.machine)
        assert self.report is not None
        arenas = {self.machine.memories[arena.memory].name: arena.size for arena in table.arenas}
        report = replace(self.report, arenas={**self.report.arenas, **arenas})
        return replace(self, addresses=table.merged(self.addresses), report=report)

    def _division(self) -> dict[str, Any]:
        """Return the division of a pipeline's batch, if the instance fixes it or leaves it to the schedule."""
        if not is_pipeline(self.instance) or self.columns is None:
            return {}
        found: dict[str, Any] = {} if self.instance.samples is None else {"samples": self.instance.samples}
        return found | ({"cut": list(self.instance.cut)} if self.instance.cut else {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule document atomically; ``-`` is standard output, ``.gz`` is compressed."""
        from remat.schedule.writing import document_chunks

        steps = self.columns if self.orders is None and self.pattern is None else None
        write_text(path, document_chunks(self.head(), steps, self.graph, self.machine, self._address_lines()))

    @property
    def proved_optimal(self) -> bool:
        """Whether no schedule of this instance on this machine is shorter."""
        return self.status is Status.OPTIMAL and self.optimal_within == ALL_SCHEDULES
