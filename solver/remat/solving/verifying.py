"""`remat.verify`: check that a schedule document is valid for its instance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any

from remat.documents import write_text
from remat.errors import InstanceError, OptionError, QuantityError, checked_call
from remat.graph.machine import Machine
from remat.graph.taskgraph import TaskGraph
from remat.instance import MachineModel, digest, load, load_machine
from remat.instance.kinds import is_chain, is_pipeline
from remat.instance.loading import machine_argument
from remat.instance.lowering import lower, machine_of, samples_of
from remat.messages import brief, elided
from remat.placement import Unplaceable, place
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, Status, Termination
from remat.schedule.addresses import read_addresses
from remat.schedule.document import Step, parse_steps, read_any_schedule, read_head, read_initial
from remat.schedule.modulo import read_modulo
from remat.schedule.orders import Orders, orders_of
from remat.schedule.patterns import PeriodicSchedule, read_pattern
from remat.schedule.steps import StepBuilder, Steps, started
from remat.solving.batch_splitting import of_schedule
from remat.solving.budget import Budget, apply_budget
from remat.solving.conclusion import is_met
from remat.solving.result import Result
from remat.units import LARGEST_TOTAL, Number, Units, format_budget, parse_number, parse_time
from remat.verifier import Report, Subject, Violation, check, check_addresses, check_cycle, nothing_run

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.schedule.addresses import AddressTable
    from remat.solving.questions.layout import Addresses

OTHER_INSTANCE = "other-instance"
"""Rule that a schedule of another instance breaks."""

SHOWN_DIGEST = 19
"""Characters of a digest in messages."""

AS_STATED = "status and lower bound are as the file states them"
"""Note on what no verifier can tell from a schedule."""


@checked_call(OptionError)
def verify(
    instance: str | os.PathLike[str] | IO[Any] | dict[str, Any] | Instance,
    schedule: str | os.PathLike[str] | IO[Any] | dict[str, Any] | Sequence[dict[str, Any] | Step] | Result,
    *,
    machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None = None,
    budget: Budget = None,
    any_instance: bool = False,
) -> Report:
    """Verify a schedule; steps without start times are placed first.

    Parameters
    ----------
    instance : path, open file, dict or instance
    schedule : path, open file, dict, sequence of steps, or Result
        A schedule document, its steps alone, or a result, whose document is verified. Steps are dicts
        (``[{"run": "F1"}, {"run": "F2", "drop": ["x1"]}, ...]``), or `remat.Run`, `remat.Copy` and `remat.Drop`.
    machine : path, dict or MachineModel, optional
        Judge on this machine; default is the schedule's own, else the instance's.
    budget : int, str or mapping, optional
        Replaces capacities of the machine, as in `remat.solve`.
    any_instance : bool
        Accept a schedule that names another instance; by default this is a violation.

    Returns
    -------
    Report
        `.ok`, `.violations`, `.makespan`, `.peak_memory`, `.profiles`, `.notes`.

    Raises
    ------
    remat.InstanceError
        For documents that are no instance or no schedule.
    """
    document = schedule.to_dict() if isinstance(schedule, Result) else schedule
    return examine(instance, document, machine=machine, budget=budget, any_instance=any_instance).report


@dataclass(frozen=True, slots=True)
class Examined:
    """A schedule document that was read, placed if necessary, and verified.

    Attributes
    ----------
    instance : Instance
    document : mapping
        The schedule document.
    graph, machine, steps
        The judged graph, machine and steps; the steps have start times.
    report : Report
    orders : Orders or None
        Orders of a pipeline's schedule, from which the steps follow.
    pattern : Pattern, ModuloSchedule or None
        Pattern of a stream's schedule, from which steps and a pipeline's orders follow.
    addresses : AddressTable or None
    """

    instance: Instance
    document: Mapping[str, Any]
    graph: TaskGraph
    machine: Machine
    steps: Steps
    report: Report
    orders: Orders | None = None
    pattern: PeriodicSchedule | None = None
    addresses: AddressTable | None = None

    def __post_init__(self) -> None:
        subject = Subject(self.graph, self.machine, self.steps, self.instance.units.build())
        object.__setattr__(self, "report", replace(self.report, subject=subject))

    def as_result(self) -> Result:
        """Return the schedule as a result, for example to draw it.

        All measurements are the verifier's. If the document's figures agree with them, status, bound and class are
        those of the document, and are marked as claims. Otherwise the bound follows from the required tasks.

        Raises
        ------
        remat.OptionError
            If the schedule breaks rules.
        """
        if not self.report.ok:
            raise OptionError(self.refusal)
        status, lower, within = self._stated()
        stated = lower > 0
        if not stated:
            status, lower, within = self._measured()
        return Result(
            instance_name=self.instance.name or "",
            instance=self.instance,
            graph=self.graph,
            machine=self.machine,
            units=self.instance.units.build(),
            algorithm=str(self.document.get("algorithm") or "(not stated)"),
            options={},
            seed=0,
            status=status,
            termination=Termination.COMPLETED,
            columns=self.steps,
            report=self.report,
            lower_bound=lower,
            bounds=self._stated_bounds() if stated else (),
            no_recompute_time=self.report.run_time - self.report.recompute_time,
            optimal_within=within,
            notes=(AS_STATED,) if stated else (),
            orders=self.orders,
            pattern=self.pattern,
            addresses=self.addresses,
        )

    @property
    def refusal(self) -> str:
        """The reason to refuse a schedule: its instance, or its first violation; empty if it is valid."""
        broken = self.report.violations
        first = next(iter(broken), None)
        if first is None:
            return ""
        if any(violation.rule == OTHER_INSTANCE for violation in broken):
            about = self.document["instance"]
            made, own = about.get("name") or "(unnamed)", self.instance.name or "(unnamed)"
            stated, found = (f"digest {str(text)[:SHOWN_DIGEST]}" for text in (about["digest"], digest(self.instance)))
            return f"the schedule is of {brief(made)} ({stated}), not of {brief(own)} ({found}); give its own instance"
        shown = elided(str(first), 150)
        if len(broken) == 1:
            return f"the schedule breaks one rule: {shown}"
        return f"the schedule breaks rules; the first of {len(broken):,}: {shown}; remat verify lists them"

    def with_addresses(self, layout: Addresses) -> Examined:
        """Return this schedule with the addresses of one more memory (see `Result.with_addresses`)."""
        return replace(self, addresses=layout.table_of(self.machine).merged(self.addresses))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schedule document as it was read, with start times and addresses."""
        from remat.schedule.addresses import address_lines, arena_documents
        from remat.schedule.document import SCHEMA_2
        from remat.schedule.writing import document_chunks

        lines = None
        head = {key: value for key, value in self.document.items() if key not in ("steps", "arenas", "addresses")}
        if self.addresses is not None:
            head |= {"schema": SCHEMA_2, "arenas": arena_documents(self.addresses, self.machine)}
            lines = address_lines(self.addresses, self.graph, self.machine, len(self.steps))
        steps = self.steps if "steps" in self.document else None
        write_text(path, document_chunks(head, steps, self.graph, self.machine, lines))

    def _stated(self) -> tuple[Status, Number, str | None]:
        """Return status, bound and class of optimality as stated, where instance and makespan are the stated ones."""
        named = self.document.get("instance")
        own = isinstance(named, dict) and named.get("digest") == digest(self.instance)
        within = self.document.get("optimal_within")
        makespan = self.report.objective
        try:  # as they were read: numbers with a fraction are decimal
            lower, said = (parse_number(self.document.get(name)) for name in ("lower_bound", "makespan"))
        except QuantityError:
            return Status.FEASIBLE, 0, None
        if not own or said != makespan:
            return Status.FEASIBLE, 0, None
        if not 0 <= lower <= makespan * (1 + 1e-9):
            return Status.FEASIBLE, 0, None
        stated = self.document.get("status") == Status.OPTIMAL and within == ALL_SCHEDULES
        return Status.OPTIMAL if stated else Status.FEASIBLE, lower, within if isinstance(within, str) else None

    def _stated_bounds(self) -> tuple[Bound, ...]:
        """Return the bounds on classes of schedules that the file states; what is no bound is left out."""
        listed, found = self.document.get("bounds"), list[Bound]()
        for entry in listed if isinstance(listed, list) else ():
            if not isinstance(entry, dict):
                continue
            try:
                value = parse_number(entry.get("value"))
            except QuantityError:
                continue
            if entry.get("scope") != ALL_SCHEDULES:
                found.append(Bound(value, str(entry.get("scope")), str(entry.get("source"))))
        return tuple(found)

    def _measured(self) -> tuple[Status, Number, str | None]:
        """Return the bound that holds for every schedule, and whether the makespan meets it; 0 if the batch is divided.

        A schedule that divides the batch was judged on its own division: others may be faster than this allows.
        """
        instance = self.instance
        if is_pipeline(instance) and (instance.cut or instance.samples is not None):
            return Status.FEASIBLE, 0, None
        lower = Problem(instance, self.machine).least_objective
        if is_met(lower, self.report, len(self.steps)):
            return Status.OPTIMAL, lower, ALL_SCHEDULES
        return Status.FEASIBLE, lower, None


