"""The conventions of the public package `checkpoint_schedules`, reproduced without importing it.

There, a schedule is a sequence of actions:

- ``Forward(n0, n1, write_ics, write_adj_deps, storage)``: run steps n0 .. n1-1. `write_ics` stores the data to restart
  step n0 *and to advance from it to n1*, under the key n0. `write_adj_deps` stores the tapes of these steps for their
  adjoint, in working memory or under the key n0;
- ``Copy`` and ``Move(n, from_storage, to_storage)``: bring the data under n to working memory, which then holds only
  them; `Move` removes the data from storage;
- ``Reverse(n1, n0, clear_adj_deps)``: the adjoint of steps n1-1 .. n0, whose tapes are in working memory;
- ``EndForward()`` once step n-1 has been taken, ``EndReverse()`` at the end.

The backward of a step recomputes its tape, so it becomes a taping `Forward` and a `Reverse`. A checkpoint is written by
the `Forward` that leaves it, and later forwards from it must not go further than that one. A checkpoint is freed by
the `Move` that reads it last; a checkpoint without a reader is never written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from remat.errors import OptionError

STORAGE_TYPES = ("RAM", "DISK")


@dataclass(frozen=True, slots=True)
class BridgeAction:
    """An action of the package: the name of its class, and the arguments; storage types by name."""

    name: str
    arguments: tuple[int | bool | str, ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """Forward from the live state `first` to `last`."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Tape:
    """Forward over one step, making its tape, which is written or used next."""

    step: int


@dataclass(frozen=True, slots=True)
class Back:
    """The backward of a step whose tape is in working memory."""

    step: int


@dataclass(frozen=True, slots=True)
class Write:
    """Store the live state, or the step's tape."""

    step: int
    level: str
    tape: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """Bring a state, or a tape, to working memory; `last` removes it from storage."""

    step: int
    level: str
    tape: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class Free:
    """Remove a state, or a tape, from storage."""

    step: int
    level: str
    tape: bool = False


TidyEvent = Advance | Tape | Back | Write | Read
Event = TidyEvent | Free


def storage_types(levels: Sequence[str], chosen: Mapping[str, str] | None) -> dict[str, str]:
    """Return the storage type of each level: the first is RAM, unless it is called disk; a second one is DISK.

    Raises
    ------
    remat.OptionError
        For more than two levels without a choice, or an invalid choice.
    """
    if chosen is not None:
        for level, kind in chosen.items():
            if level not in levels:
                raise OptionError(f"storage: unknown level {level!r}; the plan has {', '.join(levels)}")
            if kind not in STORAGE_TYPES:
                raise OptionError(f"storage: level {level!r} is RAM or DISK, not {kind!r:.60}")
        missing = [level for level in levels if level not in chosen]
        if missing:
            raise OptionError(f"storage: say whether level {missing[0]!r} is RAM or DISK")
        if len(set(chosen.values())) < len(chosen):
            raise OptionError("storage: two levels have the same type; checkpoint_schedules could not tell them apart")
        return dict(chosen)
    if len(levels) > len(STORAGE_TYPES):
        raise OptionError(
            f"checkpoint_schedules knows two storage types, RAM and DISK, and the plan uses {len(levels)} levels: "
            f"{', '.join(levels)}"
        )
    if len(levels) == 1:
        return {levels[0]: "DISK" if levels[0].lower() == "disk" else "RAM"}
    return dict(zip(levels, STORAGE_TYPES, strict=False))


def tidy(events: Sequence[Event], given: Mapping[str, int] | None = None) -> list[TidyEvent]:
    """Drop writes that are never read, and turn the last read of each stored item into its removal.

    Parameters
    ----------
    events : sequence of Event
    given : mapping of str to int, optional
        Levels that hold a state from the start; the first forward writes it there instead.
    """
    # Index of each stored item's write and of its latest read.
    stored = {(state, level, False): (-1, -1) for level, state in (given or {}).items()}
    dead: set[int] = set()
    last_reads: set[int] = set()
    needed: list[TidyEvent] = []

    def remove(key: tuple[int, str, bool]) -> None:
        write, read = stored.pop(key)
        if read >= 0:
            last_reads.add(read)
            if write < 0:
                needed.append(Write(key[0], key[1]))
        elif write >= 0:
            dead.add(write)

    for index, event in enumerate(events):
        if isinstance(event, Write):
            key = (event.step, event.level, event.tape)
            if key in stored:
                remove(key)
            stored[key] = (index, -1)
        elif isinstance(event, Read):
            key = (event.step, event.level, event.tape)
            stored[key] = (stored[key][0], index)
            if event.last:
                remove(key)
        elif isinstance(event, Free):
            remove((event.step, event.level, event.tape))
    for key in list(stored):
        remove(key)
    kept: list[TidyEvent] = []
    for index, event in enumerate(events):
        if isinstance(event, Read):
            kept.append(Read(event.step, event.level, event.tape, index in last_reads))
        elif not isinstance(event, Free) and index not in dead:
            kept.append(event)
    return needed + kept


