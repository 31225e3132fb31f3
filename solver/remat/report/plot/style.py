"""Common parts of all pictures: file suffix, style, and reproducible files."""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from remat.documents import write_atomically
from remat.errors import MissingExtraError, OptionError
from remat.messages import counted, printable
from remat.report.text.readable_names import shown_name
from remat.report.views.composition import composition_of, labels_of
from remat.report.views.residents import fullest_memory
from remat.solving.decisions.words import main_decision
from remat.solving.result import Result
from remat.units import Units, format_budget, format_percent, format_size, format_time

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
PAGE = ".html"
"""Suffix of the interactive page of a schedule (see `remat.report.page`)."""
WIDTH = 11.0
"""Width of all pictures of schedules, in inches."""
LEFT, RIGHT = 0.095, 0.975
"""Begin and end of their axes, as shares of the width."""

_METADATA: Any = {
    "svg": {"Date": None, "Creator": "remat"},
    "png": {"Software": "remat"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "remat", "Producer": None},
}
_STYLE: Any = {
    "pdf.fonttype": 42,  # text that can be searched and edited
    "svg.hashsalt": "remat",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#808080",
    "axes.linewidth": 0.8,
    "xtick.color": "#404040",
    "ytick.color": "#404040",
}


def check_suffix(path: str | os.PathLike[str], known: Sequence[str] = SUFFIXES) -> str:
    """Return the suffix of a picture's path.

    Raises
    ------
    remat.OptionError
        If it is unknown.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in known:
        raise OptionError(
            f"{os.fspath(path)!r} is not a plot; its name ends in one of {', '.join(known)}", argument="plot"
        )
    return suffix


def check_page_view(view: str | None) -> None:
    """Refuse views of the interactive page but the only one that it has.

    Raises
    ------
    remat.OptionError
        If it is another one.
    """
    if view not in (None, "time"):
        raise OptionError("an .html page shows memory and resources over time, and has no views", argument="view")


def save_figure(path: str | os.PathLike[str], draw: Callable[[], Figure]) -> None:
    """Draw in the common style, and write atomically.

    Raises
    ------
    remat.OptionError
        If the suffix is unknown.
    remat.MissingExtraError
        If matplotlib is not installed.
    remat.RematError
        If the file cannot be written.
    """
    kind = check_suffix(path)[1:]
    with _styled():
        figure = draw()
        write_atomically(path, lambda file: _write(figure, file, kind))


def figure_of(draw: Callable[[], Figure]) -> Figure:
    """Draw in the common style.

    Raises
    ------
    remat.MissingExtraError
        If matplotlib is not installed.
    """
    with _styled():
        return draw()


def svg_of(draw: Callable[[], Figure]) -> str:
    """Return a picture as the text of an SVG file, for a page.

    Raises
    ------
    remat.MissingExtraError
        If matplotlib is not installed.
    """
    file = io.BytesIO()
    with _styled():
        _write(draw(), file, "svg")
    text = file.getvalue().decode("utf-8")
    return text[text.index("<svg") :]


@contextmanager
def _styled() -> Iterator[None]:
    try:
        import matplotlib
    except ImportError:
        raise MissingExtraError("a plot", "plot") from None
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)  # names in scripts without a font
        yield


def _write(figure: Figure, file: IO[bytes], kind: str) -> None:
    # Dates and version numbers would make equal plots differ.
    figure.savefig(file, format=kind, dpi=150, metadata=_METADATA[kind])


TOP = 0.98
"""Inches of `add_titles`, if name and decision fit beside each other."""

MOST_LETTERS = 125
"""Letters of a line with a name, whose letters count twice, and a decision."""

LONGEST_NAME, LONGEST_LINE = 80, 145
"""Letters of lines with a name alone, and with a decision alone."""

MOST_LINES = 3
"""Lines of a name or a decision; what does not fit into them is left out."""


@dataclass(frozen=True, slots=True)
class Titles:
    """The lines above a picture: the instance's name, and the first decision.

    Attributes
    ----------
    name, decision : tuple of str
    beside : bool
        Whether the decision is in the line of the name, at its end.
    """

    name: tuple[str, ...]
    decision: tuple[str, ...]
    beside: bool

    @staticmethod
    def of(result: Result) -> Titles:
        """Wrap name and decision where they do not fit beside each other."""
        name, decision = printable(result.instance_name) or "(unnamed)", _decision(result)
        if 2 * len(name) + len(decision) <= MOST_LETTERS:
            return Titles((name,), (decision,), beside=True)
        return Titles(wrapped(name, LONGEST_NAME), wrapped(decision, LONGEST_LINE), beside=False)

    @property
    def extra(self) -> float:
        """Inches that they take besides `TOP`."""
        below = 0 if self.beside else len(self.decision)
        return NAME_LINE * (len(self.name) - 1) + LINE * below


NAME_LINE, LINE = 0.24, 0.19
"""Inches of a line of a name, and of other lines."""


def wrapped(text: str, width: int) -> tuple[str, ...]:
    """Break a text into at most `MOST_LINES` lines; long words break behind an underscore, if they have one."""
    parts = re.sub(r"(_+)", "\\1\0", text)  # places where a word may break
    lines: list[str] = []
    line = ""
    for part in re.split(r"(?<=[ \0])", parts):
        piece = part.replace("\0", "")
        if len(line + piece.rstrip()) > width and line:
            lines.append(line.rstrip())
            line = ""
        line += piece
        while len(line.rstrip()) > width:
            lines.append(line[:width])
            line = line[width:]
        if len(lines) > MOST_LINES:
            break
    lines += [line.rstrip()] if line.strip() else []
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], lines[MOST_LINES - 1][: width - 3] + "..."]
    return tuple(lines)


def title_inches(result: Result) -> float:
    """Return the height of the titles of a picture, in inches."""
    return TOP + Titles.of(result).extra


def add_titles(figure: Figure, result: Result, height: float, *, about: str = "") -> None:
    """Write the instance's name, the first decision, the outcome and the contents of the peak above a picture.

    `height` is the picture's height in inches. A remark `about` replaces the contents of the peak.
    """
    assert result.report is not None
    titles = Titles.of(result)
    soft: dict[str, Any] = {"va": "center", "color": "#404040", "parse_math": False}
    for place, line in enumerate(titles.name):
        y = 1 - (0.3 + NAME_LINE * place) / height
        figure.text(LEFT, y, line, fontsize=13, fontweight="bold", va="center", parse_math=False)
    under = height - TOP - titles.extra  # where the axes begin
    for place, line in enumerate(titles.decision):
        if titles.beside:
            figure.text(RIGHT, 1 - 0.3 / height, line, ha="right", **soft)
        else:
            figure.text(LEFT, (under + 0.42 + LINE * (len(titles.decision) - place)) / height, line, **soft)
    parts = [f"algorithm {result.algorithm}", f"makespan {format_time(result.report.makespan, result.units)}"]
    if result.orders is not None:
        parts.append(f"devices idle {format_percent(result.idle_share or 0.0)}")
    elif result.overhead is not None:
        parts.append(f"overhead {format_percent(result.overhead)}")
    parts.append(str(result.status))
    if result.lower_bound and result.gap:
        parts.append(f"gap to the lower bound {format_percent(result.gap)}")
    parts.append(counted(len(result.steps), "step"))
    if about:
        parts.append(about)
    figure.text(LEFT, (under + 0.42) / height, "  ·  ".join(parts), **soft)
    if not about:
        figure.text(LEFT, (under + 0.2) / height, peak_in_words(result), **soft)


def _decision(result: Result) -> str:
    """Return the main decision in words; of a pipeline, how much is recomputed."""
    report = result.report
    assert report is not None
    if result.orders is None:
        return main_decision(result)
    if not report.recompute_time:
        return "no recomputation"
    return f"recomputation {format_time(report.recompute_time, result.units)} on all devices"


MOST_KINDS = 3
"""Maximum number of kinds of bytes that a line describes one by one."""


def peak_in_words(result: Result) -> str:
    """Describe the contents of the fullest memory at its peak by kind, and the distance to its capacity."""
    assert result.report is not None
    name = fullest_memory(result)
    index = result.machine.memory_index[name]
    kinds = list(composition_of(result).contents[index].at_peak.items())
    labels = labels_of(result)
    told = [f"{labels[kind]} {format_size(bytes_, result.units)}" for kind, bytes_ in kinds]
    if len(told) > MOST_KINDS + 1:
        rest = sum(bytes_ for _, bytes_ in kinds[MOST_KINDS:])
        told = [*told[:MOST_KINDS], f"{len(told) - MOST_KINDS} more {format_size(rest, result.units)}"]
    words = ", ".join(told)
    used = [memory.name for memory in result.machine.memories if result.report.peaks[memory.name].size]
    what = "fullest memory" if len(used) > 2 else "peak of"
    text = f"{what} {shown_name(name)} {peak_text(result, name)}" + (f": {words}" if len(kinds) > 1 else "")
    others = [other for other in used if other != name]
    if len(others) == 1:
        size = format_budget(result.report.peaks[others[0]].size, result.units)
        text += f"  ·  peak of {shown_name(others[0])} {size}"
    return text


def peak_text(result: Result, name: str) -> str:
    """Return the peak of a memory, and how much of its capacity that is."""
    assert result.report is not None
    size = result.report.peaks[name].size
    capacity = result.machine.memories[result.machine.memory_index[name]].capacity
    limit = "" if capacity is None else f" of {format_budget(capacity, result.units)}"
    return f"{format_budget(size, result.units)}{limit}"


@cache
def text_points(text: str, size: float) -> float:
    """Return the width of a text in points, in the font of all pictures."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(text, FontProperties(size=size), ismath=False)
    return float(width)


