"""`granular-offload`: the fewest stages that the budget requires stay at the host, the others on the device.

After the granular offloading of Lin et al. 2021. They keep whole layers on the device, and offload the parameters and
optimizer states of the others to the host. This fills the device's memory and minimises the traffic on the link.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from remat.plugin import Context, OptionError, Options, Problem, Proposal
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.weights.parameters import Choice, Setting
from remat_algorithms.offload.weights.training_program import Manner, Training
from remat_algorithms.offload.weights.zero_family import answer, conclude, setting_of


class GranularOptions(Options):
    """Options of `granular-offload`."""

    recompute: bool = Field(
        False, description="keep only the input of each stage, and recompute its forward before its backward"
    )


def solve(problem: Problem, options: GranularOptions, context: Context) -> Proposal:
    """Choose the fewest stages, in each of three orders, that must stay at the host; take the fastest schedule.

    Takes a chain whose `parameter_memory` and `optimizer_memory` are left open (`any`), and a processor in another
    memory than the device. Parameters of stages at the host come one stage ahead, for forward and for backward, and are
    updated there. The orders are: first stages first (their parameters wait the longest for their backward), last ones
    first, largest first. More stages at the host need less device memory, apart from transfers in flight. Bisection
    therefore finds the fewest. O(L log^2 L).

    Raises
    ------
    remat.OptionError
        If homes are fixed, or no such processor exists.
    """
    setting = setting_of(problem, "granular-offload")
    if not (setting.open_parameters and setting.open_states):
        raise OptionError(
            "granular-offload chooses where each stage lives; parameter_memory and optimizer_memory must be 'any'",
            argument="algorithm",
        )
    if setting.helper is None:
        raise OptionError(
            "granular-offload updates outside the device, too; give a processor there", argument="machine"
        )
    search = _Search(setting, again=options.recompute)
    for order in search.orders():
        search.fewest(order)
        if context.stopped:
            break
    if search.best is None:
        return conclude(setting, search.training(set(setting.updated)), "the granular-offload schedules")
    _, training, outcome = search.best
    return answer(setting, training, outcome, "the granular-offload schedules")


class _Search:
    def __init__(self, setting: Setting, *, again: bool) -> None:
        self.setting, self.again = setting, again
        self.best: tuple[float, Training, Dispatched] | None = None

    def orders(self) -> Iterator[list[int]]:
        """Yield orders in which stages may leave."""
        stages, size = self.setting.stages, self.setting.graph.size

        def held(index: int) -> int:
            kept = (stages[index].parameters, stages[index].optimizer)
            return sum(int(size[value]) for value in kept if value is not None)

        yield list(self.setting.updated)
        yield list(reversed(self.setting.updated))
        yield sorted(self.setting.updated, key=lambda index: (-held(index), index))

    def fewest(self, order: list[int]) -> None:
        """Offload the fewest first stages of an order; keep the schedule if it is the fastest."""
        low, high = 0, len(order)
        if self._fits(set()) or not self._fits(set(order)):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fits(set(order[:middle])) else (middle, high)

    def training(self, away: set[int]) -> Training:
        """Return the program in which these stages live outside the device."""
        setting = self.setting
        helper = setting.helper
        assert helper is not None
        host = setting.machine.processors[helper].memory
        here = Choice(again=self.again, home=setting.device, state_home=setting.device)
        there = Choice(True, helper, self.again, home=host, state_home=host)
        choices = [there if index in away else here for index in range(len(setting.stages))]
        return Training(setting, choices, Manner(one_ahead=True))

    def _fits(self, away: set[int]) -> bool:
        training = self.training(away)
        outcome = dispatch(training.graph, self.setting.machine, training.program)
        if not isinstance(outcome, Dispatched):
            return False
        if self.best is None or outcome.makespan < self.best[0]:
            self.best = outcome.makespan, training, outcome
        return True
