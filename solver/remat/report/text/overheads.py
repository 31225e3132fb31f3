"""The one phrase for an extra time: a share of a reference that it names."""

from __future__ import annotations

from remat.solving.reference_words import WITHOUT_RECOMPUTATION
from remat.units import Number, format_time


def percent(share: float, *, signed: bool = True) -> str:
    """Format a share in per cent with three digits: ``+12.3 %``."""
    value = 100 * share if abs(share) > 1e-9 else 0.0  # sums of floats in another order
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    text = "0" if float(text.replace(",", "")) == 0 else text  # no "-0"
    return f"+{text} %" if signed and value > 0 else f"{text} %"


def over_reference(overhead: float, reference: Number) -> str:
    """Return an overhead with the seconds that it refers to: ``+12.3 % over the 1.5 s without recomputation``."""
    return f"{percent(overhead)} over the {format_time(reference)} {WITHOUT_RECOMPUTATION}"
