"""The decisions of a schedule in a few sentences: what to recompute, to keep and to offload."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from remat.instance.kinds import is_pipeline
from remat.messages import elided, printable
from remat.solving.decisions.checkpoints import checkpoint_words
from remat.solving.decisions.groups import CHOSEN, Group, groups_of
from remat.solving.decisions.phrases import ranges, shown_size
from remat.solving.decisions.training import home_words, stage_names, update_words
from remat.solving.decisions.values import KEPT, OFFLOADED, RECOMPUTED
from remat.units import Number, Units, format_time

if TYPE_CHECKING:
    from remat.solving.result import Result

MOST_STEPS = 100_000
"""Steps of a schedule whose decisions are put into words; of more, that alone would take seconds."""

MOST_RANGES = 8
"""Ranges of numbers that a sentence lists."""

MOST_NAMES = 3
"""Values that a sentence names."""

MOST_GROUPS = 8
"""Sentences on the stages of a pipeline."""

MOVES = {"": ("offload", "to"), "start": ("fetch", "from"), "end": ("copy", "to"), "both": ("keep", "in")}
"""Verb and preposition for values in a memory, by when it must hold them: not at all, initially, at the end."""

CUT = re.compile(r" and [0-9,]+ more\b")
"""The end of a list that is not complete."""

NOTHING = "keep everything until its last use; recompute and offload nothing"


def decision_words(result: Result, *, all_of_them: bool = False) -> Iterator[str]:
    """Yield sentences that describe the decisions of a schedule, costly decisions first.

    Parameters
    ----------
    result : Result
    all_of_them : bool
        Whether to name every stage of a pipeline and every range; otherwise long lists are cut.
    """
    steps = result.columns
    if steps is None:
        return
    if len(steps) > MOST_STEPS:
        yield f"not put into words for {len(steps):,} steps: result.decisions and remat decisions list them"
        return
    groups = groups_of(result)
    acting = [group for group in groups if group.decision in (RECOMPUTED, OFFLOADED)]
    variants = [group for group in groups if group.decision == CHOSEN]
    yield from _stages(result, all_of_them)
    yield from (sentence(group, result, all_of_them=all_of_them) for group in variants)
    listed = _training(result, None if all_of_them else MOST_RANGES)
    yield from listed
    if not acting:
        yield from (NOTHING, *_complete(listed))
        return
    told = [sentence(group, result, all_of_them=all_of_them) for group in acting]
    if len(told) > MOST_GROUPS and not all_of_them:
        more = len(told) - MOST_GROUPS + 1
        rows = "values" if result.orders is None else "values, stages and micro-batches"
        told = [*told[: MOST_GROUPS - 1], f"and {more} more such lines: remat decisions lists all {rows}"]
    yield from told
    checkpoints = checkpoint_words(result, None if all_of_them else MOST_RANGES)
    if checkpoints:
        yield checkpoints
    yield from _unused(result)
    kept = [sentence(group, result, all_of_them=all_of_them) for group in groups if group.decision == KEPT]
    yield from kept
    if any(group.unit == "stages" for group in groups):
        yield from _complete([*listed, *told, checkpoints, *kept])


def main_decision(result: Result) -> str:
    """Return the first sentence on recomputation, offloading or what is kept; empty without a schedule."""
    training = _training(result, MOST_RANGES)
    return next((text for text in decision_words(result) if text not in training), "")


def _training(result: Result, most: int | None) -> list[str]:
    """Return the sentences on parameters and optimizer states of a chain."""
    return [*home_words(result, most), *update_words(result, most)]


def _complete(told: Iterable[str]) -> Iterator[str]:
    """Name the complete lists if one of these is cut."""
    if any(CUT.search(text) for text in told):
        yield "complete lists: remat decisions (by stage), or result.stage_decisions"


def decision_documents(result: Result) -> list[dict[str, Any]]:
    """Return the decisions as JSON objects: fields and sentence of each group; empty above `MOST_STEPS` steps.

    The values are listed only for groups without numbers of stages, steps or layers.
    """
    if result.columns is None or len(result.columns) > MOST_STEPS:
        return []
    found = []
    for group in groups_of(result):
        fields = (
            asdict(group)
            | {"home": group.home}
            | {key: list(getattr(group, key)) for key in ("values", "numbers", "batches")}
        )
        if group.unit:
            del fields["values"]
        found.append(fields | {"text": sentence(group, result, all_of_them=True)})
    return found


def _unused(result: Result) -> Iterator[str]:
    """Describe the unused capacity, in states, of the storage levels of a time loop."""
    instance, report = result.instance, result.report
    if instance is None or not instance.has_storage or report is None:
        return
    state = max((row.size for row in result.decisions if row.value.startswith("x")), default=0)
    for memory in result.machine.memories[1:]:
        if memory.capacity is None or not state:
            continue
        free = (memory.capacity - report.peaks[memory.name].size) // state
        if free > 0:
            slots = f"{free:,} of {memory.capacity // state:,} slots"
            yield f"{slots} of {printable(memory.name)} stay unused"


def _stages(result: Result, all_of_them: bool) -> Iterator[str]:
    """Describe the placement of a pipeline's layers."""
    if result.orders is not None:
        names = [processor.name for processor in result.machine.processors]
        placed = [
            (stage.layers, "+".join(printable(names[k]) for k in stage.devices)) for stage in result.orders.stages
        ]
    elif result.instance is not None and is_pipeline(result.instance):
        rows = [row for row in result.stage_decisions if not row.micro_batch]  # one row for each layer
        placed = [
            (tuple(layer for row in own for layer in row.layers), printable(device))
            for device, own in ((device, list(own)) for device, own in groupby(rows, key=lambda row: row.device))
        ]
    else:
        return
    shown = placed if all_of_them else placed[:MOST_GROUPS]
    listed = [f"{ranges([layer + 1 for layer in layers])} on {device}" for layers, device in shown]
    more = f" and {len(placed) - len(shown)} more stages" if len(shown) < len(placed) else ""
    yield f"run layers {', '.join(listed)}{more}"


