"""The memory of a training step of a configured model, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from remat.generate.devices import NETWORK
from remat.generate.models.memory import Estimate, Peak, exchanged_of, stages_of_zero, static_of
from remat.report.text.overheads import over_reference, percent
from remat.units import format_size, format_time, shown_base

COLUMNS = ("at the peak", "without recomputation", "every block recomputed")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change of options with which the step fits.

    Attributes
    ----------
    kind : str
        The kind of change, in words: what stays the same, or what it needs.
    options : str
        The changed options.
    note : str
        What they change in the training; empty if nothing.
    needed : int
        Bytes, with the reserve.
    share : float
        Extra time, relative to a reference.
    time : str
        The extra time in words, with the reference.
    recomputed : str
        The recomputed part, in words; empty if nothing is recomputed.
    commands : tuple of str
        The commands that find such a schedule, in which the extra time may be smaller; empty for options of the same
        command.
    """

    kind: str
    options: str
    note: str
    needed: int
    share: float
    time: str
    recomputed: str
    commands: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The options, and below what they change, need and cost."""
        first = self.options + (f": {self.note}" if self.note else "")
        told = ", ".join(filter(None, (f"needs {self.split}", self.recomputed, self.cost)))
        return first, *(f"  {line}" for line in (told, *self.further))

    @property
    def cost(self) -> str:
        """The extra time in words; where a longer search may find less, its most."""
        return f"at most {self.time}" if self.commands and self.share > 0 else self.time

    @property
    def split(self) -> str:
        """The needed bytes, in words."""
        return shown_size(self.needed)

    @property
    def further(self) -> tuple[str, ...]:
        """Lines below."""
        return self.commands


@dataclass(frozen=True, slots=True)
class Asked:
    """The subject of a memory table.

    Attributes
    ----------
    found : Estimate
    about : str
        Batch, type of numbers, optimizer, device.
    budget, reserve : int
        Bytes of the device, and the part reserved for its context and fragmentation.
    batches, sequences : tuple of int or None
        The largest batch and the longest sequence, without recomputation and with every block recomputed.
    remedies : tuple of Remedy
        Options that would make the step fit, equal kinds together; empty if it fits.
    remarks : tuple of str
        Remarks on the device and on a host that is not needed.
    nothing : str
        The words for a batch or a sequence of 0.
    network : float
        Bytes/s from each rank to the next.
    otherwise : tuple of str
        Where the step does not fit in the device alone: the verdict in the first line, and what more there is to say.
    """

    found: Estimate
    about: str
    budget: int
    reserve: int
    batches: tuple[int, int]
    sequences: tuple[int, int] | None
    remedies: tuple[Remedy, ...] = ()
    remarks: tuple[str, ...] = ()
    nothing: str = "none"
    network: float = NETWORK
    otherwise: tuple[str, ...] = ()


def lines(asked: Asked) -> Iterator[str]:
    """Yield the lines of the table."""
    found = asked.found
    model = found.work.model
    trained = sum(part.repeat * part.amounts.trained for part in found.work.parts)
    some = "" if trained == model.parameters else f", {trained:,} trained"
    reserve = f", of these {shown_size(asked.reserve)} in reserve" if asked.reserve else ""
    head = [
        ("model", f"{model.name} ({model.family}), {model.parameters:,} parameters{some}"),
        ("step", asked.about),
        ("budget", shown_size(asked.budget) + reserve),
        *((("exchanges", f"{exchanges(found, asked.network)}; {OTHER_TIMES}"),) if found.training.data > 1 else ()),
        *(("" if number else "verdict", text) for number, text in enumerate(verdicts(asked))),
        *(("note", note) for note in (*model.notes, *asked.remarks) if note),
    ]
    yield from (f"{label:<18}{text}" for label, text in head)
    yield ""
    rows = [COLUMNS, *_rows(asked)]
    widths = [max(len(row[k]) for row in rows) + 2 for k in range(3)]
    yield from ("".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    if asked.remedies:
        yield ""
    for number, (kind, remedies) in enumerate(groupby(asked.remedies, lambda remedy: remedy.kind)):
        yield f"{'' if number else 'would help':<18}{kind}:"
        yield from (f"{'':<20}{line}" for remedy in remedies for line in remedy.lines)
    if found.training.data > 1:
        yield ""
        yield from _zero(asked)


def split_of(found: Estimate, peak: Peak) -> dict[str, int]:
    """Return the bytes at a peak of forward and backward by kind, in the order of tables; kinds may be 0."""
    static = found.static
    return {
        "parameters": static.parameters,
        "gradients": static.gradients,
        "optimizer states": static.states,
        "gathered": static.gathered,
        "activations": peak.size - peak.logits - peak.workspace,
        "logits and loss": peak.logits,
        "workspace": peak.workspace,
    }


OTHER_TIMES = "the other times are without exchanges"

SELDOM = ("parameters", "gradients", "optimizer states", "gathered", "workspace")
"""Kinds of which tables have a row only if there are any bytes."""


def _rows(asked: Asked) -> Iterator[tuple[str, str, str]]:
    found, static = asked.found, asked.found.static
    both = (found.plain, found.full)
    splits = [split_of(found, peak) for peak in both]
    for label in splits[0]:
        if label not in SELDOM or any(split[label] for split in splits):
            yield _row(label, *(shown_size(split[label]) for split in splits))
    yield _row("all of these", *(shown_size(static.total + peak.size) for peak in both))
    yield _row("reached in", *(peak.moment for peak in both))
    yield "optimizer step", shown_size(found.step_peak), shown_size(found.step_peak)
    yield _row("needed, with reserve", *(shown_size(found.needed(peak) + asked.reserve) for peak in both))
    again = f"{format_time(found.total_time + found.full.time)}, {percent(found.full.time / found.total_time)}"
    yield _row("forward, backward", format_time(found.total_time), again)
    yield _row("largest batch", *(f"{batch:,}" if batch else asked.nothing for batch in asked.batches))
    if asked.sequences is not None:
        yield _row("longest sequence", *(_length(length, found) or asked.nothing for length in asked.sequences))


def _row(label: str, *texts: str) -> tuple[str, str, str]:
    first, second = texts
    return label, first, second


def _length(length: int, found: Estimate) -> str:
    """Return a length in words; empty for 0."""
    return (f"{length:,}" if length else "") + (" (all positions)" if length == found.work.model.positions else "")


def shown_size(size: int) -> str:
    """Return a size in the units of the table."""
    return format_size(size, both=shown_base() is None)


def time_of(found: Estimate, peak: Peak) -> str:
    """Return the time of the recomputation in words, with its reference."""
    return over_reference(peak.time / found.total_time, found.total_time)


def exchanges(found: Estimate, network: float) -> str:
    """Return what ranks exchange in a step, in words."""
    sent = exchanged_of(found.work, found.training)
    time = format_time(sent / network)
    return f"each rank sends {shown_size(sent)}, {time} at {network / 1e9:g} GB/s, partly overlapped with computation"


def shares_of(sizes: Mapping[str, int]) -> str:
    """Return sizes with their names, in words; those of 0 are left out."""
    return ", ".join(f"{name} {shown_size(size)}" for name, size in sizes.items() if size)


def blocks_of(peak: Peak, blocks: int) -> str:
    """Return which blocks are recomputed, in words; empty if none is."""
    if not peak.recomputed:
        return ""
    if peak.recomputed == blocks:
        return "every block"
    return f"the first {peak.recomputed} of {blocks} blocks" if peak.recomputed > 1 else f"the first of {blocks} blocks"


def verdicts(asked: Asked) -> Iterator[str]:
    """Yield whether the step fits, with what it fits otherwise, and which phase sets its peak."""
    found = asked.found
    if found.chosen is not None:
        yield _fitting(asked, found.chosen)
    else:
        missing, static = found.needed(found.full) + asked.reserve, found.static
        parts = {"parameters": static.parameters, "gradients": static.gradients, "optimizer states": static.states}
        lasting = "" if found.available is None or static.total <= found.available else f" ({shares_of(parts)})"
        yield from asked.otherwise or ("does not fit",)
        yield f"in the device alone, every block recomputed needs {shown_size(missing)}{lasting}"
    if found.step_peak:
        yield phases(asked)


def _fitting(asked: Asked, chosen: Peak) -> str:
    """Return which blocks are recomputed so that the step fits."""
    found = asked.found
    needed = shown_size(found.needed(chosen) + asked.reserve)
    if not chosen.recomputed:
        return f"fits without recomputation, with {needed}"
    verb = "is" if chosen.recomputed in (1, found.blocks) else "are"
    which = blocks_of(chosen, found.blocks)
    return f"fits if {which} {verb} recomputed, with {needed} and {time_of(found, chosen)}"


def phases(asked: Asked) -> str:
    """Return the phase of the step that sets the peak on the device alone, and the need of the other phase."""
    found = asked.found
    peak = found.full if found.chosen is None else found.chosen
    step, passes = (size + asked.reserve for size in (found.step_peak, found.static.total + peak.size))
    if step > passes:
        return f"set by the optimizer's step{_temporary(found)}; forward and backward need {shown_size(passes)}"
    return f"set by forward and backward, in {peak.moment}; the optimizer's step needs {shown_size(step)}"


def _temporary(found: Estimate) -> str:
    """Return the temporary part of the optimizer's step in words, and the implementation that takes the least."""
    training, own = found.training, found.static.step
    if not own:
        return ""
    default = "" if training.step else ", PyTorch's default"
    others = {
        name: static_of(found.work, replace(training, step=name)).step for name in sorted(training.implementations)
    }
    least = min(others, key=lambda name: others[name])
    size = shown_size(others[least]) if others[least] else "none"
    less = f"; step {least} takes {size}" if others[least] < own else ""
    return f", which takes {shown_size(own)} for a moment (step {training.implementation}{default}{less})"