def count_ticks(axis: Axis) -> None:
    """Write the ticks of an axis with commas between thousands."""
    from matplotlib.ticker import FuncFormatter

    def text(value: float, _: object) -> str:
        return f"{float(f'{value:.10g}'):,.10g}" if abs(value) < 1e15 else f"{value:.4g}"

    axis.set_major_formatter(FuncFormatter(text))


def add_legend(
    figure: Figure, colours: Mapping[str, str], notes: Sequence[str], height: float, *, above: float = 0.06
) -> None:
    """Write a legend of labels and colours into a picture of so many inches, and remarks to its right.

    `above` is how many inches above the lower edge it stands.
    """
    from matplotlib.patches import Patch

    # Next to each other if both fit, by the average width of letters; otherwise the remarks are below.
    letters, remarks = sum(map(len, colours)), "; ".join(notes)
    if notes and 0.0066 * letters + 0.042 * len(colours) + 0.0053 * len(remarks) > RIGHT - LEFT:
        above += 0.17
    handles = [Patch(facecolor=colour, label=label) for label, colour in colours.items()]
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(LEFT - 0.007, above / height),
        ncols=max(len(handles), 1),
        frameon=False,
        handlelength=1.1,
        handleheight=1.0,
        columnspacing=1.6,
        borderpad=0,
    )
    if notes:
        figure.text(
            RIGHT,
            0.08 / height,
            remarks,
            ha="right",
            va="bottom",
            fontsize=7.5,
            color="#606060",
            parse_math=False,
        )


@dataclass(frozen=True)
class TimeScale:
    """The display of times: divided by `factor`, in `unit`."""

    factor: float
    unit: str

    @staticmethod
    def of(makespan: float, units: Units) -> TimeScale:
        """Choose the unit in which a makespan is at least 1."""
        if units.time == "unit":
            return TimeScale(1.0, "units")
        in_seconds = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
        own = in_seconds[units.time]
        unit = next((name for name, seconds in in_seconds.items() if makespan * own >= seconds), "ns")
        return TimeScale(in_seconds[unit] / own, unit.replace("us", "µs"))
