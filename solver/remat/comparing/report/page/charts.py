"""Charts of the report as inline SVG: performance profile, and makespan against budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from html import escape
from itertools import pairwise

from remat.messages import counted

WIDTH, HEIGHT = 460, 260
LEFT, RIGHT, TOP, BOTTOM = 60, 12, 22, 36
COLOURS = 8
LINEAR_UP_TO = 3.0
"""Maximum overhead with a linear axis."""

Points = Sequence[tuple[float, float]]


def colour_of(names: Sequence[str]) -> Mapping[str, str]:
    """Assign a colour (a CSS variable) to each of the first names, and the muted one to all others."""
    return {name: f"var(--s{k})" if k < COLOURS else "var(--rest)" for k, name in enumerate(names)}


def legend(names: Sequence[str], only: Set[str] | None = None) -> str:
    """Return the legend of the colours, for all names or some; muted names share an entry."""
    colours = colour_of(names)
    shown = [name for name in names if only is None or name in only]
    own = [name for name in shown if name in names[:COLOURS]]
    items = [f'<span><i style="background:{colours[name]}"></i>{escape(name)}</span>' for name in own]
    if len(shown) > len(own):
        more = ", ".join(name for name in shown if name not in own)
        count = counted(len(shown) - len(own), "other")
        items.append(f'<span title="{escape(more)}"><i style="background:var(--rest)"></i>{count}</span>')
    return f'<div class="legend">{"".join(items)}</div>'


def profile(ratios: Mapping[str, Sequence[float | None]], order: Sequence[str]) -> str:
    """Draw a performance profile (Dolan and More 2002): share of cells within a factor of the best.

    Parameters
    ----------
    ratios : mapping of algorithm to ratios to the best
        None for cells without a schedule.
    order : sequence of str
        Algorithms, best first: the order of the colours.
    """
    finite = [r for listed in ratios.values() for r in listed if r is not None and r < math.inf]
    far = min(max([1.05, *finite]), 16.0)
    series = {}
    for name in order:
        listed = ratios.get(name, ())
        known = sorted(r for r in listed if r is not None and r < math.inf)
        points = [(0.0, 0.0)]
        for count, ratio in enumerate(known, 1):
            x = math.log(min(max(1.0, ratio), far))
            points += [(x, points[-1][1]), (x, count / len(listed))]
        series[name] = [*points, (1.02 * math.log(far), points[-1][1])]
    marks = _ticks(far - 1) if far > LINEAR_UP_TO else _linear_ticks(far - 1, 8)
    x_ticks = [(math.log(1 + t), f"{1 + t:g}") for t in marks]
    axes = _Axes(x=(0.0, 1.02 * math.log(far)), y=(0.0, 1.0))
    y_ticks = [(k / 4, f"{25 * k} %") for k in range(5)]
    names = "makespan / best (logarithmic)", "share of cells"
    return axes.draw(series, order, x_ticks, y_ticks, names, dots=False)


def curves(
    series: Mapping[str, Points], order: Sequence[str], size_of: Sequence[tuple[float, str]], x_name: str
) -> str:
    """Draw overhead against budget.

    Parameters
    ----------
    series : mapping of algorithm to (budget, overhead) points
    order : sequence of str
    size_of : sequence of (budget, label)
        Ticks of the budget axis.
    x_name : str
    """
    xs = [x for points in series.values() for x, _ in points]
    low, high = min(xs), max(xs)
    top = max([0.01, *(y for points in series.values() for _, y in points)])
    # If one overhead is far larger than the others, the logarithm of makespan / no-recompute time separates them.
    logarithmic = top > LINEAR_UP_TO
    bend = math.log1p if logarithmic else float
    shown = {name: sorted((x, bend(y)) for x, y in points) for name, points in series.items()}
    axes = _Axes(x=(low, high) if low < high else (low - 1, high + 1), y=(0.0, bend(top)))
    ticks = _ticks(top) if logarithmic else _linear_ticks(top)
    y_ticks = [(bend(t), f"{100 * t:,g} %") for t in ticks]
    names = x_name, "overhead (logarithmic)" if logarithmic else "overhead"
    return axes.draw(shown, order, size_of, y_ticks, names, dots=True)


def _linear_ticks(top: float, most: int = 5) -> list[float]:
    """Return equidistant round figures from 0 to `top`, at most so many beside 0."""
    step = next(t * 10.0**k for k in range(-6, 8) for t in (1, 2, 5) if t * 10.0**k >= top / most)
    return [float(f"{k * step:.6g}") for k in range(int(top / step * (1 + 1e-9)) + 1)]


def _ticks(top: float) -> list[float]:
    """Return a few round overheads up to `top`, well separated on a logarithmic axis of 1 + overhead."""
    chosen = [0.0]
    for tick in (t * 10.0**k for k in range(-4, 8) for t in (1, 2, 5)):
        if tick <= top * 1.0001 and math.log1p(tick) - math.log1p(chosen[-1]) >= math.log1p(top) / 7:
            chosen.append(tick)
    return [float(f"{tick:.6g}") for tick in chosen]


CLOSE = 1.5
"""Lines that are no further apart, in pixels, cannot be told apart."""


def _pieces(places: Sequence[str]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Return the straight segments of a line between positions: heights of both ends by their horizontal positions."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for a, b in pairwise(places):
        (x0, _, y0), (x1, _, y1) = a.partition(","), b.partition(",")
        if a != b:
            found.setdefault((x0, x1), []).append((float(y0), float(y1)))
    return found


def _meet(one: Mapping[tuple[str, str], Points], other: Mapping[tuple[str, str], Points]) -> bool:
    """Whether two lines have segments that cannot be told apart."""
    return any(
        abs(y0 - z0) < CLOSE and abs(y1 - z1) < CLOSE
        for ends in one.keys() & other.keys()
        for y0, y1 in one[ends]
        for z0, z1 in other[ends]
    )


class _Axes:
    """A frame with linear axes."""

    def __init__(self, *, x: tuple[float, float], y: tuple[float, float]) -> None:
        self._x, self._y = x, y

    def _at(self, x: float, y: float) -> str:
        (x0, x1), (y0, y1) = self._x, self._y
        across = LEFT + (WIDTH - LEFT - RIGHT) * (x - x0) / (x1 - x0)
        down = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - y0) / (y1 - y0)
        return f"{across:.1f},{down:.1f}"

    def draw(
        self,
        series: Mapping[str, Points],
        order: Sequence[str],
        x_ticks: Sequence[tuple[float, str]],
        y_ticks: Sequence[tuple[float, str]],
        names: tuple[str, str],
        *,
        dots: bool,
    ) -> str:
        """Return the SVG, with `names` of both axes; where lines coincide, the gaps of the later show the earlier."""
        x_name, y_name = names
        label = f"{y_name} over {x_name}"
        parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">']
        parts.append(f'<text x="4" y="12">{escape(y_name)}</text>')
        for y, text in y_ticks:
            a, b = self._at(self._x[0], y), self._at(self._x[1], y)
            parts.append(f'<path class="axis" d="M{a} L{b}"/>')
            parts.append(
                f'<text x="{LEFT - 6}" y="{float(a.split(",")[1]) + 4:.1f}" text-anchor="end">{escape(text)}</text>'
            )
        for x, text in x_ticks:
            across = self._at(x, self._y[0]).split(",")[0]
            anchor = "end" if float(across) > WIDTH - 3 * RIGHT else "middle"
            parts.append(f'<text x="{across}" y="{HEIGHT - BOTTOM + 15}" text-anchor="{anchor}">{escape(text)}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(x_name)}</text>')
        colours = colour_of(order)
        drawn = [name for name in order if name in series]
        pieces = {name: _pieces([self._at(x, y) for x, y in series[name]]) for name in drawn}
        for k, name in enumerate(drawn):
            points = series[name]
            below = min(sum(_meet(pieces[name], pieces[better]) for better in drawn[:k]), 3)
            dash = f' stroke-dasharray="5 {5 * below}"' if below else ""
            path = " L".join(self._at(x, y) for x, y in points)
            size, fill = f"{2.8 - 0.6 * below:g}", colours[name]
            marks = "".join(
                f'<circle cx="{c.split(",")[0]}" cy="{c.split(",")[1]}" r="{size}" fill="{fill}"/>'
                for c in (self._at(x, y) for x, y in points)
            )
            parts.append(
                f'<g class="one"><title>{escape(name)}</title><path class="series" stroke="{colours[name]}" '
                f'stroke-width="2"{dash} d="M{path}"/>{marks if dots else ""}</g>'
            )
        return "".join([*parts, "</svg>"])
