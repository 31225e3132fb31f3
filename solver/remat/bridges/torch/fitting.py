"""`remat fit torch`: whether a training step fits, with which plan, and how large its batch may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from remat.bridges.torch.capture import Captured
from remat.bridges.torch.costs import Costs
from remat.bridges.torch.factory import capture_factory
from remat.bridges.torch.operator_timing import costs_of
from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.planning import Plan, TooSmallError, make_plan
from remat.bridges.torch.step_memory import MOVING, gradient_values, label
from remat.bridges.torch.target_device import target_of
from remat.bridges.torch.transfers import HOST
from remat.messages import elided
from remat.solving.decisions.words import module_words
from remat.solving.problem_setup import read_share
from remat.units import Units, format_budget, format_size, format_time

SHOWN = 12
"""Number of modules that are listed individually."""
WIDEST = 46
"""Columns of a module's name; in a list with a longer one, names are those inside the module that contains all."""


@dataclass(frozen=True)
class ModuleRuns:
    """Runs of the tasks of one module in a plan.

    Attributes
    ----------
    module : str
        Empty for tasks of no module.
    tasks, again : int
        Tasks that run, and their recomputations.
    time_again : int
        Microseconds of these recomputations.
    """

    module: str
    tasks: int
    again: int
    time_again: int