def examine(
    instance: str | os.PathLike[str] | IO[Any] | dict[str, Any] | Instance,
    schedule: str | os.PathLike[str] | IO[Any] | dict[str, Any] | Sequence[dict[str, Any] | Step],
    *,
    machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None = None,
    budget: Budget = None,
    any_instance: bool = False,
) -> Examined:
    """Verify a schedule as `verify` does, and return the judged schedule with its report."""
    loaded = load(instance)
    document = read_any_schedule(schedule)
    loaded = of_schedule(loaded, read_head(document))
    units = loaded.units.build()
    used, notes = _machine_of(loaded, document, machine)
    if budget is not None:
        used = apply_budget(Problem(loaded, used), budget).machine
    graph = lower(loaded, used)
    about = document.get("instance") if isinstance(document, dict) else None
    stated = about.get("digest") if isinstance(about, dict) else None
    foreign = stated is not None and stated != digest(loaded)
    if foreign and any_instance:
        notes.append("the schedule was made for another instance (its digest differs)")

    def judged(report: Report, *more: Violation) -> Report:
        violations = (*report.violations, *more)
        if foreign and not any_instance:
            text = f"the schedule was made for an instance of digest {brief(stated)}, this one's is {digest(loaded)}"
            violations = (*violations, Violation(None, OTHER_INSTANCE, text))
        claims = _claims(document, report) if report.makespan or len(report.start) else ()
        return replace(report, violations=violations, notes=(*report.notes, *notes, *claims))

    pattern = _pattern_of(loaded, document, used)
    if "addresses" in document and (pattern is not None or loaded.is_stream):
        raise InstanceError("a schedule that repeats itself without end has no addresses", "$.addresses")
    if pattern is not None:
        return _streamed(loaded, document, graph, used, pattern, judged)
    orders = orders_of(loaded, document, used)
    if orders is None:
        steps = parse_steps(document, graph, used, units)
    else:
        from remat.solving.orders import Followed, follow

        followed = follow(loaded, graph, used, orders, read_initial(document, graph, used))
        if not isinstance(followed, Followed):
            refused = replace(nothing_run(used), violations=followed, notes=tuple(notes))
            return Examined(loaded, document, graph, used, StepBuilder().build(), refused)
        graph, steps = followed.graph, followed.steps
    overrun: Unplaceable | None = None
    if steps.start is None:
        outcome = place(graph, used, steps)
        if isinstance(outcome, Unplaceable):
            overrun = outcome
            unbounded = used.with_capacities({used.memories[outcome.memory].name: None})
            outcome = place(graph, unbounded, steps)
            if isinstance(outcome, Unplaceable):
                outcome = place(graph, used.with_capacities({m.name: None for m in used.memories}), steps)
        assert not isinstance(outcome, Unplaceable)
        steps = steps.placed(outcome.start)
    report = _of_all(check(graph, used, steps), used, orders)
    period = _period_of(loaded, document)
    if period is not None and report.ok:
        steady, wrong = check_cycle(graph, used, steps, period)
        report = replace(report, steady=steady, violations=(*report.violations, *wrong))
    more: tuple[Violation, ...] = ()
    if overrun is not None and not any(v.rule == "capacity" for v in report.violations):
        name = used.memories[overrun.memory].name
        more = (Violation(overrun.step, "capacity", f"{name} would hold {overrun.needed} of {overrun.capacity}"),)
    addresses = read_addresses(document, graph, used, len(steps))
    report = judged(report, *more)
    if addresses is not None:
        report = _with_addresses(report, graph, used, steps, addresses)
    return Examined(
        loaded, document, started(graph, used, steps), used, steps, report, orders=orders, addresses=addresses
    )


