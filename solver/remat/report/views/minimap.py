"""A schedule reduced to about a kilobyte, for the pictures in a comparison's report.

A comparison has too many schedules to keep them. Each cell keeps a miniature instead: memory over time, the rows of
processors and channels, and the view for the kind of instance, at the resolution of a small picture. The report can
then draw the best cells later and in another process.
"""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from remat.messages import counted
from remat.report.text.readable_names import shown_name, shown_step
from remat.report.views.composition import composition_of
from remat.report.views.icicle import icicle_of
from remat.report.views.occupancy import Stay, occupancy_of
from remat.report.views.phases import Phase, step_phases
from remat.report.views.resources import occupied
from remat.report.views.reversal import reversal_of
from remat.report.views.slices import coverage, slice_maxima, without_dips
from remat.report.views.stages import stages_of
from remat.report.views.task_index_ranges import ChainLayout, TreeLayout
from remat.solving.result import Result
from remat.units import format_size
from remat.verifier import Report

if TYPE_CHECKING:
    from pydantic import TypeAdapter

SLICES = 200
"""Slices of time."""
LEVELS = 500
"""Levels of memory, states of a reversal."""
MOST_MEMORIES, MOST_ROWS, MOST_STAGES, MOST_LINES = 3, 8, 60, 300
VALUE_ROWS, TREE_ROWS, TREE_COLUMNS, SHADES = 40, 16, 120, 8
MOST_STEPS = 300_000
"""Steps beyond which there is no view by kind: laying it out might take longer than the solve."""
LARGEST = 100_000
"""Bytes of a record that is read back."""

PHASES: dict[Phase, str] = {phase: phase.label[0] for phase in Phase if phase is not Phase.NONE}
STAYS: dict[Stay, str] = {
    Stay.COMPUTED: "c",
    Stay.RECOMPUTED: "r",
    Stay.FETCHED: "f",
    Stay.ELSEWHERE: "e",
    Stay.INITIAL: "i",
    Stay.FORWARD: "o",
    Stay.SAVING: "s",
    Stay.BACKWARD: "b",
}
SPILLED, NOTHING = "S", "."

