"""`vdnn-dyn`: choose which stages offload their inputs, and which run fast kernels or kernels with small workspaces.

Rhu et al. 2016, "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design", section
III-C. A convolution has fast kernels with a large workspace, and others with little or none: here these are the
`variants` of a stage. The passes of the paper, in its order:

1. nothing leaves, the fastest kernels;
2. the inputs of convolutions leave (`vdnn-conv`), the fastest kernels; then the inputs of all stages (`vdnn-all`);
3. the same three, but if a run does not fit, its stage takes the next kernel that needs less;
4. the inputs of all stages leave, and every kernel is the smallest.

The paper takes the first pass that fits; here the fastest one is taken. The need of a kernel during a run is its
workspace plus the values that it saves. If a run does not fit with the smallest kernel of its stage, the stage whose
saved bytes shrink most there takes its next kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from remat.plugin import Context, Problem, Proposal, format_size
from remat_algorithms.offload.rules.vdnn import VdnnOptions, stage_swaps
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan, best_of
from remat_algorithms.offload.swaps.offload_proposals import proposal_of
from remat_algorithms.offload.swaps.program import planned_profile
from remat_algorithms.offload.swaps.routes import Route, device_of, required_routes
from remat_algorithms.offload.swaps.stages import stages_named
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap


class VdnnDynOptions(VdnnOptions):
    """Options of `vdnn-dyn`."""

    stages: str | None = Field(
        "conv",
        description="convolutions, as words separated by commas: stages whose name or operators contain one of the "
        "words",
    )


def solve(problem: Problem, options: VdnnDynOptions, context: Context) -> Proposal:
    """Offload the inputs of no stage, of convolutions or of all, with the kernels that fit.

    Takes instances of kind `chain`, on a machine with links out of the processor's memory and back. Gives the fastest
    of the passes that fit.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back.

    Notes
    -----
    O(kernels L log L): each change of a pass replaces a kernel by a smaller one.
    """
    ways = required_routes(problem, "vdnn-dyn")
    kernels = _Kernels(problem, ways, saved=options.saved)
    every = range(problem.chain.length)
    convolutions = every if options.stages is None else stages_named(problem, options.stages, mixed=True)
    plan = best_of(kernels.passes(convolutions))
    if plan is None:
        need = format_size(kernels.least_need(convolutions), problem.units)
        note = f"vdnn-dyn found no schedule within the budget; the pass with the smallest memory needs {need}"
        return Proposal(notes=(note,), termination=context.termination)
    return proposal_of(plan, context, source="vdnn-dyn")


class _Kernels:
    """The kernels of each stage, the fastest first, and the resulting schedules."""

    def __init__(self, problem: Problem, ways: tuple[Route, ...], *, saved: bool) -> None:
        self.problem, self.ways, self.saved = problem, ways, saved
        chain = problem.chain
        listed = chain.alternatives
        self.length, self.saves = chain.length, chain.saves
        self.first = listed.start.tolist()
        self.base = Order.of(problem).tasks
        time = (listed.saving_forward_time + listed.backward_time).tolist()
        self.saved_size = listed.saved_size.tolist()
        forward = (listed.saved_size + listed.saving_workspace).tolist()
        backward = (listed.saved_size * listed.reads_saved + listed.backward_workspace).tolist()
        need = [max(pair) for pair in zip(forward, backward, strict=True)]
        # For each stage, its Pareto-optimal kernels by time and need: each one needs less than the one before.
        self.ladder: list[list[int]] = []
        for stage in range(self.length):
            kept: list[int] = []
            for kernel in sorted(range(self.first[stage], self.first[stage + 1]), key=lambda k: (time[k], need[k], k)):
                if not kept or need[kernel] < need[kept[-1]]:
                    kept.append(kernel)
            self.ladder.append(kept)

    def passes(self, convolutions: Sequence[int]) -> Iterator[Plan | None]:
        """Yield the plan of each pass; None if it does not fit."""
        quickest = [0] * self.length
        everything = range(self.length)
        for stages in ([], convolutions, everything):
            yield self._plan(stages, quickest)
        if any(len(rungs) > 1 for rungs in self.ladder):
            for stages in ([], convolutions, everything):
                yield self._lowered(stages)
            yield self._plan(everything, [len(rungs) - 1 for rungs in self.ladder])

    def least_need(self, convolutions: Sequence[int]) -> int:
        """Return the bytes on the device of the pass that needs fewest, with the fastest or the smallest kernels."""
        device, found = device_of(self.problem.machine), []
        for rungs in ([0] * self.length, [len(rungs) - 1 for rungs in self.ladder]):
            order = self._order(rungs)
            for stages in ([], convolutions, range(self.length)):
                program = order.program(self._swaps(order, stages))
                found.append(int(planned_profile(order.graph, order.machine, program)[device].max()))
        return min(found)

    def _order(self, rungs: Sequence[int]) -> Order:
        """Return the runs with one kernel for each stage: L forwards, the loss, L backwards."""
        tasks, length = list(self.base), self.length
        loss = length + self.first[-1] * self.saves
        for stage, rung in enumerate(rungs):
            if self.first[stage + 1] - self.first[stage] > 1:
                kernel = self.ladder[stage][rung]
                if self.saves:
                    tasks[stage] = length + kernel
                tasks[2 * length - stage] = loss + 1 + kernel
        return Order(self.problem.graph, self.problem.machine, tasks)

    def _swaps(self, order: Order, stages: Sequence[int]) -> list[Swap]:
        return stage_swaps(order, stages, self.ways[0], saved=self.saved, barriers=True)

    def _plan(self, stages: Sequence[int], rungs: Sequence[int]) -> Plan | None:
        order = self._order(rungs)
        choice = Choice(self.problem, order, self.ways)
        swaps = self._swaps(order, stages)
        routed = choice.routed([swap.gap for swap in swaps])
        if routed is None:
            return None
        return choice.dispatched([replace(swap, route=way.route) for swap, way in zip(swaps, routed, strict=True)])

    def _lowered(self, stages: Sequence[int]) -> Plan | None:
        """Take smaller kernels until every run fits."""
        rungs = [0] * self.length
        device = device_of(self.problem.machine)
        budget = self.problem.machine.memories[device].capacity
        while True:
            order = self._order(rungs)
            profile = planned_profile(order.graph, order.machine, order.program(self._swaps(order, stages)))[device]
            over = [] if budget is None else np.flatnonzero(profile > budget).tolist()
            if not over:
                return self._plan(stages, rungs)
            stage = self._next(rungs, over[0])
            if stage is None:
                return None
            rungs[stage] += 1

    def _next(self, rungs: Sequence[int], run: int) -> int | None:
        """Return the stage that takes its next kernel so that a run may fit; None if none helps."""
        own = run if run < self.length else 2 * self.length - run
        if own < self.length and rungs[own] + 1 < len(self.ladder[own]):
            return own
        saved = {
            stage: self.saved_size[self.ladder[stage][rung]] - self.saved_size[self.ladder[stage][rung + 1]]
            for stage, rung in enumerate(rungs)
            if rung + 1 < len(self.ladder[stage]) and stage <= own
        }
        best = max(saved, key=lambda stage: (saved[stage], -stage), default=None)
        return best if best is not None and saved[best] > 0 else None
