"""Explanation of a budget that is too small: the need and its parts, remedies, and a budget to paste."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING

from remat.report.text.readable_names import shown_name, shown_task, shown_value
from remat.solving.decisions.phrases import ranges
from remat.solving.shortfall import READ, REST, STATIC, WORKSPACE, WRITTEN, Part, Shortfall
from remat.units import Units, budget_to_paste, format_percent, format_size

if TYPE_CHECKING:
    from remat.solving.result import Result
    from remat.solving.shortfall_layers import LayerActivations

WORDS = {
    STATIC: "static memory, which is permanent",
    READ: "what {task} reads",
    WRITTEN: "what {task} writes",
    WORKSPACE: "workspace of {task}",
    REST: "values kept for other tasks",
}
"""Description of a part, with the critical task."""

NO_PERCENT, LEAST_PERCENT = format_percent(0), format_percent(0.001)
"""A share that rounds to zero, and the smallest one that does not."""

MOST_GROUPS = 3
"""Groups of layers whose activations are named."""

MOST_RANGES = 4
"""Ranges of layers or micro-batches that are named."""

OPTION = "budget "
"""Default text before a budget."""


def shortfall_lines(result: Result, *, option: str = OPTION) -> Iterator[tuple[str, str]]:
    """Yield (label, text) pairs that explain why no schedule exists; an empty label continues the one above.

    `option` is the prefix of each suggested budget, in the syntax of the caller.
    """
    found = result.shortfall
    if found is None:
        return
    units = result.units

    def size(figure: int) -> str:
        return format_size(figure, units)

    task = "" if found.task is None else shown_task(result.graph, found.task)
    at_least = "every schedule needs at least" if found.proved else "the smallest need known is"
    short = size(found.need - found.capacity)
    where = shown_name(found.memory) if found.memory else "all memories together"
    own = "its" if found.memory else "their"
    yield "why", f"{at_least} {size(found.need)} in {where}, {short} more than {own} capacity:"
    for part in found.parts:
        share = format_percent(part.size / found.need)
        share = f"< {LEAST_PERCENT}" if share == NO_PERCENT else share
        told = _of_layers(result, part) or _what(part, task, found.proved) + _names(result, part)
        yield "", f"{size(part.size)} ({share}) {told}"
    if found.split:
        listed = ", ".join(f"{term} {size(figure)}" for term, figure in found.split.items())
        shared = (
            result.instance is not None
            and result.instance.budgets_are_for_all
            and found.memory
            and len(result.machine.processors) > 1
        )
        each = " a device, shared equally" if shared else ""
        yield "", f"of training{each}: {listed}"
    helpful = [remedy for remedy in found.remedies if remedy.helps]
    for k, remedy in enumerate(helpful):
        still = ", still too much" if remedy.need > found.capacity else ""
        yield "may help" if k == 0 else "", f"{remedy.what}: at least {size(remedy.need)}{still}"
    for remedy in found.remedies:
        if not remedy.helps:
            yield "does not help", f"{remedy.what}: {remedy.reason} {size(remedy.need)}"
    if found.budget:
        yield "try", " ".join(f"{option}{budget}" for budget in budgets(found, units, in_shell=option != OPTION))


def _what(part: Part, task: str, proved: bool) -> str:
    if part.what == REST and (proved or not task):
        return "other values that have to be there" if task else "values in memory"
    return WORDS.get(part.what, part.what).format(task=f"task {task}")


def _of_layers(result: Result, part: Part) -> str:
    """Name the layers and micro-batches of activations, the largest groups first; empty if they are unknown."""
    if not part.layers:
        return ""
    shown, units = part.layers[:MOST_GROUPS], result.units
    listed = [f"{format_size(one.size, units)} of {_of_group(one)}" for one in shown]
    left = part.size - sum(one.size for one in shown)
    if len(shown) == 1 and not left:
        return f"activations of {_of_group(shown[0])}"
    others = [f"{format_size(left, units)} of others"] if left > 0 else []
    return f"activations: {', '.join([*listed, *others])}"


def _of_group(one: LayerActivations) -> str:
    """Return ``4 micro-batches (0-3) in layers 1-4``; layers count from 1, micro-batches from 0."""
    count, layers = len(one.micro_batches), [layer + 1 for layer in one.layers]
    numbers = ranges(one.micro_batches, MOST_RANGES)
    of = f"micro-batch {numbers}" if count == 1 else f"{count:,} micro-batches ({numbers})"
    return f"{of} in layer{'s' if len(layers) > 1 else ''} {ranges(layers, MOST_RANGES)}"


def _names(result: Result, part: Part) -> str:
    """Name the largest values of a part, with their sizes."""
    graph, units = result.graph, result.units
    if not part.values:
        return ""
    values = [graph.value(name) for name in part.values]
    listed = ", ".join(
        f"{shown_value(graph, value)} ({format_size(int(graph.size[value]), units)})" for value in values
    )
    if part.what == REST and not part.resident:
        return f", such as {listed} in the reference order"
    named = sum(int(graph.size[value]) for value in values)
    over = ", partly in place of what it reads" if named > part.size else ""
    return f": {listed}{over}" if named >= part.size else f", such as {listed}"


def budgets(found: Shortfall, units: Units | None = None, *, in_shell: bool = False) -> Iterator[str]:
    """Yield budgets for which a schedule is found, one per memory if there are several, in the units of the answer.

    `in_shell` quotes names that a shell would split.
    """
    for name, figure in found.budget.items():
        size = budget_to_paste(figure, units)
        text = f"{name}={size}" if name and len(found.budget) > 1 else size
        yield quote(text) if in_shell else text
