"""`auto-perf-maxing`: the budget policy of the same name in torchtitan (2026), layer by layer.

This re-creates the rules that its authors published with the code. A linear program gives each layer the shares of its
saved bytes that it keeps, recomputes and offloads (`share_program`). Within a layer, nodes are chosen by the time per
byte of their own task (`layer_choices`).

An offloaded value leaves when it has been produced. The run after the next layer waits until it has gone. It returns
from the first task of the next layer's backward on. Recomputed values are recomputed once, just before their first
reader. Forward values that the backward does not read, and all those before the first layer, are recomputed on demand.
Head and loss keep their values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from remat.plugin import Context, Options, Problem, Proposal, Termination
from remat_algorithms.dag.layering import OUTSIDE, layers_of
from remat_algorithms.dag.literature.retention_phases import training_of
from remat_algorithms.dag.recompute import MOST_TASKS, runs_with_remaking
from remat_algorithms.offload.perf_maxing.layer_choices import INNER, REMAKE, SEND, Room
from remat_algorithms.offload.perf_maxing.layer_storages import Storages
from remat_algorithms.offload.perf_maxing.share_program import Limits, frugal, shares_of
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits
from remat_algorithms.offload.swaps.routes import Route, device_of, routes
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap

NAME = "auto-perf-maxing"

MODEL_BUDGETS = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.0)
"""Shares of the budget that the programs are given, until the schedule fits; 0 recomputes everything possible."""

HOW = {"auto": ("names", "narrow"), "names": ("names",), "narrow": ("narrow",)}
"""Methods to find layers, in the order in which they are tried."""

LARGE = 2**40
"""Bytes of the transfer that measures the bandwidth of a route."""


class PerfMaxingOptions(Options):
    """Options of `auto-perf-maxing`."""

    inner: Literal["greedy", "program", "knapsack"] = Field(
        default="greedy",
        description="how to select nodes within a layer: by rank (greedy), by an integer program, or by a knapsack on "
        "a grid of MiB",
    )
    split: Literal["vertex", "even"] = Field(
        default="vertex",
        description="which optimal solution of the linear program to use: the solver's vertex, or the one with the "
        "smallest maximum recomputed share (even)",
    )
    layers: Literal["auto", "names", "narrow"] = Field(
        default="auto",
        description="how to find layers: by the numbers in names of modules or tasks, or between narrow points; auto: "
        "by names, and between narrow points if no such schedule fits",
    )
    count: int = Field(
        default=0,
        ge=0,
        description="number of layers between narrow points; 0: the square root of the number of forward tasks",
    )


def solve(problem: Problem, options: PerfMaxingOptions, context: Context) -> Proposal:
    """Keep, recompute and offload by layers' shares.

    Takes instances of kind `dag`; uses the first processor, its memory, and the nearest memory with links both ways, if
    one exists. Gives the schedule that runs each task once if that fits. If the policy's schedule does not fit, the
    policy runs again with shares of the budget (`MODEL_BUDGETS`). O(programs + runs log runs).

    Raises
    ------
    OptionError
        If there are too many tasks.
    """
    ways = routes(problem.machine)
    choice = Choice(problem, Order.of(problem), ways)
    if choice.fits:
        plan = choice.dispatched([])
        return nothing_fits(choice, NAME) if plan is None else _proposal(plan, "")
    training = training_of(problem, NAME, most=MOST_TASKS)
    found = list(dict.fromkeys(layers_of(training, how, options.count) for how in HOW[options.layers]))
    found = [layering for layering in found if layering.count > 1]
    for layering in found:
        policy = _Policy(problem, options, context, Storages(training, layering), ways)
        for share in MODEL_BUDGETS:
            if context.stopped:
                return Proposal(termination=context.termination)
            plan = policy.plan(share)
            if plan is not None:
                part = "" if share == 1 else f"; the policy was given {share:.0%} of the budget"
                return _proposal(plan, f"{layering.count} layers{part}")
    counts = " or ".join(f"{layering.count} layers" for layering in found)
    why = f"{counts}, and no schedule that fits" if found else "no layers: no names tell them, and no narrow points"
    return Proposal(notes=(f"{NAME}: {why}",))


def _proposal(plan: Plan, note: str) -> Proposal:
    return Proposal(
        steps=plan.outcome.steps,
        makespan=plan.makespan,
        termination=Termination.COMPLETED,
        notes=(note,) if note else (),
    )


@dataclass(frozen=True)
class _Policy:
    """The policy for one problem and its layers."""

    problem: Problem
    options: PerfMaxingOptions
    context: Context
    storages: Storages
    ways: tuple[Route, ...]

    def plan(self, share: float) -> Plan | None:
        """Return the placed schedule for a share of the budget; None if it does not fit."""
        chosen = self._chosen(share)
        lost = self._lost({node for node, what in chosen.items() if what == REMAKE})
        tasks, places = runs_with_remaking(self.storages.training, lost)
        graph, machine = self.problem.graph, self.problem.machine
        choice = Choice(self.problem, Order(graph, machine, tasks), self.ways)
        swaps = list(self._swaps(choice, {node for node, what in chosen.items() if what == SEND}, places))
        return choice.dispatched(swaps)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def _limits(self, share: float) -> Limits:
        problem, storages = self.problem, self.storages
        machine, graph = problem.machine, problem.graph
        device = device_of(machine)
        budget = problem.budget or 0
        fixed = graph.static_bytes(machine, device)
        fixed += sum(
            int(graph.size[place.value])
            for place in graph.inputs
            if (machine.memory_index[place.memory] if place.memory else 0) == device
        )
        room = int(budget * share) - fixed
        if not self.ways:
            return Limits(room, 0, 0, 0)
        route = self.ways[0]
        times = (route.out_time(machine, LARGE), route.back_time(machine, LARGE))
        out, back = (LARGE / float(time) if time else float("inf") for time in times)
        host = machine.memories[route.memory].capacity
        return Limits(
            room,
            out * storages.forward_time,
            back * storages.backward_time,
            float("inf") if host is None else host,
        )

    def _chosen(self, share: float) -> dict[int, str]:
        """Return the decision for each node, by its forward stage; nodes before the layers are recomputed."""
        storages = self.storages
        limits = self._limits(share)
        shares = shares_of(storages, limits, self.context, even=self.options.split == "even") if share else None
        shares = shares or frugal(storages, limits)
        choose, known = INNER[self.options.inner], dict[tuple[object, ...], list[str]]()
        found: dict[int, str] = {}
        for layer, nodes in enumerate(storages.nodes):
            keep, remake, send = (part[layer] * storages.sizes[layer] for part in shares.parts)
            room = Room(max(0.0, keep - storages.staying[layer]), remake, send)
            key = (storages.signature(layer), room)
            if key not in known:
                known[key] = choose(nodes, room, lambda: self.context.stopped)
            found |= {node.stage: what for node, what in zip(nodes, known[key], strict=True)}
        outside = (stage for stage in range(storages.behind) if storages.layering.layer[stage] == OUTSIDE)
        return found | dict.fromkeys(outside, REMAKE)

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _lost(self, remade: set[int]) -> Iterator[int]:
        """Yield the values before the head that the forward does not keep: those of some nodes, and unsaved ones."""
        storages = self.storages
        for stage in range(storages.behind):
            for value in storages.training.stages.writes[stage]:
                saved = storages.is_activation(value) and (stage not in remade or storages.stays(value))
                if not saved:
                    yield value

    def _swaps(self, choice: Choice, sent: set[int], places: list[int]) -> Iterator[Swap]:
        """Yield for each offloaded value when it leaves, which run waits for it, and when it returns."""
        if not sent:
            return
        storages, order = self.storages, choice.order
        layers, forward = storages.layering.layer, storages.training.forward
        values = {
            value: node.stage
            for nodes in storages.nodes
            for node in nodes
            if node.stage in sent
            for value in node.values
        }
        stages_of = storages.layering.stages_of(storages.training)
        first_backward: dict[int, int] = {}
        for stage in range(forward, len(layers)):
            first_backward.setdefault(layers[stage], places[stage])
        for index, gap in enumerate(order.gaps):
            stage = values.get(gap.value, -1)
            if stage < 0 or not gap.after < forward <= gap.before or gap.before >= len(order.tasks):
                continue
            following = layers[stage] + 1
            gone = max(stages_of[following][-1], gap.after) + 1
            back = first_backward.get(following, forward)
            if gone < gap.before:
                yield Swap(
                    gap=index,
                    route=self.ways[0],
                    gone_by=gone,
                    return_with=min(max(back, gone), gap.before - 1),
                )