def module_words(modules: Iterable[tuple[str, int, int]], units: Units) -> str:
    """Describe a plan's recomputations by module, the costliest first.

    Parameters
    ----------
    modules : iterable of (name, runs beyond the first of each task, time of these)
    units : Units
    """
    again = sorted(((name, runs, time) for name, runs, time in modules if runs), key=lambda row: (-row[2], row[0]))
    if not again:
        return NOTHING
    shown = [f"{elided(printable(name or '(no module)'), 36)} ({_time(time, units)})" for name, _, time in again]
    more = f" and {len(shown) - MOST_RANGES:,} more modules" if len(shown) > MOST_RANGES else ""
    total = sum(runs for _, runs, _ in again)
    return f"recompute {total:,} operator{'s' if total > 1 else ''}: in {', '.join(shown[:MOST_RANGES])}{more}"


def sentence(group: Group, result: Result, *, all_of_them: bool = False) -> str:
    """Return the sentence for a group."""
    units = result.units
    if group.batches:
        return _of_batches(group, units, all_of_them)
    begins = f"{group.of}: " if group.of else ""
    if not group.unit:
        return _of_values(group, result, len(group.values) if all_of_them else MOST_NAMES)
    what = _numbered(group, None if all_of_them else MOST_RANGES) + _modules(group, result)
    if group.unit == "steps" and not all_of_them and ", " in what and what.endswith(" more"):
        what = f"{len(group.numbers):,} steps"  # of time loops the numbers say more than which ones
    if group.decision == RECOMPUTED:
        often = f", up to {group.most_runs} runs each" if group.most_runs > 2 else ""
        runs = f", {group.runs:,} extra runs" if group.runs > len(group.numbers) else ""
        return f"{begins}recompute {what}{often} ({_time(group.time, units)}{runs})"
    if group.decision == OFFLOADED:
        return begins + _waits(group, what, units, all_of_them=all_of_them)
    if group.decision == CHOSEN:
        return f"{begins}run {what} in {group.role}"
    return f"{begins}keep the activations of {what} ({shown_size(group.size, units)})"