@dataclass(frozen=True)
class Fitted:
    """A step that fits.

    Attributes
    ----------
    captured : Captured
    plan : Plan
    batch : int or None
        The largest batch that fits, if requested.
    modules : tuple of ModuleRuns
        In the order in which they first run.
    choices : Choices
    most : float or None
        Largest allowed share of recomputation time, if requested.
    """

    captured: Captured
    plan: Plan
    batch: int | None
    modules: tuple[ModuleRuns, ...]
    choices: Choices
    most: float | None = None

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the labels and texts of the printed answer."""
        plan, units = self.plan, Units("us", "B")
        if self.batch is not None:
            limited = "" if self.most is None else f", recomputation taking at most {100 * self.most:g} % more"
            yield "Batch", f"{self.batch} is the largest that fits{limited}"
        again = sorted((row for row in self.modules if row.again), key=lambda row: -row.time_again)
        above, names = short_names([row.module for row in again])
        named = [(name, row.again, row.time_again) for name, row in zip(names, again, strict=True)]
        if plan.step_time:
            yield "Step time", plan.step_time
        yield "Decisions", self._decisions(named, units)
        where = " in optimizer.step()" if plan.step_peak > plan.peak else " in forward and backward"
        reserve = plan.split.get("reserve", 0)
        beside = f", and {format_size(reserve)} in reserve" if reserve else ""
        yield "Peak", f"{format_budget(plan.whole_peak)}{where if plan.step else ''}{beside}"
        if plan.step:
            yield "Forward, backward", format_budget(plan.peak)
        moving = {name: f"{name} at the peak" for name in MOVING}
        yield from _rows({moving.get(name, name): size for name, size in plan.split.items() if name != "reserve"})
        if plan.step:
            yield "Optimizer step", f"{format_size(plan.step_peak)}{f', {plan.optimizer}' if plan.optimizer else ''}"
            yield from _rows(plan.step)
        yield "Overhead", plan.overhead_words
        total = f"{sum(row.again for row in again)} of {sum(row.tasks for row in self.modules)} tasks"
        yield "Recomputed", f"{total}{f', in {above}' if above else ''}"
        for name, runs, time in named[:SHOWN]:
            yield f"  {elided(name, WIDEST)}", f"{runs}, {format_time(time, units)}"
        if len(again) > SHOWN:
            yield "", f"and {len(again) - SHOWN} modules more"
        for note in plan.warnings:
            yield "Note", note

    def _decisions(self, named: Sequence[tuple[str, int, int]], units: Units) -> str:
        """Describe what is recomputed and what waits at a host, gradients for their updates among it."""
        joint, gradients = self.captured.joint, gradient_values(self.captured)
        steps = self.plan.schedule.get("steps", ())
        away = {step["copy"] for step in steps if step.get("to") == HOST}
        final = away & gradients if self.plan.whole_step is not None else set[str]()
        texts = [module_words(named, units)] if named or not away else []
        for values, verb, end in (
            (away - final, "offload", ""),
            (final, "send", ", where the optimizer updates parameters"),
        ):
            if values:
                size = format_size(sum(joint.values[value] for value in values))
                what = "value" if not end else "gradient"
                plural = "s" if len(values) > 1 else ""
                texts.append(f"{verb} {len(values)} {what}{plural} ({size}) to the host{end}")
        return "; ".join(texts)

    def code(self, plan_file: str | None) -> tuple[str, str]:
        """Return the two lines that apply a plan."""
        if plan_file is not None:
            return "import remat.torch", f"model = remat.torch.compile(model, plan={plan_file!r})"
        choices = self.choices
        given = {"budget": choices.budget, "optimizer": choices.optimizer, "costs": choices.costs}
        given |= {"reserve": choices.reserve, "accumulate": choices.accumulate or None}
        given |= {name: getattr(choices, name) for name in ("host", "link", "optimizer_memory")}
        said = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
        return "import remat.torch", f"model = remat.torch.compile(model, {said})"


def short_names(modules: Sequence[str]) -> tuple[str, list[str]]:
    """Return the module that contains all of these, and their names inside it; empty if no name is long.

    Modules without a name are left out. The containing module itself is called ``(itself)``.
    """
    if all(len(name) <= WIDEST for name in modules):
        return "", [name or "(no module)" for name in modules]
    paths = {tuple(name.split(".")) for name in modules if name}
    shared = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))]
    above = ".".join(shared if len(paths) > 1 else shared[:-1])
    inside = (name if not above else name.removeprefix(above).lstrip(".") or "(itself)" for name in modules)
    return above, [short if name else "(no module)" for name, short in zip(modules, inside, strict=True)]


def _rows(split: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for name, size in split.items():
        if size:
            yield f"  {label(name)}", format_size(size)


def fit(
    factory: str,
    choices: Choices,
    *,
    max_batch: int | None = None,
    max_overhead: float | str | None = None,
    target: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> Fitted:
    """Plan the step of a factory; with `max_batch`, for the largest batch that fits, up to this number.

    Parameters
    ----------
    factory : str
        ``MODULE:FACTORY``; with `max_batch` it is called with the keyword ``batch``, and captured anew each time.
    choices : Choices
    max_batch : int, optional
    max_overhead : float or str, optional
        Recomputation may take at most this share of the time without any: ``0.1``, or ``"10%"``.
    target : {"cpu", "cuda"}, optional
        The type of the step's device, which may be absent; by default that of the roofline in `choices.costs`, else
        that of the inputs.
    tell : callable, optional
        Called for each batch that is tried.

    Raises
    ------
    TooSmallError
        If the budget is too small (for one sample, with `max_batch`), or the plan takes longer than `max_overhead`.
    """
    most = None if max_overhead is None else read_share(max_overhead, "max_overhead")
    limit = None if most is None else float(most)
    device = target_of(target, choices.costs)

    def planned(captured: Captured, *, search: bool = True) -> tuple[Captured, Plan, Costs]:
        costs = costs_of(captured, choices.costs, choices.cache)
        plan = make_plan(captured, replace(choices, costs=costs), search=search)
        if most is not None and plan.overhead > most:
            raise TooSmallError(
                f"it fits, but its overhead is {plan.overhead_words}; at most {100 * float(most):g} % was asked for "
                "(max_overhead)",
                proved=False,
            )
        return captured, plan, costs

    if max_batch is None:
        captured, plan, costs = planned(capture_factory(factory, device))
        return Fitted(captured, plan, None, by_module(captured, plan, costs), choices, limit)
    found: dict[int, tuple[Captured, Plan, Costs]] = {}

    def fits(batch: int) -> bool:
        captured = capture_factory(factory, device, batch=batch)
        try:
            found[batch] = planned(captured, search=batch == 1)
        except TooSmallError as error:
            if tell is not None:
                tell(f"batch {batch}: {error}")
            if batch == 1:
                raise
            return False
        if tell is not None:
            tell(f"batch {batch} fits, overhead {found[batch][1].overhead_words}")
        return True

    batch = largest(fits, max_batch)
    captured, plan, costs = found[batch]
    return Fitted(captured, plan, batch, by_module(captured, plan, costs), choices, limit)


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to `most` that fits, found by doubling and bisection; 0 if 1 does not."""
    good, bad = 0, most + 1
    while good < bad - 1:
        doubled = max(1, 2 * good)
        known_bad = bad <= most
        trial = (good + bad) // 2 if known_bad else min(doubled, most)
        if fits(trial):
            good = trial
        else:
            bad = trial
    return good


def by_module(captured: Captured, plan: Plan, costs: Costs) -> tuple[ModuleRuns, ...]:
    """Add up the runs of a plan by module."""
    joint = captured.joint
    rows: dict[str, list[int]] = {}
    done: set[str] = set()
    for name in plan.runs:
        task = joint.tasks[name]
        node = joint.nodes.get(task.node)
        if node is None:
            continue
        row = rows.setdefault(node.module, [0, 0, 0])
        # Dropout from its mask is a recomputation of dropout.
        if task.from_mask or task.node in done:
            row[1] += 1
            row[2] += int(costs.time(node, from_mask=task.from_mask))
        else:
            row[0] += 1
        done.add(task.node)
    return tuple(ModuleRuns(module, *row) for module, row in rows.items())
