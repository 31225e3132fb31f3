"""Phrases of the sentences on decisions: sizes, and ranges of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from remat.units import Units, format_size


def shown_size(size: int, units: Units) -> str:
    """Format a size; one without a unit is called a size."""
    return f"size {format_size(size, units)}" if units.memory == "unit" else format_size(size, units)


def ranges(numbers: Sequence[int], most: int | None = None, letter: str = "") -> str:
    """Return ascending numbers as ranges: ``2-14, 17 and 20-22``; long lists are cut and counted.

    With a letter, they are names of values: ``x2-x14``.
    """
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = [f"{letter}{first}" if first == last else f"{letter}{first}-{letter}{last}" for first, last in found]
    if most is not None and len(shown) > most:
        left = sum(last - first + 1 for first, last in found[most - 1 :])
        return f"{', '.join(shown[: most - 1])} and {left:,} more"
    return enumerated(shown)


def enumerated(names: Sequence[str]) -> str:
    """Join names with commas, and the last one with "and"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
