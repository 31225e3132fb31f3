"""Parallel degrees of a plan: data-parallel ranks, tensor-parallel devices, and the instance of each combination."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remat.errors import OptionError
from remat.graph.bounds import no_recompute_time
from remat.instance import PipelineInstance
from remat.instance.base import instance_document
from remat.instance.loading import instance_from_document
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, Status
from remat.schedule.orders import spread_in_groups
from remat.solving.budget import Budget
from remat.solving.orders import Followed, follow, with_followers
from remat.solving.problem_setup import make_problem
from remat.solving.result import Result
from remat.units import Number
from remat.verifier import check

ALGORITHM = "pipe-plan"


@dataclass(frozen=True)
class Degrees:
    """Data-parallel ranks, stage of ZeRO, whether gathered layers are kept, and the tensor degree.

    The tensor degree is the number of devices that run each stage together; 0 if it differs between stages.
    """

    data: int = 1
    zero: int = 0
    keep: bool = False
    tensor: int = 1

    def __str__(self) -> str:
        kept = ", kept" if self.keep else ""
        together = "" if self.tensor == 1 else f", tensor {self.tensor or 'by stage'}"
        return f"data {self.data}" + (f", ZeRO {self.zero}{kept}" if self.zero else "") + together


@dataclass(frozen=True)
class Way:
    """A combination of degrees: the instance to plan, and the instance to which the plan is transferred.

    Attributes
    ----------
    degrees : Degrees
    instance : PipelineInstance
    budget : Budget
        Budget of the instance's memories.
    whole : Problem or None
        With all devices and all options to run a layer; None: the planned instance itself.
    algorithm : str
        The planner; `options` are its own options if it differs from the command's algorithm.
    """

    degrees: Degrees
    instance: PipelineInstance
    budget: Budget
    whole: Problem | None = None
    algorithm: str = ALGORITHM
    options: Mapping[str, Any] | None = None


def ways_of(
    base: PipelineInstance,
    data: Sequence[int],
    zero: Sequence[int],
    tensor: Iterable[int] | None,
    budget: Budget,
    options: Mapping[str, Any],
) -> Iterator[Way]:
    """Yield the combinations to plan; without `tensor`, all tensor degrees that fit the devices.

    `options` are those of the planner. If they allow other planners, `piper` plans stages of several degrees.

    Raises
    ------
    OptionError
        For degrees that do not fit the instance.
    """
    chosen = _tensor(base, None if tensor is None else list(dict.fromkeys(tensor)))
    whole = None if chosen == [1] else make_problem(base.of_own_size(), budget=budget)
    alone = base.alone() if base.has_tensor else base
    ranks = _of_ranks(alone, data, zero)
    for degrees, instance in ranks if 1 in chosen else ():
        together = whole if degrees.data == 1 and not base.is_open else None
        yield Way(degrees, instance, budget, together)
    for count in chosen:
        if whole is None or count == 1 or 1 not in data:
            continue
        own = _budgets(whole, count)
        if own is not None:
            yield Way(Degrees(tensor=count), base.of_tensor(count), own, whole)
        elif tensor is not None:
            raise OptionError(f"the devices of groups of {count} differ in memory", argument="tensor")
    if whole is not None and 1 in chosen and 1 in data and _asks_others(options):
        again = {"recompute": str(options.get("recompute", "any")) != "none"}
        mixed = base.of_own_size().of_degrees(chosen)
        yield Way(Degrees(tensor=0), mixed, budget, whole, "piper", again)
    if 1 not in chosen and 1 not in data:
        raise OptionError("ranks that share the batch run each layer alone: leave 1 among them", argument="data")


def _asks_others(options: Mapping[str, Any]) -> bool:
    """Whether the planner's options let it ask other planners and use their stages."""
    return str(options.get("zoo", True)).lower() == "true" and str(options.get("placement", "any")) == "any"


def _budgets(whole: Problem, count: int) -> dict[str, int | str | None] | None:
    """Return the memory of each group's first device, and of the host; None if those of a group differ."""
    capacities = {memory.name: memory.capacity for memory in whole.machine.memories}
    names = [whole.machine.memories[processor.memory].name for processor in whole.machine.processors]
    for first in range(0, len(names), count):
        if len({capacities[name] for name in names[first : first + count]}) > 1:
            return None
    return {name: size for name, size in capacities.items() if name not in names or names.index(name) % count == 0}


def _tensor(base: PipelineInstance, asked: list[int] | None) -> list[int]:
    """Return the tensor degrees to plan: the requested ones, or all that fit."""
    if asked is None:
        return [1, *(count for count in base.tensor_degrees if not _why_not(base, count))]
    for count in asked:
        if count < 1:
            raise OptionError(f"at least one device, not {count}", argument="tensor")
        if count > 1 and (why := _why_not(base, count)):
            raise OptionError(why, argument="tensor")
    if not asked:
        raise OptionError("expected numbers such as 1,2,4", argument="tensor")
    return asked


