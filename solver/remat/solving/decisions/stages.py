"""Decisions per stage of a chain or join, or per stage and micro-batch of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from remat.schedule.orders import Phase
from remat.schedule.steps import StepKind
from remat.solving.decisions.rows import Rows
from remat.solving.decisions.training import trains, updaters
from remat.solving.decisions.values import KEPT, OFFLOADED, RECOMPUTED, Decision, Run
from remat.units import Number

if TYPE_CHECKING:
    from remat.solving.result import Result

_TASK = re.compile(r"(Fe?|B|W)([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?")


@dataclass(frozen=True, slots=True)
class _TaskRun:
    """A run of a forward or a backward."""

    task: int
    start: Number
    end: Number


Runs = dict[int, list[_TaskRun]]
"""The forward runs of layers."""

Stage = tuple[int | None, int]
"""The chain of a join (None without), and the stage or layer, both counted from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDecision:
    """Decision for a stage of a chain or of a join's chain, or for a stage and micro-batch of a pipeline.

    All numbers are indices, counted from 0: `stage` 2 of a chain is the stage of `forward_time[2]`, whose tasks are
    called F3, Fe3 and B3. Times are in the instance's unit.

    Attributes
    ----------
    chain : int or None
        The chain of a join; None for all other kinds.
    stage : int
        A stage of the chain, a step of the adjoint, or a stage of the plan. In a plan that lists steps and no stages,
        layers that follow each other on one device are a stage.
    micro_batch : int or None
        Number of the micro-batch of a pipeline; None for all other kinds.
    name : str
        The names of the stage's layers; empty without names.
    layers : tuple of int
        Layers of the pipeline that are the stage; of a chain, the stage itself.
    device : str
        The processor that runs the stage; the first one of several.
    decision : str
        ``recomputed``: a layer runs forwards more than once. ``offloaded``: an output of a forward is stored in
        another memory. ``kept``: neither.
    recomputed : tuple of int
        The layers whose forwards are recomputed.
    variant : int or None
        For a chain with variants, the one that is saved last; None without variants.
    runs : int
        Maximum number of forward runs of a layer; 0 for the last step of a time loop, which runs only backwards.
    recompute_time : int or float
        Time of all forward runs except the last one of each layer.
    offloaded : tuple of str
        Names of the offloaded values of its forwards.
    transfer_time : int or float
        Time of their copies.
    start, end : int or float
        Start of the first run of a forward, and end of the last run of a forward or backward.
    forward, backward : (start, end), or None
        Start of the first run and end of the last run of its forwards, the first run of each layer; and of its
        backwards, weight gradients included. None if there is no such run.
    recomputations : tuple of Run
        The runs of each layer's forward beyond the first one, with start and end.
    parameters, states : tuple of str
        For a chain whose parameters are values: the memories that hold the stage's parameters, and its optimizer
        states, before their update, in the order of time; more than one if these are offloaded or fetched. Empty for
        other kinds. They do not affect `decision`, which describes the forwards and their outputs.
    updated_on : str
        The processor that updates the stage's parameters; empty without an update.
    """

    chain: int | None
    stage: int
    micro_batch: int | None
    name: str
    layers: tuple[int, ...]
    device: str
    decision: str
    recomputed: tuple[int, ...]
    variant: int | None
    runs: int
    recompute_time: Number
    offloaded: tuple[str, ...]
    transfer_time: Number
    start: Number = 0
    end: Number = 0
    recomputations: tuple[Run, ...] = ()
    forward: tuple[Number, Number] | None = None
    backward: tuple[Number, Number] | None = None
    parameters: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    updated_on: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as a JSON object."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        found["recomputations"] = [asdict(run) for run in self.recomputations]
        return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