def _of_values(group: Group, result: Result, most: int) -> str:
    """Describe the decision for values of a graph, and name the largest."""
    units, count = result.units, len(group.values)
    what = f"{count:,} values" if count > 1 else "1 value"
    figures, rest = shown_size(group.size, units), ""
    if group.decision == RECOMPUTED:
        verb, figures = "recompute", f"{figures}, {_time(result.recompute_time or 0, units)}"
    elif group.decision == OFFLOADED:
        verb, where = MOVES[group.held_at]
        rest = f" {where} {printable(group.memory)}{_at_once(group, units)}"
    else:
        return f"keep {count:,} other value{'s' if count > 1 else ''} ({figures})"
    shown = []
    for name in group.values[:most]:
        row = result.decisions[name]
        # For an offloaded value, count only the offloaded bytes: a part may stay.
        size = max((stay.size for stay in row.offloaded if stay.memory == group.memory), default=row.size)
        shown.append(f"{elided(printable(name), 36)} ({shown_size(size, units)})")
    more = f" and {count - most:,} more" if count > most else ""
    return f"{verb} {what}{rest} ({figures}): {', '.join(shown)}{more}"


def _numbered(group: Group, most: int | None) -> str:
    return f"{group.unit if len(group.numbers) > 1 else group.unit[:-1]} {ranges(group.numbers, most)}"


def _modules(group: Group, result: Result) -> str:
    """Return the name that all stages of a group share, or those of a few, in parentheses."""
    if group.unit == "stages" and stage_names(result):
        return ""  # they are named once for the whole schedule
    names = dict.fromkeys(row.module for value in group.values if (row := result.decisions[value]).module)
    if not names or (len(names) > 1 and (len(group.numbers) > MOST_NAMES or len(names) != len(group.numbers))):
        return ""
    return f" ({', '.join(elided(printable(name), 36) for name in names)})"


def _time(time: Number, units: Units) -> str:
    return f"time {format_time(time, units)}" if units.time == "unit" else format_time(time, units)


def _at_once(group: Group, units: Units) -> str:
    if group.bytes_at_once == group.size:
        return ""
    return f", at most {shown_size(group.bytes_at_once, units)} at a time"


def _named(group: Group, most: int | None) -> str:
    """Return the values of a group by name, as ranges: ``x0-x7 and x12``."""
    return ranges(group.numbers, most, group.values[0][0])


def _waits(group: Group, what: str, units: Units, *, all_of_them: bool) -> str:
    """Describe a memory's contents: checkpoints of a time loop, offloaded values, or resident values."""
    memory = printable(group.memory)
    if group.unit == "steps":
        once = "" if group.at_once == len(group.values) else f", at most {group.at_once:,} at a time"
        verb = "keep" if group.home else "checkpoint"
        states = f"{len(group.values):,} {group.role if len(group.values) > 1 else group.role.removesuffix('s')}"
        which = "" if what.endswith(" steps") else f": {_named(group, None if all_of_them else MOST_RANGES)}"
        return f"{verb} {states} in {memory}{once} ({shown_size(group.bytes_at_once, units)}){which}"
    whose = f"the {group.role} of {what}" if group.role else what
    if group.role == "outputs" and group.numbers[:1] == (0,):  # what the first stage reads
        rest = replace(group, numbers=group.numbers[1:])
        whose = "the input" + (f" and the outputs of {_numbered(rest, None)}" if rest.numbers else "")
    verb, where = MOVES[group.held_at]
    return f"{verb} {whose} {where} {memory} ({shown_size(group.size, units)}{_at_once(group, units)})"


def _of_batches(group: Group, units: Units, all_of_them: bool) -> str:
    limit = None if all_of_them else MOST_RANGES
    many = len(group.batches) > 1
    batches = f"micro-batch{'es' if many else ''} {ranges(group.batches, limit)}"
    layers = f"layer{'s' if len(group.numbers) > 1 else ''} {ranges(group.numbers, limit)}"
    begins = f"{group.of}: {batches} " if group.of else f"{batches} "
    if group.decision == RECOMPUTED:
        return f"{begins}recompute{'' if many else 's'} {layers} ({_time(group.time, units)})"
    size = shown_size(group.size, units)
    return f"{begins}offload{'' if many else 's'} {layers} to {printable(group.memory)} ({size})"
