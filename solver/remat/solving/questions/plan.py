"""`remat.plan`: one training step on several devices, planned as a whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from remat.errors import InstanceError, OptionError, checked_call
from remat.instance import Instance, PipelineInstance, load
from remat.instance.base import instance_document
from remat.instance.chain import ChainInstance
from remat.instance.cluster import DeviceModel
from remat.instance.kinds import is_pipeline
from remat.messages import article
from remat.plugin.context import Progress
from remat.plugin.forms import Forms
from remat.plugin.problem import Problem, budgeted_memories
from remat.plugin.proposal import LeastBudget, Status, Termination
from remat.plugin.selection import with_little_work
from remat.schedule.orders import Phase
from remat.schedule.recompute import segments_of
from remat.solving import auto
from remat.solving.budget import Budget, apply_budget
from remat.solving.entry import Setup
from remat.solving.minimum_budget import at_peak, setting_task, smallest_named
from remat.solving.problem_setup import AnyInstance, Control, make_problem, read_seconds
from remat.solving.questions.chain_as_pipeline import document_of_chain, static_bytes, with_static, without_static
from remat.solving.questions.parallel_degrees import ALGORITHM, Degrees, Way, put_back, ways_of
from remat.solving.questions.pool import Answered, with_budget
from remat.solving.questions.prober import Effort, Prober
from remat.solving.result import Result
from remat.units import Number, format_size

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.plugin.cancel import Cancel

OBJECTIVES = ("sample", "makespan")

OTHER_LIMIT = 10.0
"""Seconds for `auto` where nothing was found: it looks for any plan, a proof, or the smallest budget."""

QUICK_PLANNER = "piper"
"""Quick planner that runs first if no plan was found."""

RESOLUTION = 0.005
"""Share of the smallest budget to which it is searched."""

MOST_TASKS = 100_000
"""Tasks of a pipeline for which the smallest budget is searched."""

LEAST = 0.05
"""Smallest time limit in seconds for trying another division of the batch after a plan is known."""


@dataclass(frozen=True)
class Planned:
    """A plan, its instance, and the makespans of other degrees.

    Attributes
    ----------
    result : Result
        Verified, like that of any solve.
    instance : PipelineInstance
        With the devices, memories, micro-batches and ranks that were chosen.
    degrees : Degrees
    tried : mapping of Degrees to number or None
        The makespan for each combination of degrees; None if no plan was found.
    """

    result: Result
    instance: PipelineInstance
    degrees: Degrees
    tried: Mapping[Degrees, Number | None] = field(default_factory=dict[Degrees, "Number | None"])

    @property
    def samples(self) -> int:
        """Samples of a step, on all ranks; micro-batches if the instance has no samples."""
        return self.instance.micro_batches * self.instance.ranks * (self.instance.samples or 1)

    @property
    def time_per_sample(self) -> float | None:
        """Makespan for each sample of a step."""
        return None if self.result.makespan is None else self.result.makespan / self.samples

    @property
    def recompute_time(self) -> Number:
        """Time of recomputation, summed over all devices, including each device of a group that runs a stage."""
        result, orders = self.result, self.result.orders
        if result.report is None or orders is None or self.degrees.tensor:
            return 0 if result.report is None else result.report.recompute_time * self.degrees.tensor
        own: list[Number] = [0] * len(orders.stages)
        for phase, number, batch in {operation for listed in orders.lists for operation in listed}:
            if phase in (Phase.B, Phase.BW):
                layers = [layer for segment in segments_of(orders.stages[number].recompute, batch) for layer in segment]
                tasks = [result.graph.tasks.find(f"Fe{layer + 1}.{batch}") for layer in layers]
                own[number] += sum(result.graph.time[task].item() for task in tasks if task is not None)
        return sum(time * stage.tensor for time, stage in zip(own, orders.stages, strict=True))


@checked_call(OptionError)
def plan(
    instance: AnyInstance,
    *,
    devices: int | None = None,
    budget: Budget = None,
    micro_batches: int | None = None,
    link: str | float | None = None,
    data: Iterable[int] = (1,),
    zero: Iterable[int] = (0,),
    tensor: Iterable[int] | None = None,
    objective: str = "sample",
    options: Mapping[str, Any] | None = None,
    time_limit: float | str | None = None,
    gap: float | str | None = None,
    patience: float | str | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Callable[[Progress], object] | None = None,
    cancel: Cancel | None = None,
) -> Planned:
    """Plan a training step on several devices: stages, order, recomputation, and how the batch is shared.

    Parameters
    ----------
    instance : path, open file, dict or instance
        A pipeline; or a chain with parameters, which then needs `micro_batches` and `link`.
    devices : int, optional
        Replaces the number of devices of the cluster, which has to have one type.
    budget : int, str or mapping, optional
        Memory of each device, as in `remat.solve`.
    micro_batches : int, optional
        Micro-batches of a step, over all ranks; replaces those of the instance.
    link : str or float, optional
        Bandwidth between any two devices, such as ``"25GB/s"``; replaces the levels of the cluster.
    data, zero : iterable of int
        Numbers of ranks, and stages of ZeRO, to choose from. Ranks share the micro-batches equally.
    tensor : iterable of int, optional
        How many devices may run every stage together, 1 for alone; None: all degrees that the layers list and the
        devices allow. Ranks run their layers alone.
    objective : str
        ``sample``, the least time per sample, or ``makespan``. They differ where numbers of ranks leave steps of
        different sizes.
    options, time_limit, gap, patience, seed, threads, progress, cancel
        As in `remat.solve`; the time limit is for all degrees together.

    Returns
    -------
    Planned

    Raises
    ------
    remat.InstanceError, remat.OptionError
        For input that cannot be used, such as ranks that do not divide devices or micro-batches.
    """
    limit = read_seconds(time_limit, default=None)
    deadline = None if limit is None else time.monotonic() + limit
    if objective not in OBJECTIVES:
        raise OptionError(f"{objective!r:.60} is none of {', '.join(OBJECTIVES)}", argument="objective")
    given = load(instance)
    static = static_bytes(given) if isinstance(given, ChainInstance) else 0
    base = pipeline_of(given, devices=devices, micro_batches=micro_batches, link=link)
    asked = budget
    if static:
        budget = without_static(budget, static, given.units.build())
    ways = list(ways_of(base, list(data), list(zero), tensor, budget, options or {}))
    control = Control(None, gap, patience, seed, threads, progress, cancel)
    found = _solve_all(ways, options, control, deadline)
    best = min(found, key=lambda one: _rank(one, objective))
    if best.result.report is None:
        best = _without_plan(best, found, ways, options or {}, control, deadline)
    tried = {one.degrees: one.result.makespan for one in found} | {best.degrees: best.result.makespan}
    if static and isinstance(given, ChainInstance):
        best = _with_static(best, static, with_static(best.result.machine, asked, given))
    return replace(best, tried=tried)


def _with_static(planned: Planned, static: int, machine: Machine) -> Planned:
    """Return a plan that says how much static memory each device also holds.

    Minimum budgets include it. The bounds of an answer without a schedule include it, too, and so does its machine.
    """
    result = planned.result
    least = result.least_budget
    size = format_size(static, result.units)
    own = replace(result, least_budget=None if least is None else replace(least, size=least.size + static))
    if result.report is not None:
        note = f"each device also holds {size} of static memory: budgets include it, and peaks do not"
        return replace(planned, result=replace(own, notes=(*own.notes, note)))
    total, names = own.total_bound, {machine.memories[processor.memory].name for processor in machine.processors}
    bounds = {
        name: bound._replace(size=bound.size + static) if name in names else bound
        for name, bound in own.memory_bounds.items()
    }
    whole = None if total is None else total._replace(size=total.size + static * len(names))
    return replace(planned, result=replace(own, machine=machine, memory_bounds=bounds, total_bound=whole))


def _solve_all(
    ways: list[Way], options: Mapping[str, Any] | None, control: Control, deadline: float | None
) -> list[Planned]:
    """Solve for all divisions of the batch within the time limit."""
    found: list[Planned] = []
    for number, way in enumerate(ways):
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) / (len(ways) - number)
        stopped = found and found[-1].result.termination is Termination.INTERRUPTED
        short = left is not None and left < LEAST and any(one.result.makespan is not None for one in found)
        if stopped or short:
            break
        own = way.algorithm == ALGORITHM
        limits = (
            replace(control, time_limit=left) if own else replace(control, time_limit=left, gap=None, patience=None)
        )
        try:
            chosen = {**(options or {} if own else {}), **(way.options or {})}
            setup = Setup.of(way.instance, way.algorithm, None, chosen)
            result = setup.solve_within(limits, way.budget)
        except OptionError:
            if own:
                raise
            continue
        found.append(_planned(way, put_back(way, result)))
    return found


def _without_plan(
    best: Planned,
    found: Sequence[Planned],
    ways: Sequence[Way],
    options: Mapping[str, Any],
    control: Control,
    deadline: float | None,
) -> Planned:
    """Return the plan of another algorithm or search, or the answer without a plan, with the smallest budget found."""
    best = replace(best, result=_otherwise(best, control.seed, deadline))
    if best.result.report is not None:
        return best
    own = [way for way in ways if way.algorithm == ALGORITHM and not way.instance.is_open]
    problems = [apply_budget(make_problem(way.instance), way.budget) for way in own]
    few = [_searches(options, problem) for problem in problems]
    if best.result.status is not Status.INFEASIBLE:
        # A budget that the search below names is one for which this finds a plan.
        listed = [replace(way, options=searches[-1]) for way, searches in zip(own, few, strict=True)]
        again = _solve_all(listed, options, control, deadline)
        planned = next((one for one in again if one.result.report is not None), None)
        if planned is not None:
            return planned
    named = [one.result.least_budget for one in found if one.result.instance is best.result.instance]
    known = smallest_named([best.result.least_budget, *named])
    limits = replace(control, gap=None, patience=None, progress=None)
    asked = [
        (problem, [{**options, **search} for search in searches])
        for problem, searches in zip(problems, few, strict=True)
        if len(problem.graph.tasks) <= MOST_TASKS
    ]
    size = known.size if known is not None and known.sufficient else None
    least = smallest_budget(asked, limits, deadline, size)
    if least is not None:
        same = own[0].whole is None and own[0].instance is best.instance
        first = best.result.machine.processors[0].memory
        task = setting_task(problems[0], least) if same and len(own) == 1 else None
        known = replace(least, memory=first, task=task, orders=least.orders if same else None)
    return replace(best, result=replace(best.result, least_budget=known))


def _otherwise(planned: Planned, seed: int, deadline: float | None) -> Result:
    """Return the answer of another planner, or of `auto`, if no plan was found: any plan, or a proof."""
    result = planned.result
    if planned.degrees != Degrees() or result.status is Status.INFEASIBLE:
        return result
    left = OTHER_LIMIT if deadline is None else min(OTHER_LIMIT, (deadline - time.monotonic()) / 2)
    if left < LEAST:
        return result
    capacities = {memory.name: memory.capacity for memory in result.machine.memories}
    problem = make_problem(planned.instance)
    for solver in (auto.find(QUICK_PLANNER, problem.kind), auto.AUTO):
        try:
            other = Setup(problem, solver, {}).solve_within(Control(left, seed=seed), capacities)
        except OptionError:
            continue
        if other.report is not None or other.status is Status.INFEASIBLE:
            return other
    return result


def smallest_budget(
    asked: Iterable[tuple[Problem, Sequence[Mapping[str, Any]]]],
    control: Control,
    deadline: float | None,
    known: int | None,
) -> LeastBudget | None:
    """Return the smallest budget of all devices at which the planner finds a plan, by bisection.

    The number of solves and their moves limit the search, so that the clock changes nothing unless the time limit ends
    it.

    Parameters
    ----------
    asked : iterable of (Problem, sequence of options)
        The combinations of degrees, each with the options of successive searches. Those after the first are searched
        only if they have a plan for less memory.
    control, deadline
    known : int or None
        A budget that is known to be sufficient.

    Returns
    -------
    LeastBudget or None
        None if it is not less than `known`.
    """
    least, size = None, known
    for number, (problem, searches) in enumerate(asked):
        for options in searches:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left < LEAST:
                return least
            limits = replace(control, time_limit=left)
            found = _searched(problem, options, limits, size, only_less=number > 0)
            if found is not None and (size is None or found.size < size):
                least, size = found, found.size
    return least


def _searches(options: Mapping[str, Any], problem: Problem) -> tuple[Mapping[str, Any], ...]:
    """Return the planner's options in the searches for the smallest budget: a quick one, and one with a few moves."""
    quick = [one.trial.options for one in with_little_work(problem) if one.algorithm.name == ALGORITHM]
    moves = quick[0]["moves"] if quick else 0
    given = str(options.get("moves", moves))
    return {"moves": 0, "zoo": False}, {"moves": min(moves, int(given)) if given.isdecimal() else moves}


