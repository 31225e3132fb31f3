"""Time loops for the adjoint kind: equal steps with storage levels, and steps that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remat.generate import check
from remat.generate.check import Number
from remat.generate.document import Document, document, units_of
from remat.generate.draw import Draw
from remat.units import Units, parse_bandwidth, parse_size, parse_time

MOST_STEPS = 10**9
LONGEST_LIST = 1_000_000

Level = Mapping[str, object]

_TEXT_FIELDS = ("name", "channel")
_SIZE_FIELDS = ("capacity", "slots")
_NUMBER_FIELDS = ("write_time", "read_time", "bandwidth")


def time_loop(
    *,
    steps: int = 100,
    forward_time: Number = 1,
    backward_time: Number = 1,
    state_size: int = 1,
    adjoint_size: int | None = None,
    storage: str | Sequence[Level] = "",
    initial_state: str = "live",
    tape_size: int | None = None,
    units: str = "unit",
) -> Document:
    """Return an adjoint of equal time steps.

    Parameters
    ----------
    steps : int
        n, Griewank and Walther's number of time steps (the loop's last forward is part of the taping).
    forward_time, backward_time : number
        Times of one step: uf and ub of the literature.
    state_size : int
    adjoint_size : int, optional
        Default: `state_size`.
    storage : str or sequence of mappings
        Checkpoint levels, see `parse_storage`; none: everything lives in one memory.
    initial_state : str
        ``live``, or the level that also holds the first state from the start.
    tape_size : int, optional
        Size of one step's tape, if tapes can be stored.
    units : {"unit", "si"}
        Whether the numbers are plain units, or seconds and bytes.

    Returns
    -------
    dict
        Kind ``adjoint``.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62.
    """
    check.integer("steps", steps, minimum=1, maximum=MOST_STEPS)
    state = check.integer("state_size", state_size)
    adjoint = None if adjoint_size is None else check.integer("adjoint_size", adjoint_size)
    tape = None if tape_size is None else check.integer("tape_size", tape_size)
    check.choice("units", units, ("unit", "si"))
    check.total([steps * (state + (adjoint or 0) + (tape or 0))], "lower state_size or steps")
    forward, backward = check.number("forward_time", forward_time), check.number("backward_time", backward_time)
    levels = parse_storage(storage, units)
    _check_initial(initial_state, levels)
    kept = " and ".join(f"{level['name']}" for level in levels) or "the working memory alone"
    return document(
        kind="adjoint",
        name=f"time_loop_n{steps}",
        description=f"Adjoint of {steps} equal time steps, forward {forward}, backward {backward}, "
        f"state of {state}, checkpoints in {kept}",
        units=units_of(units),
        steps=steps,
        forward_time=forward,
        backward_time=backward,
        state_size=state,
        adjoint_size=adjoint,
        storage=levels or None,
        initial_state=None if initial_state == "live" else initial_state,
        tape_size=tape,
    )


def heterogeneous_time_loop(
    *,
    steps: int = 100,
    min_time: int = 1,
    max_time: int = 20,
    backward_factor: Number = 2,
    min_size: int = 1,
    max_size: int = 1,
    storage: str | Sequence[Level] = "",
    initial_state: str = "live",
    units: str = "unit",
    seed: int = 0,
) -> Document:
    """Return an adjoint whose steps have their own times and, with a range, their own state sizes.

    Parameters
    ----------
    steps : int
        Number of time steps.
    min_time, max_time : int
        Range of a step's forward time (uniform).
    backward_factor : number
        Backward time over forward time.
    min_size, max_size : int
        Range of a step's state size; the adjoint is as large.
    storage, initial_state
        As for `time_loop`.
    units : {"unit", "si"}
        Whether the numbers are plain units, or seconds and bytes.
    seed : int

    Returns
    -------
    dict
        Kind ``adjoint``; without a range of sizes, the state size stands once for all steps.

    Raises
    ------
    ValueError
        A parameter out of range, or sizes beyond 2^62.
    """
    check.integer("steps", steps, minimum=1, maximum=LONGEST_LIST)
    least_time, most_time = check.bounds("min_time", min_time, "max_time", max_time)
    least_size, most_size = check.bounds("min_size", min_size, "max_size", max_size)
    factor = check.number("backward_factor", backward_factor)
    check.number("backward_factor * max_time", factor * most_time)
    check.choice("units", units, ("unit", "si"))
    check.total([2 * steps * most_size], "lower max_size or steps")
    levels = parse_storage(storage, units)
    _check_initial(initial_state, levels)
    draw = Draw(check.seed(seed))
    listed: list[dict[str, Number]] = []
    for _ in range(steps):
        forward = draw.integer(least_time, most_time)
        step: dict[str, Number] = {
            "forward_time": forward,
            "backward_time": check.number("backward_time", factor * forward),
        }
        if least_size < most_size:
            step["state_size"] = draw.integer(least_size, most_size)
        listed.append(step)
    return document(
        kind="adjoint",
        name=f"heterogeneous_time_loop_n{steps}_seed{seed}",
        description=f"Adjoint of {steps} time steps that differ: forward times {least_time} to {most_time}, "
        f"backward {factor} times that, state sizes {least_size} to {most_size}, seed {seed}",
        units=units_of(units),
        steps=listed,
        state_size=most_size,
        storage=levels or None,
        initial_state=None if initial_state == "live" else initial_state,
    )


def parse_storage(storage: str | Sequence[Level], units: str = "si") -> list[dict[str, object]]:
    """Return the storage levels of an adjoint, from mappings or from their one-line form.

    Parameters
    ----------
    storage : str or sequence of mappings
        Levels separated by ``;``, each a name and its fields: ``"ram:slots=10; disk:bandwidth=2e9"``.
        Fields: ``capacity`` or ``slots``, ``write_time``, ``read_time``, ``bandwidth``, ``channel``. Values
        that carry a unit (``capacity=8GiB``, ``bandwidth=2GB/s``) go into the document as they are.
    units : {"unit", "si"}
        What the document counts in: plain units leave no room for bytes and seconds.

    Returns
    -------
    list of dict
        Empty for an empty string.

    Raises
    ------
    ValueError
        An unknown field, a value that is no number, or has a unit that is unknown or does not go with the document's,
        two levels of one name.
    """
    counted = Units() if units == "si" else Units("unit", "unit")
    entries = _parse_line(storage) if isinstance(storage, str) else [dict(level) for level in storage]
    levels = [_level(entry, counted) for entry in entries]
    names = [level["name"] for level in levels]
    for name in names:
        if names.count(name) > 1 or name == "working":
            raise ValueError(f"storage: level name {name!r} is already used; level names must differ")
    return levels


def _parse_line(line: str) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = []
    for text in filter(None, (part.strip() for part in line.split(";"))):
        name, _, fields = text.partition(":")
        entry: dict[str, object] = {"name": name.strip()}
        for field in filter(None, (part.strip() for part in fields.split(","))):
            key, equals, value = field.partition("=")
            if not equals:
                raise ValueError(f"storage: {field!r} is not of the form field=value, as in 'disk:slots=10'")
            if key.strip() in entry:
                raise ValueError(f"storage: level {name!r} gives {key.strip()!r} twice")
            entry[key.strip()] = value.strip()
        entries.append(entry)
    return entries


def _level(entry: Mapping[str, object], units: Units) -> dict[str, object]:
    if not entry.get("name"):
        raise ValueError("storage: a level has no name; write name:field=value, as in 'disk:slots=10'")
    known = (*_TEXT_FIELDS, *_SIZE_FIELDS, *_NUMBER_FIELDS)
    level: dict[str, object] = {}
    for key, value in entry.items():
        if key not in known:
            raise ValueError(
                f"storage: unknown field {key!r}, known are {', '.join(known)}{check.suggestion(key, known)}"
            )
        level[key] = value if key in _TEXT_FIELDS or value is None else _quantity(key, value, units)
    if level.get("capacity") is not None and level.get("slots") is not None:
        raise ValueError(f"storage: level {level['name']!r} has both capacity and slots; give one of them")
    return level


def _quantity(key: str, value: object, units: Units) -> object:
    """Return a number as a number; text with a unit stays, if it can be read in the document's units."""
    quantity = value
    if isinstance(value, str):
        try:
            quantity = float(value) if set(value) & set(".eEn") else int(value)
        except ValueError:
            if key == "slots" or not value[:1].isdigit():
                raise ValueError(f"storage: {key} {value!r} is not a number") from None
            return _with_unit(key, value, units)
    if key in _SIZE_FIELDS:
        if isinstance(quantity, float) and quantity.is_integer():
            quantity = int(quantity)
        return check.integer(f"storage: {key}", quantity)
    return check.number(f"storage: {key}", quantity, positive=key == "bandwidth")


def _with_unit(key: str, value: str, units: Units) -> str:
    read = parse_size if key in _SIZE_FIELDS else parse_bandwidth if key == "bandwidth" else parse_time
    try:
        read(value, units)
    except ValueError as error:
        remedy = "; units=si counts seconds and bytes" if units.time == "unit" else ""
        raise ValueError(f"storage: {key}: {error}{remedy}") from None
    return value


def _check_initial(initial_state: str, levels: Sequence[Level]) -> None:
    check.choice("initial_state", initial_state, ["live", *(str(level["name"]) for level in levels)])