def _with_addresses(report: Report, graph: TaskGraph, machine: Machine, steps: Steps, table: AddressTable) -> Report:
    """Return a report that includes the violations of the addresses and the sizes of the arenas."""
    if not report.ok:
        return replace(report, notes=(*report.notes, "addresses are checked once the schedule breaks no other rule"))
    violations, arenas = check_addresses(graph, machine, steps, table)
    notes = []
    for arena in table.arenas:
        name = machine.memories[arena.memory].name
        if arena.size != arenas[name]:
            notes.append(f"the schedule states an arena of {arena.size} in {name}, verified is {arenas[name]}")
    return replace(report, violations=violations, arenas=arenas, notes=(*report.notes, *notes))


def _machine_of(
    instance: Instance, document: Any, machine: str | os.PathLike[str] | dict[str, Any] | MachineModel | None
) -> tuple[Machine, list[str]]:
    """Return the machine on which a schedule is judged, and how the schedule's own differs from the instance's."""
    units = instance.units.build()
    model = machine_argument(machine, units)
    if model is not None:
        return machine_of(instance, model), []
    own = machine_of(instance)
    if not isinstance(document, dict) or document.get("machine") is None:
        return own, []
    if not isinstance(document["machine"], dict):  # a text would be the path of a file
        raise InstanceError(f"expected an object, not {brief(document['machine'])}", "$.machine")
    try:
        used = machine_of(instance, load_machine(document["machine"], units))
    except InstanceError as error:
        raise InstanceError(str(error), "schedule, machine", error.more) from None
    return used, _differences(own.to_document(), used.to_document(), units)


