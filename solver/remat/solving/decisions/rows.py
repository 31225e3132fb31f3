"""Rows of decisions: a sequence that turns into records or a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeVar, overload

from remat.errors import OptionError, RematError
from remat.messages import brief, nearest


class Row(Protocol):
    """One row."""

    @property
    def decision(self) -> str:
        """The decision, such as ``recomputed``."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a JSON object."""
        ...


R = TypeVar("R", bound=Row)


class Rows(Sequence[R]):
    """A sequence of rows."""

    _possible: ClassVar[tuple[str, ...]] = ()
    """The decisions that a row may have."""

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

    def __repr__(self) -> str:
        counts = {kind: len(self._with(kind)) for kind in self._possible}
        return f"{type(self).__name__}({', '.join(f'{kind}: {count}' for kind, count in counts.items() if count)})"

    def _with(self, decision: str) -> list[R]:
        """Return the rows with a decision.

        Raises
        ------
        remat.OptionError
            If no row can have this decision.
        """
        if decision not in self._possible:
            near = nearest(decision, self._possible)
            hint = f"did you mean {near!r}?" if near else f"it is one of {', '.join(self._possible)}"
            raise OptionError(f"{brief(decision)} is not a decision; {hint}", argument="decision")
        return [row for row in self._rows if row.decision == decision]

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
