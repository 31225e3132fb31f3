"""Entry points of installed packages, without `importlib.metadata`, whose import takes the time of a solve."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

_PLAIN = re.compile(r"[\w.]+:[\w.]+", re.ASCII)


class Point(NamedTuple):
    """An entry point, with the interface of `importlib.metadata.EntryPoint`."""

    name: str
    value: str

    def load(self) -> Any:
        """Import the object that the entry point names."""
        module, _, attributes = self.value.partition(":")
        return reduce(getattr, attributes.split("."), import_module(module))


def entry_points(group: str) -> list[Any]:
    """Return the entry points of a group, as `importlib.metadata.entry_points` does."""
    found = _in_folders(group)
    if found is not None:
        return list(found)
    from importlib import metadata

    return list(metadata.entry_points(group=group))


def _in_folders(group: str) -> list[Point] | None:
    """Return the entry points if all packages are unpacked in plain folders and their files have the usual form."""
    if any(hasattr(finder, "find_distributions") for finder in sys.meta_path if finder is not PathFinder):
        return None
    seen: set[str] = set()
    found: list[Point] = []
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except (FileNotFoundError, NotADirectoryError) as error:
            if isinstance(error, FileNotFoundError):
                continue
            return None  # a packed package
        except OSError:
            return None
        for name in names:
            stem, kind = os.path.splitext(name)
            if kind == ".egg":
                return None
            if kind not in (".dist-info", ".egg-info"):
                continue
            package = re.sub(r"[-_.]+", "-", stem.partition("-")[0]).lower()
            if package in seen:  # the first one on the path counts
                continue
            seen.add(package)
            points = _of_package(os.path.join(folder, name, "entry_points.txt"), group)
            if points is None:
                return None
            found += points
    return found


def _of_package(path: str, group: str) -> list[Point] | None:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None
    if group.encode() not in data:
        return []
    points = [Point(name, value) for section, name, value in _lines(data.decode("utf-8")) if section == group]
    return points if all(_PLAIN.fullmatch(point.value) for point in points) else None


def _lines(text: str) -> Iterator[tuple[str, str, str]]:
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield section, name.strip(), value.strip()