class StageDecisions(Rows[StageDecision]):
    """The decisions for all stages, in order.

    Those of a join are listed chain by chain, those of a pipeline stage by stage and then by micro-batch.
    """

    _possible = (KEPT, RECOMPUTED, OFFLOADED)

    def of(self, decision: str) -> list[StageDecision]:
        """Return the rows with a decision, such as ``recomputed``.

        Raises
        ------
        remat.OptionError
            If it is no decision for stages.
        """
        return self._with(decision)


def stage_decisions_of(result: Result) -> StageDecisions:
    """Return the decisions of a result for its stages; empty without a schedule or stages."""
    kind = None if result.instance is None else result.instance.kind
    if result.report is None or kind not in ("chain", "adjoint", "join", "pipeline"):
        return StageDecisions(())
    counted = _Forwards(result)
    rows = counted.of_pipeline() if kind == "pipeline" else counted.of_chain()
    return StageDecisions(tuple(rows))


class _Forwards:
    """The forwards of a schedule: number, times and device of their runs; and the times of their backwards."""

    def __init__(self, result: Result) -> None:
        steps, report = result.columns, result.report
        assert steps is not None
        assert report is not None
        self.result, self.graph = result, result.graph
        self.rows: list[Decision] = list(result.decisions)
        self.last: dict[Stage, int] = {}
        self.on: dict[tuple[int, int], int] = {}
        runs = np.flatnonzero(steps.kind == StepKind.RUN)
        self.runs: dict[tuple[Stage, int], list[_TaskRun]] = {}
        """Indexed by layer and micro-batch or, for a chain, variant (counted from 1; 0 without variants)."""
        self.backward: dict[tuple[Stage, int], list[_TaskRun]] = {}
        assert result.instance is not None
        joined = result.instance.kind == "join"
        looped = result.instance.kind == "adjoint"  # the last step's forward is part of its backward, the loss
        for step, task in zip(runs.tolist(), steps.item[runs].tolist(), strict=True):
            name = str(self.graph.tasks[int(task)])
            named = _TASK.fullmatch(f"B{result.instance.length}" if looped and name == "loss" else name)
            if named is not None:
                run = _TaskRun(task, report.start[step].item(), report.end[step].item())
                first, second, third = (int(number or 0) for number in named.groups()[1:])
                stage, part = ((first - 1, second - 1), third) if joined else ((None, first - 1), second)
                if not named[1].startswith("F"):
                    self.backward.setdefault((stage, part), []).append(run)
                    continue
                self.runs.setdefault((stage, part), []).append(run)
                row = () if steps.on is None else steps.on[step].tolist()
                self.on[stage[1], part] = row[0] if row else 0
                self.last[stage] = part

    def of_chain(self) -> Iterator[StageDecision]:
        """Yield a row for each stage; its variants are alternatives."""
        device = self.result.machine.processors[0].name
        listed: dict[Stage, list[_TaskRun]] = {}
        backward: dict[Stage, list[_TaskRun]] = {}
        for found, of in ((listed, self.runs), (backward, self.backward)):
            for (place, _), runs in of.items():
                found.setdefault(place, []).extend(runs)
        updated = updaters(self.result)
        for place in sorted({*listed, *backward}, key=lambda place: (place[0] or 0, place[1])):
            chain, stage = place
            variant = self.last.get(place)
            own = {stage: listed.get(place, [])}
            row = self._row(
                stage,
                None,
                device,
                own,
                backward=backward.get(place, []),
                chain=chain,
                variant=variant - 1 if variant else None,
            )
            if trains(self.result):
                row = replace(
                    row,
                    parameters=self._memories(f"w{stage + 1}"),
                    states=self._memories(f"o{stage + 1}"),
                    updated_on=updated.get(stage + 1, ""),
                )
            yield row

    def _memories(self, value: str) -> tuple[str, ...]:
        """Return the memories that hold a value, in the order of time; empty if there is no such value."""
        index = self.graph.values.find(value)
        if index is None:
            return ()
        stays = (*self.rows[index].held, *self.rows[index].offloaded)
        return tuple(dict.fromkeys(stay.memory for stay in sorted(stays, key=lambda stay: (stay.start, stay.end))))

    def of_pipeline(self) -> Iterator[StageDecision]:
        """Yield a row for each stage and micro-batch that is run."""
        orders = self.result.orders
        if orders is None:
            yield from self._of_steps()
            return
        _, phase, stage, batch = orders.columns
        forwards = phase == int(Phase.F)
        for number, micro_batch in sorted({*zip(stage[forwards].tolist(), batch[forwards].tolist(), strict=True)}):
            own = orders.stages[number]
            task_number = micro_batch * own.of + own.part
            yield self._of_layers(number, micro_batch, own.device, own.layers, task_number)

    def _of_steps(self) -> Iterator[StageDecision]:
        """Yield the rows of a plan without stages: layers that follow each other on one device count as a stage."""
        layers, batches = (sorted({place[end] for place in self.on}) for end in (0, 1))
        stages: list[list[int]] = []
        for layer in layers:
            if stages and all(self.on[layer, batch] == self.on[layer - 1, batch] for batch in batches):
                stages[-1].append(layer)
            else:
                stages.append([layer])
        for number, own in enumerate(stages):
            for batch in batches:
                yield self._of_layers(number, batch, self.on[own[0], batch], own, batch)

    def _of_layers(
        self, stage: int, micro_batch: int, device: int, layers: Sequence[int], task_number: int
    ) -> StageDecision:
        """Return the row of a stage of a pipeline; `task_number` is that of the micro-batch in the names of tasks."""
        places: list[tuple[Stage, int]] = [((None, layer), task_number) for layer in layers]
        runs = {layer: self.runs.get(place, []) for layer, place in zip(layers, places, strict=True)}
        backward = [run for place in places for run in self.backward.get(place, [])]
        return self._row(stage, micro_batch, self.result.machine.processors[device].name, runs, backward=backward)

    def _row(
        self,
        stage: int,
        micro_batch: int | None,
        device: str,
        runs: Runs,
        *,
        backward: Sequence[_TaskRun],
        chain: int | None = None,
        variant: int | None = None,
    ) -> StageDecision:
        recomputed = tuple(layer for layer, listed in runs.items() if len(listed) > 1)
        values = self._values(run.task for listed in runs.values() for run in listed)
        offloaded = tuple(value.value for value in values if value.offloaded)
        firsts = [listed[0] for listed in runs.values() if listed] or backward[:1]
        names = dict.fromkeys(self.graph.module(run.task) for run in firsts)
        every = [*(run for listed in runs.values() for run in listed), *backward]
        later = sorted((run for listed in runs.values() for run in listed[1:]), key=lambda run: (run.start, run.end))
        return StageDecision(
            chain=chain,
            stage=stage,
            micro_batch=micro_batch,
            name=", ".join(name for name in names if name),
            layers=tuple(runs),
            device=device,
            decision=RECOMPUTED if recomputed else OFFLOADED if offloaded else KEPT,
            recomputed=recomputed,
            variant=variant,
            runs=max(map(len, runs.values()), default=0),
            recompute_time=sum(run.end - run.start for listed in runs.values() for run in listed[:-1]),
            offloaded=offloaded,
            transfer_time=sum(value.transfer_time for value in values),
            start=min(run.start for run in every),
            end=max(run.end for run in every),
            recomputations=tuple(Run(self.graph.tasks[run.task], run.start, run.end) for run in later),
            forward=_span([min(listed, key=lambda run: run.start) for listed in runs.values() if listed]),
            backward=_span(backward),
        )

    def _values(self, tasks: Iterable[int]) -> list[Decision]:
        """Return the decisions for the values that tasks write."""
        written = dict.fromkeys(value for task in tasks for value in self.graph.writes[task].tolist())
        return [self.rows[value] for value in written]


def _span(runs: Sequence[_TaskRun]) -> tuple[Number, Number] | None:
    return (min(run.start for run in runs), max(run.end for run in runs)) if runs else None