def _of_all(report: Report, machine: Machine, orders: Orders | None) -> Report:
    """Return a report that includes the devices that run stages together with a first one."""
    if orders is None:
        return report
    from remat.solving.orders import with_followers

    return with_followers(report, machine, orders)


def _streamed(
    instance: Instance,
    document: Any,
    graph: TaskGraph,
    machine: Machine,
    pattern: PeriodicSchedule,
    judged: Callable[[Report], Report],
) -> Examined:
    """Repeat and judge the pattern of a schedule document."""
    from remat.solving.streams import Stream, stream_of

    stream = stream_of(instance, graph, machine, pattern)
    if not isinstance(stream, Stream):
        refused = judged(replace(nothing_run(machine), violations=stream))
        return Examined(instance, document, graph, machine, StepBuilder().build(), refused)
    steps = stream.steps
    lying = started(stream.graph, machine, steps)
    report = judged(stream.report)
    return Examined(instance, document, lying, machine, steps, report, stream.orders, stream.pattern)


def _period_of(instance: Instance, document: Any) -> Number | None:
    """Return the period of a chain's schedule for successive training steps; None without a period."""
    if not is_chain(instance) or "period" not in document:
        return None
    try:
        period = parse_time(document["period"], instance.units.build(), largest=LARGEST_TOTAL)
    except ValueError as error:
        raise InstanceError(str(error), "$.period") from None
    if period <= 0:
        raise InstanceError("a period is longer than 0", "$.period")
    return period


