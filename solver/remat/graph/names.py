"""Names of tasks and values: a plain list, or numbered runs that need constant memory for a million names."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from typing import overload

import numpy as np
from numpy.typing import NDArray

NameRun = tuple[str, int | None, int]
"""Prefix, first number (None: the bare prefix) and count."""


class Names(Sequence[str]):
    """An immutable sequence of distinct names that can be searched by name.

    Parameters
    ----------
    names : iterable of str
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)

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
        return self.positions.get(name)

    def find_all(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the indices of many names, -1 for unknown names."""
        index = self.positions
        return np.fromiter(map(index.get, names, repeat(-1)), dtype=np.int64, count=len(names))

    @classmethod
    def indexed(cls, index: dict[str, int]) -> Names:
        """Return the names from a mapping of names to 0, 1, 2, ...; the mapping is kept for lookups."""
        names = cls(index)
        names.__dict__["positions"] = index
        return names

    @cached_property
    def positions(self) -> dict[str, int]:
        """The index of each name."""
        return {name: i for i, name in enumerate(self)}


FEW = 64
"""At most this many names are looked up one by one; array lookups handle at most this many prefixes."""

_LONGEST_PREFIX = 8
_TOGETHER = 1 << 12


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
        """The runs that make up the names."""
        return list(self._runs)

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            begin, end, stride = index.indices(self._total)
            return self._listed(begin, end) if stride == 1 else [self[i] for i in range(begin, end, stride)]
        if index < 0:
            index += self._total
        if not 0 <= index < self._total:
            raise IndexError(index)
        run = bisect_right(self._starts, index) - 1
        prefix, first, _ = self._runs[run]
        return prefix if first is None else f"{prefix}{first + index - self._starts[run]}"

    def _listed(self, first: int, last: int) -> list[str]:
        """Return the names in the index range from `first` to before `last`."""
        listed: list[str] = []
        for (prefix, number, count), start in zip(self._runs, self._starts, strict=True):
            begin, end = max(first, start) - start, min(last, start + count) - start
            if begin < end:
                listed += [prefix] if number is None else [f"{prefix}{k}" for k in range(number + begin, number + end)]
        return listed

    def __iter__(self) -> Iterator[str]:
        for first in range(0, self._total, _TOGETHER):
            yield from self._listed(first, first + _TOGETHER)

    def find(self, name: str) -> int | None:
        """Return the index of a name, or None."""
        prefix = name.rstrip("0123456789")
        digits = name[len(prefix) :]
        runs = self._by_prefix.get(prefix)
        if runs is None or (digits[:1] == "0" and digits != "0") or len(digits) >= 19:
            return None
        # A name without digits counts as number -1; two runs of one prefix share no number.
        number = int(digits) if digits else -1
        first, count, start = runs[max(0, bisect_right(runs, number, key=_first) - 1)]
        return start + number - first if 0 <= number - first < count else None

    def find_all(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Return the indices of many names, -1 for unknown names."""
        if len(names) > FEW and len(self._by_prefix) <= FEW:
            taken_apart = _taken_apart(names)
            if taken_apart is not None:
                return self._find_all(*taken_apart)
        found = map(self.find, names)
        return np.fromiter((-1 if index is None else index for index in found), dtype=np.int64, count=len(names))

    def _find_all(self, prefix: NDArray[np.uint64], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Find names by the code of their prefix and by their number."""
        found = np.full(len(number), -1, dtype=np.int64)
        for text, runs in self._by_prefix.items():
            data = text.encode()
            if len(data) > _LONGEST_PREFIX:
                continue
            at = np.flatnonzero(prefix == int.from_bytes(data, "little"))
            if not len(at):
                continue
            first, count, start = np.array(runs, dtype=np.int64).T
            run = np.maximum(np.searchsorted(first, number[at], side="right") - 1, 0) if len(runs) > 1 else 0
            offset = number[at] - first[run]
            found[at] = np.where((offset >= 0) & (offset < count[run]), start[run] + offset, -1)
        return found


def _taken_apart(names: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]] | None:
    """Return a code of each name's prefix (its bytes as a number), and its number, -1 if it has none.

    Return None if a name has an unusual form: a long prefix, many digits, or a number with a leading 0.
    """
    text = np.frombuffer("\n".join(names).encode("utf-8", "surrogatepass") + b"\n", dtype=np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    if len(ends) != len(names) or not text.all():  # a zero byte in a prefix would be lost in its code
        return None
    starts = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1] + 1))
    number, digits = np.zeros((2, len(names)), dtype=np.int64)
    digit = text - np.uint8(ord("0"))  # other characters wrap to more than 9
    going = ends > starts
    place, power = ends - 1, 1
    while going.any():
        if power >= 10**18:
            return None
        last = digit[place]
        going &= last <= 9
        number += np.multiply(last, power, dtype=np.int64) * going
        digits += going
        power *= 10
        place -= 1
        going &= place >= starts
        place[~going] = 0
    length = ends - starts - digits
    if length.max(initial=0) > _LONGEST_PREFIX or ((digits > 1) & (digit[starts + length] == 0)).any():
        return None
    prefix = np.zeros(len(names), dtype=np.uint64)
    for position in range(int(length.max(initial=0))):
        letter = text[np.minimum(starts + position, len(text) - 1)].astype(np.uint64)
        prefix |= np.where(position < length, letter << np.uint64(8 * position), np.uint64(0))
    return prefix, np.where(digits == 0, -1, number)


def _first(run: tuple[int, int, int]) -> int:
    return run[0]


class StageNames(Sequence[str]):
    """The user's name of the stage or layer that each task belongs to, found on demand.

    Parameters
    ----------
    tasks : Names
        The first number in a name is that of the stage, as in Fe7.2; with several chains (`joined`), the second one.
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
        """Number of the last stage of each entry, by chain."""
        return [list(accumulate(repeat for _, repeat in chain)) for chain in self._chains]


def with_module(name: str, module: str, shown: Callable[[str], str] = str) -> str:
    """Return the display name of a task: its name, and the module, stage or layer that it belongs to."""
    return f"{shown(name)} of {shown(module)}" if module and module != name else shown(name)