def bridge_actions(events: Iterable[TidyEvent], steps: int, types: Mapping[str, str]) -> Iterator[BridgeAction]:
    """Turn events into actions of the package.

    Parameters
    ----------
    events : iterable of TidyEvent
        Output of `tidy`: only reads free storage.
    steps : int
    types : mapping of str to str
        Storage type of each level.

    Raises
    ------
    remat.OptionError
        If the package has no action for a step of the plan.
    """
    return _Teller(steps, types).tell(events)


@dataclass
class _Teller:
    """Converts events to actions; delays each forward until the next event to make it as long as possible."""

    steps: int
    types: Mapping[str, str]
    # The current forward: its ends, and the level to which it writes its final state.
    _forward: tuple[int, int, str | None] | None = None
    # A write that waits for the forward that leaves its state; the step whose tape has just been made.
    _write: Write | None = None
    _tape: int | None = None
    # Steps that are not yet reversed; how far each stored state carries; whether the first sweep is over.
    _left: int = 0
    _reach: dict[tuple[int, str], int] = field(default_factory=dict)
    _swept: bool = False

    def tell(self, events: Iterable[TidyEvent]) -> Iterator[BridgeAction]:
        self._left = self.steps
        for event in events:
            match event:
                case Advance(first, last):
                    yield from self._go(first, last)
                case Write(step, level, tape=True):
                    yield from self._make_tape(step, self.types[level])
                case Write(step, level):
                    yield from self._flush()
                    if self._write is not None:
                        raise OptionError(
                            f"checkpoint_schedules writes a state to one storage type; this plan writes x{step} to "
                            f"{self._write.level} and {level}"
                        )
                    self._write = event
                case Tape(step):
                    yield from self._flush()
                    self._tape = step
                case Read():
                    yield from self._flush()
                    yield from self._read(event)
                case Back(step):
                    yield from self._flush()
                    if self._tape == step:
                        yield from self._make_tape(step, "WORK")
                    yield BridgeAction("Reverse", (step + 1, step, True))
                    self._left = step
        yield BridgeAction("EndReverse")

    def _go(self, first: int, last: int) -> Iterator[BridgeAction]:
        if self._forward is not None and self._write is None and self._forward[1] == first:
            self._forward = (self._forward[0], last, self._forward[2])
            return
        yield from self._flush()
        level = None if self._write is None else self._write.level
        self._forward, self._write = (first, last, level), None

    def _flush(self) -> Iterator[BridgeAction]:
        if self._forward is None:
            return
        (first, last, level), self._forward = self._forward, None
        if level is not None:
            self._reach[first, level] = last
        storage = "WORK" if level is None else self.types[level]
        yield BridgeAction("Forward", (first, last, level is not None, False, storage))
        yield from self._end_of_sweep(last)

    def _make_tape(self, step: int, storage: str) -> Iterator[BridgeAction]:
        yield from self._flush()
        self._tape = None
        restarts = False
        if self._write is not None:
            # One forward writes both, to one place.
            if self.types[self._write.level] != storage:
                raise OptionError(
                    f"checkpoint_schedules writes state and tape of a step to one place; this plan keeps x{step} in "
                    f"{self._write.level} and its tape in {storage}"
                )
            restarts, self._write = True, None
        yield BridgeAction("Forward", (step, step + 1, restarts, True, storage))
        yield from self._end_of_sweep(step + 1)

    def _end_of_sweep(self, reached: int) -> Iterator[BridgeAction]:
        if reached == self.steps and not self._swept:
            self._swept = True
            yield BridgeAction("EndForward")

    def _read(self, event: Read) -> Iterator[BridgeAction]:
        if not event.tape and self._left > self._reach.get((event.step, event.level), 0):
            raise OptionError(
                f"checkpoint_schedules cannot advance from x{event.step} to x{self._left - 1}: another checkpoint "
                f"between them was stored at the same time as x{event.step}, and this plan discards it first"
            )
        name = "Move" if event.last else "Copy"
        yield BridgeAction(name, (event.step, self.types[event.level], "WORK"))