def _pattern_of(instance: Instance, document: Any, machine: Machine) -> PeriodicSchedule | None:
    """Return the pattern of a schedule document; None without a pattern."""
    given = [key for key in ("period", "pattern") if key in read_head(document)]
    if is_chain(instance) and instance.is_stream and "pattern" not in given:
        if not given:
            raise InstanceError("steps follow each other without end: expected a period", "$")
        return None
    if not given:
        if instance.is_stream:
            what = "micro-batches" if is_pipeline(instance) else "samples"
            raise InstanceError(f"{what} follow each other without end: expected a period and a pattern", "$")
        return None
    if not instance.is_stream or is_chain(instance):
        what = "only pipelines whose weights are stash, double, single or fixed and streams of samples have a pattern"
        raise InstanceError(f"{what}; chains with a staleness have a period", f"$.{given[0]}")
    for key in ("steps", "orders"):
        if key in document:
            raise InstanceError(f"{key} and a pattern exclude each other: they follow from the pattern", f"$.{key}")
    units = instance.units.build()
    samples = samples_of(instance, machine)
    if samples is not None:
        if "stages" in document:
            raise InstanceError(
                "stages and a pattern of samples exclude each other: the pattern places all tasks", "$.stages"
            )
        return read_modulo(document, samples.graph, machine, units)
    assert is_pipeline(instance)
    return read_pattern(document, [processor.name for processor in machine.processors], instance.length, units)


def _differences(own: dict[str, Any], used: dict[str, Any], units: Units) -> list[str]:
    """Describe how the schedule's machine differs from the instance's; the order of their parts does not count."""
    notes = []
    for key in ("memories", "processors", "links"):
        before, after = (sorted(machine.get(key, []), key=_listed) for machine in (own, used))
        if before == after:
            continue
        if key == "memories" and [m["name"] for m in before] == [m["name"] for m in after]:
            for one, other in zip(before, after, strict=True):
                if one != other:
                    capacities = [m.get("capacity") for m in (one, other)]
                    shown = [
                        "unbounded" if size is None else format_budget(size, units, both=True) for size in capacities
                    ]
                    notes.append(f"capacity of {one['name']} is {shown[1]}, the instance's is {shown[0]}")
        else:
            notes.append(f"the schedule's {key} differ from the instance's")
    return notes


def _listed(part: dict[str, Any]) -> tuple[str, str]:
    """Return the sort key for comparing the parts of two machines."""
    return part.get("name", ""), str(sorted(part.items()))


def _claims(document: dict[str, Any], report: Report) -> list[str]:
    """Report differences between the document's figures and the verified ones."""
    notes = []
    stated = document.get("makespan")
    if stated is not None and not _close(stated, report.objective):
        notes.append(f"the schedule states makespan {brief(stated)}, verified is {report.objective}")
    peaks = document.get("peak_memory")
    if isinstance(peaks, dict):
        for name, size in peaks.items():
            if name in report.peaks and size != report.peaks[name].size:
                notes.append(f"the schedule states peak {brief(size)} in {name}, verified is {report.peaks[name].size}")
    return notes


def _close(stated: Any, verified: Any) -> bool:
    try:
        return abs(float(stated) - float(verified)) <= 1e-9 * max(abs(float(verified)), 1e-300)
    except (TypeError, ValueError, OverflowError):
        return False