_RUNS = re.compile(r"([A-Za-z.])(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The bytes in a memory over time: the maximum of each slice, in `LEVELS` of the peak.

    `parts` lists the kinds of bytes (`Kind`) at the peak with their amounts, the largest first.
    """

    name: str
    capacity: int | None
    peak: int
    cause: str
    at: int
    levels: tuple[int, ...]
    parts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The main activity of a processor or channel in each time slice: letters of `PHASES`, run-length encoded."""

    name: str
    slices: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Stages of a chain, `group` per bar: bytes by fate in `LEVELS` of the highest bar, and numbers of runs."""

    group: int
    stages: int
    bars: tuple[tuple[int, ...], ...]
    runs: tuple[int, ...]
    totals: tuple[int, ...]
    top: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The reversal of an adjoint: (stroke, slice, state, slice, state), states in `LEVELS`."""

    length: int
    lines: tuple[tuple[int, int, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """An image, one run-length encoded text per row.

    Trees use `SHADES` letters from ``a`` on, by order of execution, and `SPILLED`; values use those of `STAYS`.
    """

    kind: str
    columns: int
    rows: tuple[str, ...]
    remark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Miniature:
    """The data of all pictures of one schedule."""

    memories: tuple[Line, ...]
    rows: tuple[Row, ...]
    hidden_rows: int
    bars: Bars | None = None
    lines: Lines | None = None
    pixels: Pixels | None = None


def miniature(result: Result, kind: str) -> Miniature:
    """Reduce a schedule to the data of a small picture (O(events log events)).

    Parameters
    ----------
    result : Result
        With a schedule.
    kind : str
        The kind of the instance.
    """
    report, steps = result.report, result.columns
    assert report is not None
    assert steps is not None
    rows, hidden = _rows(result, report)
    views: dict[str, Any] = {}
    if len(steps) <= MOST_STEPS:
        chain, tree = ChainLayout.of(result.graph), TreeLayout.of(result.graph)
        if chain is not None and kind == "adjoint":
            views["lines"] = _lines(result, chain)
        elif chain is not None:
            views["bars"] = _bars(result, chain)
        else:
            views["pixels"] = _values(result, report) if tree is None else _tree(result, tree)
    return Miniature(memories=_memories(result, report), rows=rows, hidden_rows=hidden, **views)


def pack(record: Miniature) -> str:
    """Return a record as a short text."""
    return base64.b85encode(zlib.compress(_format().dump_json(record))).decode("ascii")


def unpack(text: str) -> Miniature | None:
    """Read a record back; None if the text is not a record."""
    try:
        return _format().validate_json(zlib.decompressobj().decompress(base64.b85decode(text), LARGEST))
    except (ValueError, zlib.error):  # pydantic's errors are ValueErrors
        return None


@cache
def _format() -> TypeAdapter[Miniature]:
    from pydantic import TypeAdapter

    return TypeAdapter(Miniature)


def runs_of(text: str) -> list[tuple[str, int, int]]:
    """Return the runs of a row: letter, first column, and end column (exclusive)."""
    found, column = [], 0
    for letter, count in _RUNS.findall(text):
        found.append((letter, column, column + int(count)))
        column += int(count)
    return found


def _packed(letters: NDArray[np.str_]) -> str:
    """Run-length encode: write equal neighbours as one letter and their number."""
    first = np.flatnonzero(np.concatenate(([True], letters[1:] != letters[:-1])))
    counts = np.diff(np.append(first, len(letters)))
    return "".join(f"{letter}{count}" for letter, count in zip(letters[first].tolist(), counts.tolist(), strict=True))


def _mostly(shares: dict[str, NDArray[np.float64]], least: float) -> tuple[str, ...]:
    """Return the rows of an image whose pixels show what covers most of them, if it covers at least a minimum share."""
    letters = np.array([NOTHING, *shares])
    stack = np.stack([np.full_like(next(iter(shares.values())), least), *shares.values()])
    return tuple(_packed(row) for row in letters[stack.argmax(axis=0)])


def _memories(result: Result, report: Report) -> tuple[Line, ...]:
    span = float(report.makespan) or 1.0
    assert result.columns is not None
    used = [k for k, memory in enumerate(result.machine.memories) if report.peaks[memory.name].size > 0]
    contents = composition_of(result).contents if len(result.columns) <= MOST_STEPS else None
    lines = []
    for index in (used or [0])[:MOST_MEMORIES]:
        memory = result.machine.memories[index]
        profile, peak = report.profiles[memory.name], report.peaks[memory.name]
        time, size = without_dips(profile.time.astype(np.float64), profile.size.astype(np.float64))
        _, highest = slice_maxima(time, size, span, SLICES)
        start = 0.0 if peak.step is None else float(report.start[peak.step])
        lines.append(
            Line(
                name=shown_name(memory.name),
                capacity=memory.capacity,
                peak=peak.size,
                cause=shown_step(result.graph, result.machine, result.columns, peak.step),
                at=round(SLICES * start / span),
                parts=() if contents is None else tuple((int(k), size) for k, size in contents[index].at_peak.items()),
                levels=tuple(np.ceil(highest * (LEVELS / max(peak.size, 1))).astype(int).tolist()),
            )
        )
    return tuple(lines)


def _rows(result: Result, report: Report) -> tuple[tuple[Row, ...], int]:
    names, steps = result.machine.resources, result.columns
    assert steps is not None
    used = [index for index, name in enumerate(names) if report.busy[name] > 0] or [0]
    shown = sorted(sorted(used, key=lambda index: -report.busy[names[index]])[:MOST_ROWS])
    place = np.full(len(names), -1)
    place[shown] = np.arange(len(shown))
    step, resource = occupied(result.graph, result.machine, steps)
    step, row = step[place[resource] >= 0], place[resource][place[resource] >= 0]
    phases = step_phases(result.graph, steps, report.start)[step]
    scale = SLICES / (float(report.makespan) or 1.0)
    shape = len(shown), SLICES
    shares = {}
    for phase in np.unique(phases).tolist():
        mine = phases == phase
        across = report.start[step[mine]] * scale, report.end[step[mine]] * scale
        shares[PHASES[Phase(phase)]] = coverage(across, (row[mine], row[mine] + 1), shape)
    texts = _mostly(shares, 0.05) if shares else (f"{NOTHING}{SLICES}",) * len(shown)
    rows = tuple(Row(name=shown_name(names[index]), slices=text) for index, text in zip(shown, texts, strict=True))
    return rows, len(used) - len(shown)


def _bars(result: Result, layout: ChainLayout) -> Bars:
    found = stages_of(result, layout, MOST_STAGES)
    top = int(found.sizes.sum(axis=1).max())
    levels = np.rint(found.sizes * (LEVELS / max(top, 1))).astype(int)
    return Bars(
        group=int(found.first[1] - found.first[0]),
        stages=layout.length,
        bars=tuple(tuple(bar) for bar in levels.tolist()),
        runs=tuple(found.runs.tolist()),
        totals=tuple(found.totals.tolist()),
        top=top,
    )


def _lines(result: Result, layout: ChainLayout) -> Lines:
    assert result.report is not None
    found = reversal_of(result, layout, columns=SLICES, rows=LEVELS // 5, most=MOST_LINES)
    across, up = SLICES / (float(result.report.makespan) or 1.0), LEVELS / max(layout.length, 1)
    ends = np.column_stack((found.stroke, found.begin * [across, up], found.end * [across, up]))
    return Lines(length=layout.length, lines=tuple(tuple(line) for line in np.rint(ends).astype(int).tolist()))


def _tree(result: Result, layout: TreeLayout) -> Pixels:
    found = icicle_of(result, layout)
    nodes, rows = len(found.order), min(found.depths, TREE_ROWS)
    scale = rows / found.depths
    box = (found.left * TREE_COLUMNS, found.right * TREE_COLUMNS), (found.depth * scale, (found.depth + 1) * scale)
    shape = rows, TREE_COLUMNS
    there = coverage(*box, shape)
    some = np.maximum(there, 1e-12)
    shade = coverage(*box, shape, found.order / max(nodes - 1, 1)) / some
    letters = np.array([chr(ord("a") + k) for k in range(SHADES)])[np.clip(shade * SHADES, 0, SHADES - 1).astype(int)]
    letters[coverage(*box, shape, found.spilled) / some > 0.5] = SPILLED
    letters[there < 0.3] = NOTHING
    spilled = int((found.spilled > 0).sum())
    volume = format_size(found.volume, result.units)
    where = f"{volume} spilled from {spilled:,} of them" if spilled else "all in core"
    remark = f"{counted(nodes, 'node')}, {where}"
    return Pixels(kind="tree", columns=TREE_COLUMNS, rows=tuple(_packed(row) for row in letters), remark=remark)


def _values(result: Result, report: Report) -> Pixels:
    found = occupancy_of(result)
    across, down = SLICES / (float(report.makespan) or 1.0), VALUE_ROWS / (found.height or 1.0)
    shares = {}
    for stay, letter in STAYS.items():
        mine = found.kind == stay
        x, y = (
            (found.begin[mine] * across, found.end[mine] * across),
            (found.low[mine] * down, found.high[mine] * down),
        )
        shares[letter] = coverage(x, y, (VALUE_ROWS, SLICES))
    return Pixels(kind="values", columns=SLICES, rows=_mostly(shares, 0.3), remark=counted(len(found.values), "value"))