def _searched(
    problem: Problem, options: Mapping[str, Any], control: Control, known: int | None, *, only_less: bool
) -> LeastBudget | None:
    """Search for the smallest budget with a plan by bisection between a proved bound and a sufficient budget.

    `known` is sufficient, if given. `only_less`: search only if there is a plan for noticeably less.
    """
    memory = problem.machine.processors[0].memory
    effort = Effort.of(ALGORITHM, options, control, Forms(problem.instance))
    prober = Prober(with_budget(problem, memory, None), memory, effort)
    best: Answered | None = None
    size, failed = known, max(prober.floor, 0)
    try:
        if size is None or only_less:
            best = prober.at(None if size is None else max(0, int((1 - RESOLUTION) * size)))
            if not best.solved:
                return None
            size = best.peak or 0
        while size - 1 - failed > RESOLUTION * size and not effort.stopped:
            answer = prober.at((failed + size) // 2)
            if answer.solved:
                best, size = answer, answer.peak or 0
            else:
                failed = answer.budget or 0
        if best is None:
            return None
        if best.asked is not None and best.asked != size and not prober.at(size).solved:
            # The planner wants more than its plan needs.
            return LeastBudget(best.asked, None, True, memory, orders=best.result.orders)
    except OptionError:
        return None
    devices = [at_peak(best.result, index) for index in budgeted_memories(problem.instance, problem.machine, memory)]
    return max(devices, key=lambda one: one.size)


def _planned(way: Way, result: Result) -> Planned:
    solved = result.instance if result.instance is not None and is_pipeline(result.instance) else way.instance
    return Planned(result, solved, way.degrees)


def _rank(planned: Planned, objective: str) -> tuple[bool, float, bool]:
    figure = planned.time_per_sample if objective == "sample" else planned.result.makespan
    return figure is None, figure or 0.0, planned.result.status is Status.INFEASIBLE


def pipeline_of(
    instance: Instance, *, devices: int | None, micro_batches: int | None, link: str | float | None
) -> PipelineInstance:
    """Return an instance as a pipeline on a number of devices.

    Raises
    ------
    OptionError
        For kinds other than pipelines and chains with parameters, or if data are missing.
    """
    if isinstance(link, str) and link.strip().isdecimal():
        link = int(link)
    if isinstance(instance, ChainInstance):
        return _loaded(document_of_chain(instance, devices, micro_batches, link))
    if not is_pipeline(instance):
        raise OptionError(
            f"{article(instance.kind)} has no layers to put on devices; a pipeline has, or a chain with parameters",
            argument="instance",
        )
    document = instance_document(instance)
    if devices is not None:
        document["cluster"] = document["cluster"] | {"devices": [_devices(instance.cluster.devices, devices)]}
    if link is not None:
        document["cluster"] = document["cluster"] | {"levels": [{"bandwidth": link}]}
    if micro_batches is not None:
        document["micro_batches"] = micro_batches
    return _loaded(document)


def check_plannable(instance: Instance) -> None:
    """Refuse a chain that no devices, micro-batches and link make a pipeline.

    Raises
    ------
    OptionError
    """
    if isinstance(instance, ChainInstance):
        document_of_chain(instance, 1, 1, 1)


def _devices(listed: tuple[DeviceModel, ...], count: int) -> dict[str, Any]:
    """Return the cluster entry with a number of devices of its single type."""
    if count < 1:
        raise OptionError(f"at least one, not {count}", argument="devices")
    kinds = list(dict.fromkeys((device.type_name, device.memory) for device in listed))
    if len(kinds) > 1:
        named = ", ".join(device.type_name for device in listed)
        raise OptionError(
            f"the cluster has devices of several types or memories ({named}): give the number of each in the instance",
            argument="devices",
        )
    entry: dict[str, Any] = {"name": listed[0].name, "type": listed[0].type_name, "count": count}
    if len(listed) == 1 and listed[0].count == 1 and count == 1:
        entry.pop("count")
    return entry | ({} if listed[0].memory is None else {"memory": listed[0].memory})


def _loaded(document: dict[str, Any]) -> PipelineInstance:
    loaded = load(document)
    if not is_pipeline(loaded):
        raise InstanceError("expected a pipeline", "$.kind")
    return loaded
