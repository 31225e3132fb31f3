"""The memory of a training step of a configured model, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from remat.generate.models.memory import Estimate, Peak, stages_of_zero
from remat.units import format_size

COLUMNS = ("", "without recomputation", "every block recomputed")


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
    remedies : tuple of (str, Estimate)
        Options that would make the step fit; empty if it fits.
    """

    found: Estimate
    about: str
    budget: int
    reserve: int
    batches: tuple[int, int]
    sequences: tuple[int, int] | None
    remedies: tuple[tuple[str, Estimate], ...] = ()


def lines(asked: Asked) -> Iterator[str]:
    """Yield the lines of the table."""
    found = asked.found
    model = found.work.model
    trained = sum(part.repeat * part.amounts.trained for part in found.work.parts)
    some = "" if trained == model.parameters else f", {trained:,} trained"
    reserve = f", of these {format_size(asked.reserve)} in reserve" if asked.reserve else ""
    head = [
        ("model", f"{model.name} ({model.family}), {model.parameters:,} parameters{some}"),
        ("step", asked.about),
        ("budget", _size(asked.budget) + reserve),
        *(("note", note) for note in model.notes),
    ]
    yield from (f"{label:<18}{text}" for label, text in head)
    yield ""
    rows = [COLUMNS, *_rows(asked)]
    widths = [max(len(row[k]) for row in rows) + 2 for k in range(3)]
    yield from ("".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    yield ""
    yield f"{'verdict':<18}{verdict(asked)}"
    if asked.found.step_peak:
        yield f"{'':<18}{phases(asked)}"
    for number, (options, other) in enumerate(asked.remedies):
        assert other.chosen is not None
        run = f", {other.chosen.recomputed} of {other.blocks} blocks recomputed" if other.chosen.recomputed else ""
        needed = _size(other.needed(other.chosen) + asked.reserve)
        yield f"{'' if number else 'would help':<18}{options}: needs {needed}{run}"
    if found.training.data > 1:
        yield ""
        yield from _zero(asked)


def _rows(asked: Asked) -> Iterator[tuple[str, str, str]]:
    found, static = asked.found, asked.found.static
    both = (found.plain, found.full)
    for label, size in (
        ("parameters", static.parameters),
        ("gradients", static.gradients),
        ("optimizer states", static.states),
        ("gathered", static.gathered),
    ):
        if size:
            yield label, _size(size), _size(size)
    yield _row("activations", *(_size(peak.size - peak.logits) for peak in both))
    yield _row("logits and loss", *(_size(peak.logits) for peak in both))
    yield _row("all of these", *(_size(static.total + peak.size) for peak in both))
    yield "optimizer step", _size(found.step_peak), _size(found.step_peak)
    yield _row("with reserve", *(_size(found.needed(peak) + asked.reserve) for peak in both))
    yield _row("recompute time", "", _share(found.full, found))
    yield _row("largest batch", *(f"{batch:,}" for batch in asked.batches))
    if asked.sequences is not None:
        yield _row("longest sequence", *(_length(length, found) for length in asked.sequences))


def _row(label: str, *texts: str) -> tuple[str, str, str]:
    first, second = texts
    return label, first, second


def _length(length: int, found: Estimate) -> str:
    return f"{length:,}" + (" (all positions)" if length == found.work.model.positions else "")


def _share(peak: Peak, found: Estimate) -> str:
    return f"+{100 * peak.time / found.total_time:.1f} %"


def _size(size: int) -> str:
    return format_size(size, both=True)


def verdict(asked: Asked) -> str:
    """Return whether the step fits, and which blocks are recomputed."""
    found, chosen = asked.found, asked.found.chosen
    if chosen is None:
        missing = found.needed(found.full) + asked.reserve
        why = "" if found.available is None or found.static.total <= found.available else ", most of it static"
        return f"does not fit: every block recomputed needs {_size(missing)}{why}"
    needed = _size(found.needed(chosen) + asked.reserve)
    if not chosen.recomputed:
        return f"fits without recomputation, with {needed}"
    share = _share(chosen, found)
    which = (
        "every block"
        if chosen.recomputed == found.blocks
        else f"the first {chosen.recomputed} of {found.blocks} blocks"
    )
    verb = "is" if chosen.recomputed == found.blocks else "are"
    return f"fits if {which} {verb} recomputed, with {needed} and {share} time"


def phases(asked: Asked) -> str:
    """Return the phase of the step that sets the peak of the verdict, and the need of the other phase."""
    found = asked.found
    peak = found.full if found.chosen is None else found.chosen
    step, passes = (size + asked.reserve for size in (found.step_peak, found.static.total + peak.size))
    if step > passes:
        return f"set by the optimizer's step; forward and backward need {_size(passes)}"
    return f"set by forward and backward; the optimizer's step needs {_size(step)}"


def _zero(asked: Asked) -> Iterator[str]:
    data = asked.found.training.data
    yield f"{f'ZeRO, {data} ranks':<18}{'without recomputation':<28}every block recomputed"
    for zero, found in stages_of_zero(asked.found.work, asked.found.training):
        plain, full = (_size(found.needed(peak) + asked.reserve) for peak in (found.plain, found.full))
        yield f"{f'stage {zero}':<18}{plain:<28}{full}"


def document(asked: Asked) -> dict[str, Any]:
    """Return the figures as JSON."""
    found = asked.found

    def figures(peak: Peak) -> dict[str, Any]:
        return {
            "activations": peak.size - peak.logits,
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
        "blocks": found.blocks,
        "without_recomputation": {**figures(found.plain), "largest_batch": asked.batches[0]},
        "with_recomputation": {**figures(found.full), "largest_batch": asked.batches[1]},
        "plan": None if found.chosen is None else figures(found.chosen),
    }
    if asked.remedies:
        made["remedies"] = [
            {"options": options, "needed": other.needed(other.chosen) + asked.reserve}
            for options, other in asked.remedies
            if other.chosen is not None
        ]
    if asked.sequences is not None:
        for key, length in zip(("without_recomputation", "with_recomputation"), asked.sequences, strict=True):
            made[key]["longest_sequence"] = length
    if found.training.data > 1:
        made["zero"] = [
            {
                "stage": zero,
                "without_recomputation": each.needed(each.plain) + asked.reserve,
                "with_recomputation": each.needed(each.full) + asked.reserve,
            }
            for zero, each in stages_of_zero(found.work, found.training)
        ]
    return made