def _why_not(base: PipelineInstance, count: int) -> str:
    """Return why a group of this size cannot run all layers together; empty if it can."""
    try:
        base.of_tensor(count)
    except ValueError as error:
        return str(error)
    return ""


def _of_ranks(
    base: PipelineInstance, data: Sequence[int], zero: Sequence[int]
) -> Iterator[tuple[Degrees, PipelineInstance]]:
    """Yield the instance for each number of ranks and stage of ZeRO."""
    if base.sharding is not None:
        if list(data) != [1] or list(zero) != [0]:
            raise OptionError("the instance already defines how ranks share the batch (`sharding`)", argument="data")
        yield Degrees(base.sharding.data, base.sharding.zero, base.sharding.keep), base
        return
    for stage in zero:
        if not 0 <= stage <= 3:
            raise OptionError(f"stages of ZeRO are 0 to 3, not {stage}", argument="zero")
    if max(zero, default=0) and max(data, default=1) < 2:
        raise OptionError("ZeRO partitions states over ranks, but there is one rank: use at least 2", argument="zero")
    count = len(base.cluster.names)
    able = [
        ranks for ranks in dict.fromkeys(data) if ranks > 0 and not count % ranks and not base.micro_batches % ranks
    ]
    for ranks in able or data:
        if ranks < 1 or count % ranks:
            raise OptionError(f"{ranks} ranks do not divide the {count} devices", argument="data")
        if base.micro_batches % ranks:
            raise OptionError(f"{ranks} ranks do not divide the {base.micro_batches} micro-batches", argument="data")
        if ranks == 1:
            yield Degrees(), base
            continue
        ways = ((own, keep) for own in dict.fromkeys(zero) for keep in (False, True) if own > 1 or not keep)
        for stage, keep in ways:
            shared = instance_document(base) | {
                "micro_batches": base.micro_batches // ranks,
                "sharding": {"data": ranks, "zero": stage} | ({"keep": True} if keep else {}),
            }
            instance = instance_from_document(shared)
            assert isinstance(instance, PipelineInstance)
            yield Degrees(ranks, stage, keep), instance


def put_back(way: Way, result: Result) -> Result:
    """Return a result transferred to the instance with all devices, verified again, with bounds and status for it.

    If no schedule was found, other options to run the layers may have one.
    """
    whole = way.whole
    if whole is None:
        return result
    assert isinstance(whole.instance, PipelineInstance)
    if result.orders is None and result.report is not None and way.degrees.tensor == 1:
        # Steps with copies at a host: the steps of a device that runs its layers alone carry over unchanged.
        lower = min(whole.least_makespan, result.report.makespan)
        return replace(
            result,
            instance=whole.instance,
            machine=whole.machine,
            memory_bounds={},
            total_bound=None,
            **_bounded(lower, result.report.makespan),
        )
    if result.orders is None:
        return replace(
            result,
            instance=whole.instance,
            machine=whole.machine,
            status=Status.UNKNOWN,
            scope=None,
            columns=None,
            report=None,
            bounds=(),
            lower_bound=0,
            least_budget=None,
            memory_bounds={},
            total_bound=None,
        )
    orders = spread_in_groups(result.orders, way.degrees.tensor) if way.degrees.tensor else result.orders
    followed = follow(whole.instance, whole.graph, whole.machine, orders)
    assert isinstance(followed, Followed), f"groups run what one device runs: {followed}"
    reference = no_recompute_time(followed.graph)
    report = check(followed.graph, whole.machine, followed.steps, reference_time=reference)
    assert report.ok, f"groups hold what one device holds: {report.violations[0]}"
    assert report.makespan == result.makespan, f"{report.makespan} in groups, {result.makespan} of one device for each"
    return replace(
        result,
        instance=whole.instance,
        graph=followed.graph,
        machine=whole.machine,
        columns=followed.steps,
        report=with_followers(report, whole.machine, orders),
        orders=orders,
        memory_bounds={},
        history=(),
        **_bounded(min(whole.least_makespan, report.makespan), report.makespan),
    )


def _bounded(lower: Number, makespan: Number) -> dict[str, Any]:
    """Return the bound on a plan that holds for all options to run the layers."""
    proved = lower == makespan
    return {
        "status": Status.OPTIMAL if proved else Status.FEASIBLE,
        "optimal_within": ALL_SCHEDULES if proved else None,
        "lower_bound": lower,
        "bounds": (Bound(lower, ALL_SCHEDULES, "the least work of a layer"),),
    }
