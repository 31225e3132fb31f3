"""Rows of decisions: a sequence that turns into records or a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, overload

from remat.errors import RematError


class Row(Protocol):
    """One row."""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        ...


R = TypeVar("R", bound=Row)


class Rows(Sequence[R]):
    """A sequence of rows."""

    def __init__(self, rows: Sequence[R]) -> None:
        self._rows = tuple(rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[R]: ...
    def __getitem__(self, index: int | slice) -> R | Sequence[R]:
        """Return a row by its number, or several by a slice."""
        if isinstance(index, int) and not self._rows:
            raise IndexError("there are no rows: there is no schedule, or the instance has no stages")
        return self._rows[index]

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as JSON objects."""
        return [row.to_dict() for row in self._rows]

    def to_frame(self) -> Any:
        """Return the rows as a `pandas.DataFrame`.

        Raises
        ------
        remat.RematError
            Without pandas.
        """
        try:
            import pandas
        except ImportError:
            raise RematError("a frame needs pandas: pip install pandas") from None
        return pandas.DataFrame(self.to_dicts())
