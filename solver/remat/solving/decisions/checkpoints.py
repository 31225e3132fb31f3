"""The checkpoints of a chain: inputs of recomputed stages that stay from the first forward to the second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remat.messages import noun_of
from remat.solving.decisions.phrases import ranges, shown_size

if TYPE_CHECKING:
    from remat.solving.decisions.values import Decision
    from remat.solving.result import Result


def checkpoints_of(result: Result) -> list[tuple[int, Decision]]:
    """Return the stages of a chain, counted from 1, that recompute from an input which never left; with this input.

    The recomputation of all other stages reads what another recomputation made, or what came back from a memory.
    """
    if result.instance is None or result.instance.kind != "chain":
        return []
    found = []
    for row in result.stage_decisions:
        value = f"x{row.stage}"
        if not row.recomputations or row.forward is None or result.graph.values.find(value) is None:
            continue
        own, again = result.decisions[value], row.recomputations[0].start
        if any(stay.start <= row.forward[0] and again <= stay.end for stay in own.held):
            found.append((row.stage + 1, own))
    return found


def checkpoint_words(result: Result, most: int | None) -> str:
    """Return the sentence on checkpoints, with at most so many ranges of stages; empty if there are none."""
    found = checkpoints_of(result)
    if not found:
        return ""
    stages = ranges([stage for stage, _ in found], most=most)
    size = shown_size(sum(own.size for _, own in found), result.units)
    return f"checkpoint the {noun_of(len(found), 'input')} of {noun_of(len(found), 'stage')} {stages} ({size})"
