"""Records as comma-separated values, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from remat.messages import printable

_FORMULAS = ("=", "+", "-", "@")


def to_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return flat records of equal keys as CSV with a header line.

    Names and messages may come from untrusted files. Control characters are escaped, and texts that a spreadsheet
    would read as formulas get a leading apostrophe. Numbers are unchanged.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in record.items()} for record in records)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    shown = printable(value)
    return f"'{shown}" if shown.startswith(_FORMULAS) else shown