def _zero(asked: Asked) -> Iterator[str]:
    data = asked.found.training.data
    yield f"{f'ZeRO, {data} ranks':<18}{'without recomputation':<28}every block recomputed"
    for zero, found in stages_of_zero(asked.found.work, asked.found.training):
        plain, full = (shown_size(found.needed(peak) + asked.reserve) for peak in (found.plain, found.full))
        yield f"{f'level {zero}':<18}{plain:<28}{full}"


def document(asked: Asked) -> dict[str, Any]:
    """Return the figures as JSON."""
    found = asked.found

    def figures(peak: Peak) -> dict[str, Any]:
        return {
            "activations": peak.size - peak.logits,
            "workspace": peak.workspace,
            "logits": peak.logits,
            "peak": found.static.total + peak.size,
            "needed": found.needed(peak) + asked.reserve,
            "moment": peak.moment,
            "recomputed_blocks": peak.recomputed,
            "recompute_share": peak.time / found.total_time,
        }

    static = found.static
    made: dict[str, Any] = {
        "schema": "remat.fit/1",
        "model": found.work.model.name,
        "parameters": found.work.model.parameters,
        "trained": sum(part.repeat * part.amounts.trained for part in found.work.parts),
        "budget": asked.budget,
        "reserve": asked.reserve,
        "static": {
            "parameters": static.parameters,
            "gradients": static.gradients,
            "optimizer_states": static.states,
            "gathered": static.gathered,
        },
        "optimizer_step": found.step_peak,
        "optimizer_step_temporary": static.step,
        "blocks": found.blocks,
        "without_recomputation": {**figures(found.plain), "largest_batch": asked.batches[0]},
        "with_recomputation": {**figures(found.full), "largest_batch": asked.batches[1]},
        "plan": None if found.chosen is None else figures(found.chosen),
    }
    if asked.remedies:
        made["remedies"] = [
            {
                "kind": remedy.kind,
                "options": remedy.options,
                "changes": remedy.note,
                "needed": remedy.needed,
                "extra_time_share": remedy.share,
                "extra_time": remedy.cost,
                "recomputed": remedy.recomputed,
            }
            for remedy in asked.remedies
        ]
    if asked.sequences is not None:
        for key, length in zip(("without_recomputation", "with_recomputation"), asked.sequences, strict=True):
            made[key]["longest_sequence"] = length
    if found.training.data > 1:
        sent = exchanged_of(found.work, found.training)
        made["exchanges"] = {"sent": sent, "network": asked.network, "time": sent / asked.network}
        made["zero"] = [
            {
                "stage": zero,
                "without_recomputation": each.needed(each.plain) + asked.reserve,
                "with_recomputation": each.needed(each.full) + asked.reserve,
            }
            for zero, each in stages_of_zero(found.work, found.training)
        ]
    return made
