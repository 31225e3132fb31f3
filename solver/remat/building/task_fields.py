"""Fields of tasks that have no column (entries by type of processor, processors, collectives), and their origin."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

from remat.building.arrays import check_count
from remat.building.columns import entries, is_scalar, listed
from remat.errors import InstanceError
from remat.instance.columns import GraphColumns, Tasks, Values
from remat.instance.fields import LONGEST_NAME
from remat.instance.native import native
from remat.instance.tasks import Origin, Parallel
from remat.messages import brief

FIELDS = ("on", "parallel", "parts", "busy")
"""Arguments of `remat.dag` whose entries are those of documents."""

_OF_ALL = {"parallel": frozenset(Parallel.model_fields), "origin": frozenset(Origin.model_fields)}
"""The keys of a mapping that is one entry for all tasks."""


def types_of(machine: Any) -> frozenset[str]:
    """Return the types of processors that the `machine` part of a document mentions."""
    processors = machine.get("processors") if isinstance(machine, Mapping) else None
    if not isinstance(processors, list):
        return frozenset()
    return frozenset(str(one["type"]) for one in processors if isinstance(one, Mapping) and one.get("type"))


def by_type(argument: str, given: Any, rows: Collection[Hashable], types: frozenset[str]) -> Any:
    """Return a mapping of type -> column as one column of type -> entry; anything else unchanged.

    A mapping is by type if all its keys are types, and none is the name of a row.
    """
    if not isinstance(given, Mapping) or not given or not types.issuperset(given) or any(row in given for row in rows):
        return given
    return listed({argument: given})[argument]


def is_one_for_all(argument: str, given: Any) -> bool:
    """Whether a mapping is one entry for all rows, not one for each."""
    return isinstance(given, Mapping) and not _OF_ALL.get(argument, frozenset()).isdisjoint(given)


def divided(argument: str, given: Any, count: int) -> tuple[Any, dict[int, Any]]:
    """Return a column with 0 in place of the entries by type, and these entries by row."""
    if isinstance(given, Mapping):
        return 0, dict.fromkeys(range(count), native(given))
    if is_scalar(given) or getattr(getattr(given, "dtype", None), "kind", "O") != "O":
        return given, {}
    plain = entries(argument, given)
    found = {index: entry for index, entry in enumerate(plain) if isinstance(entry, dict)}
    return (given, found) if not found else ([0 if index in found else one for index, one in enumerate(plain)], found)


def fields(argument: str, given: Any, count: int) -> dict[int, Any]:
    """Return the entries of a field by row; None leaves it out."""
    if given is None:
        return {}
    if is_one_for_all(argument, given):
        return dict.fromkeys(range(count), native(given))
    plain = native(given) if is_scalar(given) else entries(argument, given)
    every = plain if isinstance(plain, list) else [plain] * count
    check_count(argument, len(every), count)
    if argument == "on":
        every = [[one] if isinstance(one, str) else one for one in every]
    return {index: one for index, one in enumerate(every) if one is not None and not (argument == "busy" and not one)}


def origins(given: Any, count: int) -> tuple[tuple[str | None, ...] | None, ...]:
    """Return the column of origins: module, operator and source of each task; a text is the module."""
    one = isinstance(given, Mapping) or is_scalar(given)
    listed_entries = [native(given)] if one else entries("origin", given)
    if not one:
        check_count("origin", len(listed_entries), count)
    found = [_origin(entry, "origin" if one else f"origin[{at}]") for at, entry in enumerate(listed_entries)]
    return tuple(found * count if one else found)


_ORIGIN = tuple(Origin.model_fields)


def _origin(entry: Any, at: str) -> tuple[str | None, ...] | None:
    if entry is None:
        return None
    texts = {"module": entry} if isinstance(entry, str) else entry
    if not isinstance(texts, dict):
        raise InstanceError(f"expected a dict, or the name of a module, not {brief(entry)}", at)
    for key, text in texts.items():
        if key not in _ORIGIN:
            raise InstanceError(f"unknown key; an origin has {', '.join(_ORIGIN)}", f"{at}.{key}")
        if not isinstance(text, str) or len(text) > LONGEST_NAME:
            raise InstanceError(f"{brief(text)} is not a text of at most {LONGEST_NAME} characters", f"{at}.{key}")
    return tuple(texts.get(key) for key in _ORIGIN)


def named_parts(parts: dict[int, Any], names: Sequence[str]) -> dict[int, Any]:
    """Return parts of collectives whose values may be given by index, with names."""
    found = dict[int, Any]()
    for index, listed_parts in parts.items():
        if not isinstance(listed_parts, list):
            raise InstanceError(f"expected a list of dicts, not {brief(listed_parts)}", f"parts[{index}]")
        found[index] = [_named(part, names) for part in listed_parts]
    return found


def written_by(parts: Mapping[int, Any]) -> frozenset[str]:
    """Return the values that parts of collectives write."""
    every = [part for listed_parts in parts.values() for part in listed_parts if isinstance(part, dict)]
    lists = [part.get("writes") for part in every]
    return frozenset(name for names in lists if isinstance(names, list) for name in names if isinstance(name, str))


def _named(part: Any, names: Sequence[str]) -> Any:
    if not isinstance(part, dict):
        return part

    def name(value: Any) -> Any:
        return names[value] if type(value) is int and 0 <= value < len(names) else value

    accesses = {key: part[key] for key in ("reads", "writes") if isinstance(part.get(key), list)}
    return part | {key: [name(value) for value in listed_values] for key, listed_values in accesses.items()}


def lists_of(columns: GraphColumns, more: Mapping[str, Mapping[int, Any]], ratios: Mapping[int, Any]) -> dict[str, Any]:
    """Return the lists of a document whose tasks or values have further fields.

    Parameters
    ----------
    columns : GraphColumns
    more : mapping
        Key of a task -> row -> entry, which replaces that of the columns.
    ratios : mapping
        Compression ratio of a value, by its row.
    """
    tasks = [task.model_dump(mode="json", by_alias=True, exclude_defaults=True) for task in Tasks(columns)]
    for key, rows in more.items():
        for index, entry in rows.items():
            tasks[index][key] = entry
    for index in more.get("parts", ()):
        if columns.declares[index] or len(columns.reads[index]) or len(columns.writes[index]):
            wrong = "a collective reads and writes in its parts; use reads= and writes=, and give it empty lists there"
            raise InstanceError(wrong, f"parts[{index}]")
        tasks[index].pop("writes")
    values = [value.model_dump(mode="json", by_alias=True, exclude_defaults=True) for value in Values(columns)]
    for index, ratio in ratios.items():
        values[index]["ratio"] = ratio
    return {"tasks": tasks, "values": values}
