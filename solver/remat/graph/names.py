"""Names of tasks and values: a plain list, or numbered runs that cost nothing at a million entries."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import overload

NameRun = tuple[str, int | None, int]
"""Prefix, first number (None: the bare prefix) and how many."""


class Names(Sequence[str]):
    """An immutable sequence of distinct names that can be searched by name.

    Parameters
    ----------
    names : iterable of str
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._index: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self._names[index]

    def find(self, name: str) -> int | None:
        """Return the index of a name, or None."""
        if self._index is None:
            self._index = {name: i for i, name in enumerate(self._names)}
        return self._index.get(name)


class NumberedNames(Names):
    """Runs of numbered names, such as F1..F9, loss, B1..B9.

    Parameters
    ----------
    runs : iterable of (prefix, first, count)
        `count` names ``prefix + str(first + i)``; `first` None stands for the bare prefix.
    """

    def __init__(self, runs: Iterable[NameRun]) -> None:
        self._runs: list[NameRun] = []
        self._starts: list[int] = []
        self._by_prefix: dict[str, list[tuple[int, int, int]]] = {}
        total = 0
        for prefix, first, count in runs:
            if count > 0:
                self._runs.append((prefix, first, count))
                self._starts.append(total)
                self._by_prefix.setdefault(prefix, []).append((-1 if first is None else first, count, total))
                total += count
        for listed in self._by_prefix.values():
            listed.sort()
        self._total = total

    @property
    def runs(self) -> list[NameRun]:
        """The runs of which the names consist."""
        return list(self._runs)

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._total))]
        if index < 0:
            index += self._total
        if not 0 <= index < self._total:
            raise IndexError(index)
        run = bisect_right(self._starts, index) - 1
        prefix, first, _ = self._runs[run]
        return prefix if first is None else f"{prefix}{first + index - self._starts[run]}"

    def __iter__(self) -> Iterator[str]:
        for prefix, first, count in self._runs:
            if first is None:
                yield prefix
            else:
                for number in range(first, first + count):
                    yield f"{prefix}{number}"

    def find(self, name: str) -> int | None:
        """Return the index of a name, or None."""
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        runs = self._by_prefix.get(prefix)
        if runs is None or (digits[:1] == "0" and digits != "0") or len(digits) >= 19:
            return None
        # A name without digits counts as number -1; no two runs of a prefix have a number in common.
        number = int(digits) if digits else -1
        first, count, start = runs[max(0, bisect_right(runs, number, key=_first) - 1)]
        return start + number - first if 0 <= number - first < count else None


def _first(run: tuple[int, int, int]) -> int:
    return run[0]


class StageNames(Sequence[str]):
    """The own name of the stage or layer that each task belongs to, found when it is asked for.

    Parameters
    ----------
    tasks : Names
        Whose first number is that of the stage, as in Fe7.2; of several chains (`joined`), the second one.
    chains : sequence of (name, repeat), one for each chain
    """

    def __init__(self, tasks: Names, chains: Sequence[Sequence[tuple[str, int]]], *, joined: bool = False) -> None:
        self._tasks = tasks
        self._chains = chains
        self._joined = joined

    def __len__(self) -> int:
        return len(self._tasks)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        numbers = [int(number) for number in re.findall("[0-9]+", self._tasks[index])]
        if not numbers:  # the loss
            return ""
        chain, stage = numbers[:2] if self._joined else (1, numbers[0])
        return self._chains[chain - 1][bisect_left(self._ends[chain - 1], stage)][0]

    @cached_property
    def _ends(self) -> list[list[int]]:
        """Number of the last stage of each entry, in each chain."""
        return [list(accumulate(repeat for _, repeat in chain)) for chain in self._chains]


def with_module(name: str, module: str, shown: Callable[[str], str] = str) -> str:
    """Return what people see of a task: its name, and the module, stage or layer that it belongs to."""
    return f"{shown(name)} of {shown(module)}" if module and module != name else shown(name)
