"""Pipelines with an unlimited stream of micro-batches and changing parameters: 1F1B* patterns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from remat.plugin import (
    Context,
    Number,
    OptionError,
    Options,
    PipelineInstance,
    Problem,
    Proposal,
    Stage,
    format_time,
)
from remat_algorithms.parallel.pipeline.model import PipelineModel
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Row, Star, least_period, star
from remat_algorithms.parallel.pipeline.partition import Work, balanced_cuts
from remat_algorithms.parallel.pipeline.stages import excess_of, model_of, steady_peaks
from remat_algorithms.parallel.pipeline.star_patterns import hop_between, pattern_of

ROUNDS = 5
"""Maximum number of retries with less memory per device, when transient values do not fit along with the kept ones."""


class StarOptions(Options):
    """Options of `1f1b-star`."""

    period: float | None = Field(
        default=None,
        gt=0,
        description="time between consecutive micro-batches, in the instance's time unit; default: the smallest "
        "period that fits",
    )
    moves: int = Field(
        default=500, ge=0, le=10_000_000, description="maximum number of partitions of the layers to try"
    )


@dataclass(frozen=True)
class StagesInRow:
    """Stages in a row, one per device, with their times and bytes.

    Attributes
    ----------
    stages : tuple of Stage
    row : Row
    model : PipelineModel
    parameters : (stages,) tuple of int
        Bytes of an additional version of each stage's parameters.
    """

    stages: tuple[Stage, ...]
    row: Row
    model: PipelineModel
    parameters: tuple[int, ...]

    @staticmethod
    def of(problem: Problem, instance: PipelineInstance, stages: tuple[Stage, ...]) -> StagesInRow:
        """Return the times and bytes of stages.

        Raises
        ------
        OptionError
            If neighbours are not linked in both directions.
        """
        layers, model = instance.each_layer(), model_of(problem, instance, stages)
        backward = tuple(b + w for b, w in zip(model.backward, model.weight, strict=True))
        hops = tuple(
            hop_between(problem.machine, one.device, other.device, layers[one.layers[-1]])
            for one, other in pairwise(stages)
        )
        parameters = tuple(sum(layers[layer].parameter_size for layer in stage.layers) for stage in stages)
        return StagesInRow(stages, Row(model.forward, backward, hops), model, parameters)

    def excess(self, found: Star, instance: PipelineInstance, less: Sequence[int]) -> int:
        """Return the bytes by which a pattern exceeds the devices' capacities minus `less`, according to the model.

        Each micro-batch in flight beyond those between two parameter updates counts as one more.
        """
        model, over = self.model, 0
        for stage, (device, kept) in enumerate(zip(model.place, found.kept, strict=True)):
            over += max(0, kept - most_in_flight(instance, kept))
            capacity = model.capacity[device]
            if capacity is not None:
                versions = (versions_of(instance.weights, kept) - 1) * self.parameters[stage]
                held = model.fixed[device] + versions + kept * model.activation[stage]
                over += max(0, held - (capacity - less[device]))
        return over


def most_in_flight(instance: PipelineInstance, most: int) -> int:
    """Return how many of `most` micro-batches may be in flight: with two versions, those of one update interval."""
    return most if instance.update_every is None else min(most, instance.update_every)


def versions_of(weights: str, kept: int) -> int:
    """Return the number of parameter versions in a stage, given the number of micro-batches in flight."""
    return {"stash": kept, "double": min(2, kept), "single": 1, "predicted": min(2, kept)}[weights]


CHANGING = ("stash", "double", "single", "predicted")
"""Values of `weights` with which parameters change while micro-batches are in flight."""


def stream_of(problem: Problem, name: str, weights: Sequence[str]) -> PipelineInstance:
    """Return the instance if its parameters change in one of the given modes, on independent links.

    Raises
    ------
    OptionError
        If they do not, or if links wait for others or for devices.
    """
    instance, machine = problem.instance, problem.machine
    assert isinstance(instance, PipelineInstance)
    if instance.weights not in weights:
        raise OptionError(
            f"{name} is for weights {' or '.join(weights)}, and those of the instance are {instance.weights}",
            argument="algorithm",
        )
    users: dict[int, set[frozenset[int]]] = {}
    for link, held in zip(machine.links, machine.held_by_link, strict=True):
        for resource in held:
            users.setdefault(resource, set()).add(frozenset((link.source, link.target)))
    devices = range(len(machine.processors))
    if any(resource in devices or len(ends) > 1 for resource, ends in users.items()):
        raise OptionError(f"{name} needs a separate channel between each pair of devices", argument="algorithm")
    return instance


def _staged(problem: Problem, instance: PipelineInstance, cuts: Sequence[int]) -> StagesInRow:
    stages = tuple(Stage(tuple(range(first, end)), device) for device, (first, end) in enumerate(pairwise(cuts)))
    return StagesInRow.of(problem, instance, stages)


def _even_cuts(problem: Problem, instance: PipelineInstance) -> list[int]:
    return balanced_cuts(instance, [[device] for device in range(len(problem.machine.processors))])


def _solve_named(problem: Problem, name: str, weights: str) -> Proposal:
    """Return the pattern of evenly cut layers in which stage s of p keeps at most p - s micro-batches."""
    instance = stream_of(problem, name, (weights,))
    staged = _staged(problem, instance, _even_cuts(problem, instance))
    stages = len(staged.stages)
    most = [most_in_flight(instance, stages - stage) for stage in range(stages)]
    found = least_period(
        staged.row, lambda made: all(kept <= limit for kept, limit in zip(made.kept, most, strict=True))
    )
    assert found is not None, "one micro-batch at a time is always possible"
    return Proposal(pattern=pattern_of(problem, staged.stages, found.period, found))


def solve_pipedream(problem: Problem, options: None, context: Context) -> Proposal:
    """1F1B with a version of the parameters for each micro-batch in flight (Narayanan et al. 2019)."""
    return _solve_named(problem, "pipedream", "stash")


def solve_2bw(problem: Problem, options: None, context: Context) -> Proposal:
    """1F1B with at most two versions of the parameters (Narayanan et al. 2021b)."""
    return _solve_named(problem, "pipedream-2bw", "double")


def solve_pipemare(problem: Problem, options: None, context: Context) -> Proposal:
    """1F1B with one version of the parameters and a correction for their staleness (Yang et al. 2021)."""
    return _solve_named(problem, "pipemare", "single")


def solve_spectrain(problem: Problem, options: None, context: Context) -> Proposal:
    """1F1B with the current parameters and predicted ones (Chen et al. 2018)."""
    return _solve_named(problem, "spectrain", "predicted")


def solve_star(problem: Problem, options: StarOptions, context: Context) -> Proposal:
    """Find cuts and the smallest period for which 1F1B* fits, by moving one boundary at a time.

    Notes
    -----
    For given cuts, the pattern keeps the fewest micro-batches on every stage, of all patterns with its period (see
    `one_f_one_b_star`). The search counts what stages keep, and the result is measured exactly. If transient values
    exceed a device's capacity, the next round has that much less memory there.
    """
    instance = stream_of(problem, "1f1b-star", CHANGING)
    search = _Search(problem, instance, options, context)
    cuts = _even_cuts(problem, instance)
    _check_period(problem, _staged(problem, instance, cuts), options.period)
    for _ in range(ROUNDS):
        best = search.improved(cuts)
        cuts, staged, found = best.cuts, best.staged, best.found
        if found is None:
            break
        pattern = pattern_of(problem, staged.stages, found.period, found)
        peaks = steady_peaks(problem, pattern, [versions_of(instance.weights, kept) for kept in found.kept])
        over = excess_of(problem.machine, peaks)
        if not any(over):
            return Proposal(pattern=pattern, notes=(_about(problem, staged, found),), termination=context.termination)
        search.less = [less + more for less, more in zip(search.less, over, strict=True)]
    return Proposal(termination=context.termination)


def _check_period(problem: Problem, staged: StagesInRow, period: float | None) -> None:
    """Refuse a period that is too short for some device or link of even cuts."""
    row = staged.row
    if period is None or period >= row.least_period:
        return
    names = [processor.name for processor in problem.machine.processors]
    loads = {names[k]: f + b for k, (f, b) in enumerate(zip(row.forward, row.backward, strict=True))}
    loads |= {f"{one} to {other}": hop.load for (one, other), hop in zip(pairwise(names), row.hops, strict=True)}
    busiest = max(loads, key=lambda name: loads[name])
    raise OptionError(
        f"no pattern of these cuts has a period of {period}: {busiest} takes {loads[busiest]} for each micro-batch",
        argument="options",
    )


def _about(problem: Problem, staged: StagesInRow, found: Star) -> str:
    """Describe the gap between the period and the lower bounds."""
    machine = problem.machine
    work = sum(staged.row.forward) + sum(staged.row.backward)
    alike = len({processor.type for processor in machine.processors}) == 1
    units = problem.instance.units.build()
    text = f"with these cuts no period is below {format_time(staged.row.least_period, units)}"
    if alike:
        text += f"; with any cuts, no period is below {format_time(_ratio(work, len(machine.processors)), units)}"
    return text


def _ratio(work: Number, devices: int) -> Number:
    return work // devices if isinstance(work, int) and work % devices == 0 else work / devices


@dataclass(frozen=True)
class _Tried:
    """Cuts, their cost (whether they fit, and the period or the excess), and their pattern."""

    cost: tuple[int, Number]
    cuts: list[int]
    staged: StagesInRow
    found: Star | None


class _Search:
    """Local search for the smallest period, moving single boundaries of the given cuts."""

    def __init__(self, problem: Problem, instance: PipelineInstance, options: StarOptions, context: Context) -> None:
        self.problem, self.instance, self.context = problem, instance, context
        self.period, self.moves = options.period, options.moves
        self.less = [0] * len(problem.machine.processors)
        self.work = {name: Work.of(instance.each_layer(), name) for name in dict.fromkeys(instance.cluster.types)}

    def improved(self, cuts: list[int]) -> _Tried:
        """Return the best cuts; large moves precede small ones."""
        best = self._measured(cuts)
        step = max(1, self.instance.length // (2 * len(cuts)))
        while step and not self.context.stopped:
            better = min(self._moved(best.cuts, step), key=lambda tried: tried.cost, default=best)
            if better.cost < best.cost:
                best = better
            else:
                step //= 2
        return best

    def _moved(self, cuts: list[int], step: int) -> Iterator[_Tried]:
        """Yield the results of moving one boundary by `step` layers, while moves are left."""
        for number in range(1, len(cuts) - 1):
            for way in (-step, step):
                to = cuts[number] + way
                if self.moves and cuts[number - 1] < to < cuts[number + 1]:
                    moved = [*cuts[:number], to, *cuts[number + 1 :]]
                    if self._can_run(moved):
                        self.moves -= 1
                        yield self._measured(moved)

    def _can_run(self, cuts: list[int]) -> bool:
        types = self.instance.cluster.types
        return all(self.work[types[k]].stop[first] >= end for k, (first, end) in enumerate(pairwise(cuts)))

    def _measured(self, cuts: list[int]) -> _Tried:
        staged = _staged(self.problem, self.instance, cuts)
        period = self.period
        if period is None:
            found = least_period(staged.row, lambda made: not staged.excess(made, self.instance, self.less))
            if found is not None:
                return _Tried((0, found.period), cuts, staged, found)
            period = staged.row.time or 1
        elif period >= staged.row.least_period:
            found = star(staged.row, period)
            over = staged.excess(found, self.instance, self.less)
            return _Tried((int(over > 0), over), cuts, staged, None if over else found)
        over = staged.excess(star(staged.row, max(period, staged.row.time)), self.instance, self.less)
        return _Tried((1, over), cuts, staged, None)
