"""The common frame of generated documents: schema, kind, name, description, units."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

Document: TypeAlias = dict[str, Any]
"""A JSON object of `remat.instance/1`."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A lazy list of objects, created anew by each iteration.

    Parameters
    ----------
    count : int
        Number of objects.
    make : callable
        Yields the objects.
    """

    count: int
    make: Callable[[], Iterator[Document]]

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Document]:
        return self.make()


SECONDS_AND_BYTES = {"time": "s", "memory": "B"}
UNITLESS = {"time": "unit", "memory": "unit"}


def document(*, kind: str, name: str, description: str, units: dict[str, str], **body: Any) -> Document:
    """Return a document in the key order that people expect; body entries that are None are left out."""
    frame: Document = {
        "schema": "remat.instance/1",
        "kind": kind,
        "name": name,
        "description": description,
        "units": dict(units),
    }
    frame.update((key, value) for key, value in body.items() if value is not None)
    return frame


def units_of(choice: str) -> dict[str, str]:
    """Return the units that the parameter ``units`` names: ``si`` (seconds and bytes) or ``unit``."""
    return UNITLESS if choice == "unit" else SECONDS_AND_BYTES
