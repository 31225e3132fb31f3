"""Budgets that are too small for a training step in PyTorch: the error, and what it says."""

from __future__ import annotations

from collections.abc import Mapping

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import trained_of
from remat.bridges.torch.optimizers import read_optimizer
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.step_memory import listed
from remat.bridges.torch.target_device import device_of
from remat.bridges.torch.transfers import DEVICE
from remat.messages import LONGEST_MESSAGE
from remat.plugin.proposal import ALL_SCHEDULES, Status
from remat.solving.relative_budget import share_of
from remat.solving.result import Result
from remat.units import format_budget, format_size


class TooSmallError(TorchError):
    """No plan within the budget; `proved` distinguishes proved infeasibility from an unsuccessful search.

    `remedy` states what reduces the memory that recomputation does not; it is a note of the exception.
    """

    def __init__(self, message: str, *, proved: bool, remedy: str = "") -> None:
        super().__init__(message)
        self.proved = proved
        self.remedy = remedy
        if remedy:
            self.add_note(remedy)

    @classmethod
    def with_parts(cls, message: str, parts: str, remedy: str, *, proved: bool) -> TooSmallError:
        """Return the error with the parts of the need: in the message if it stays whole, else before the remedy."""
        if len(message) + len("; ") + len(parts) <= LONGEST_MESSAGE:
            return cls(f"{message}; {parts}", proved=proved, remedy=remedy)
        return cls(message, proved=proved, remedy="; ".join(filter(None, (parts, remedy))))


def check_step(
    captured: Captured, choices: Choices, step: Mapping[str, int], budget: int, split: Mapping[str, int]
) -> None:
    """Refuse a budget that the optimizer's step exceeds: no schedule of forward and backward changes that."""
    needed = sum(step.values()) + split["reserve"]
    if not step or needed <= budget or budget <= split["reserve"]:
        return
    device = device_of(captured)
    optimizer, named = read_optimizer(choices.optimizer), _named(captured, choices)
    reserve = f", {format_size(split['reserve'])} of it in reserve" if split["reserve"] else ""
    what = f"optimizer.step() of {named} takes"
    if choices.optimizer_memory is not None:
        what = f"during updates of {named} at the host, the device holds"
    said = (
        f"{verdict(choices, proved=True, size=budget)}: {what} {format_size(needed, both=True)}{reserve}"
        f"; recomputation does not reduce this; the largest parts are {listed(step, 3)}"
    )
    others = optimizer.others(trained_of(captured.recording, captured.parameter_order), device)
    name, other = min(others, key=lambda entry: entry[1], default=("", step["temporaries"]))
    if other < step["temporaries"]:
        least = needed - step["temporaries"] + other
        fits = "fits" if least <= budget else "does not fit either"
        said += f"; {name} takes {format_budget(least)} and {fits}"
    raise TooSmallError(said, proved=True)


def _named(captured: Captured, choices: Choices) -> str:
    """Return the optimizer with the implementation of its step."""
    return read_optimizer(choices.optimizer).called(device_of(captured)) or str(choices.optimizer)


def too_small(
    captured: Captured,
    answers: tuple[Result, Result],
    split: Mapping[str, int],
    choices: Choices,
    step: Mapping[str, int],
) -> str:
    """Describe a sufficient budget for the whole training step, and what sets it.

    Parameters
    ----------
    captured : Captured
    answers : (Result, Result)
        Without a schedule, and for the smallest budget found.
    split : mapping of str to int
        Static bytes and the reserve, by kind.
    choices : Choices
    step : mapping of str to int
        The bytes in memory during the optimizer's step, by kind.
    """
    result, least = answers
    reserve = split["reserve"]
    limit = result.machine.memories[0].capacity
    size = None if limit is None else limit + reserve
    said = verdict(choices, proved=result.status is Status.INFEASIBLE, size=size)
    bound = result.memory_bounds["memory"]
    if least.columns is None:
        by = "" if bound.task is None else _set_by(captured, result.graph.tasks[bound.task])
        need = format_budget(bound.size + reserve, both=True, enough=False)
        return f"{said}: every schedule needs at least {need}{by}"
    peak, capacity = max(least.peak_memory["memory"], sum(step.values())), limit or 0
    refuted = max(bound.size, sum(step.values()))
    if least.answer is not None and least.answer.scope == ALL_SCHEDULES:
        refuted = max(refuted, least.answer.bound or 0)
    if refuted >= peak:
        said += ": the minimum budget is proved to be"
    else:
        below = f", as for all below {format_size(refuted + reserve, both=True)}" if refuted > capacity + 1 else ""
        said += f"{below}: the smallest budget found is"
    by = _set_by(captured, least.peak_step("memory"))
    if sum(step.values()) == peak:
        by = f", set by optimizer.step() of {_named(captured, choices)}"
    return f"{said} {format_budget(peak + reserve, both=True)}{by}"


def verdict(choices: Choices, *, proved: bool, size: int | None = None) -> str:
    """State how certain it is that the budget is too small, as `remat solve` does; `size` is that of a share."""
    return _verdict(budget_words(choices, size), proved=proved)


def _verdict(within: str, *, proved: bool) -> str:
    return f"infeasible within {within}, proved over all schedules" if proved else f"no schedule found within {within}"


def budget_words(choices: Choices, size: int | None) -> str:
    """Return the budget as given; a share with its bytes."""
    known = size is not None and isinstance(choices.budget, str) and share_of(choices.budget) is not None
    return f"{choices.budget} ({format_size(size or 0)})" if known else f"{choices.budget}"


def too_small_with_host(choices: Choices, result: Result, split: Mapping[str, int]) -> TooSmallError:
    """Return the error of a step that does not fit the device with its host: the need, and a budget that works."""
    capacity, reserve = result.machine.memories[0].capacity, split["reserve"]
    size = None if capacity is None else capacity + reserve
    proved, found = result.status is Status.INFEASIBLE, result.shortfall
    within = f"{budget_words(choices, size)} on the device and {choices.host} at the host"
    said = _verdict(within, proved=proved)
    if found is not None and found.proved and found.memory:
        extra = reserve if found.memory == DEVICE else 0
        need = format_budget(found.need + extra, both=True, enough=False)
        said += f": every schedule needs at least {need} on the {found.memory}"
    if found is not None and DEVICE in found.budget:
        said += f"; a schedule is found with {format_budget(found.budget[DEVICE] + reserve, both=True)}"
    return TooSmallError(f"{said}; {format_size(sum(split.values()))} on the device are fixed", proved=proved)


def _set_by(captured: Captured, task: str) -> str:
    known = captured.tasks.get(task)
    node = None if known is None else captured.joint.nodes.get(known.node)
    return "" if node is None else f", set by {captured.joint.describe(node.name)}"
