"""Planning of a comparison: find instances, resolve budgets, list jobs with their keys."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from remat.comparing.cells import Answer, Cell, Job, Outcome
from remat.errors import OptionError
from remat.plugin import registry
from remat.solving.relative_budget import NOTHING, share_of
from remat.units import Units, parse_budget

EXAMPLE = "example:"
SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A document that may be an instance.

    Attributes
    ----------
    label : str
        Name in tables; unique within a comparison.
    path : str
    family : str
        Name of its folder.
    """

    label: str
    path: str
    family: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """An instance as planning needs it: the result of the worker's `describe`."""

    source: Source
    digest: str
    kind: str
    time_unit: Literal["s", "ms", "us", "ns", "unit"]
    memory_unit: Literal["B", "unit"]
    peak: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The request of a comparison.

    Attributes
    ----------
    algorithms : tuple of str
        Registry names, `auto` among them, and labels; empty for all that accept the kind, and all labels.
    labels : mapping of label to registry name
    budgets : tuple of int or str
        Sizes, or shares such as ``80%``.
    fractions : tuple of float
        Budgets as shares of the no-recompute peak. Without budgets and fractions: the instance's own machine.
    seeds : tuple of int
    options : mapping of algorithm to options
    machine : mapping or None
        Machine document that replaces the instances' own.
    threads : int
        Threads of each solve.
    time_limit : float
    gap, patience : float or None
        Criteria on which each solve may stop earlier. Part of a job's key only if they are set, so that keys of older
        journals stay valid.
    memory_limit : int or None
        Not part of a job's key: it depends on the computer, and a job that exceeds it counts as failed.
    """

    algorithms: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    budgets: tuple[int | str, ...] = ()
    fractions: tuple[float, ...] = ()
    seeds: tuple[int, ...] = (0,)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    machine: Mapping[str, Any] | None = None
    threads: int = 1
    time_limit: float = 10.0
    gap: float | None = None
    patience: float | None = None
    memory_limit: int | None = None


def find_sources(given: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """List the documents for paths, folders (searched recursively) and ``example:NAME``, sorted by label.

    ``examples`` stands for all shipped instances.

    Raises
    ------
    remat.OptionError
        If a path does not exist, or a folder contains no documents.
    """
    found: dict[str, Source] = {}
    for item in given:
        for source in _sources_of(os.fspath(item)):
            found.setdefault(os.path.realpath(source.path), source)
    return _distinct(sorted(found.values(), key=lambda source: (_by_number(source.label), str(source.path))))


def _by_number(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts names by the numbers in them: r2 before r10."""
    parts = re.split(r"([0-9]+)", name)
    return [(0, int(part), part) if k % 2 else (1, 0, part) for k, part in enumerate(parts)]


def _sources_of(text: str) -> list[Source]:
    from remat.instance.shipped import example_path, examples

    if text == "examples":
        return [_source(path, path.parents[1]) for path in examples().values()]
    if text.startswith(EXAMPLE):
        path = example_path(text.removeprefix(EXAMPLE))
        return [_source(path, path.parents[1])]
    path = Path(text)
    if path.is_dir():
        listed = [item for item in path.rglob("*") if item.name.endswith(SUFFIXES) and item.is_file()]
        listed = [item for item in listed if not any(part.startswith(".") for part in item.relative_to(path).parts)]
        if not listed:
            raise OptionError(f"{text!r} holds no .json or .json.gz files")
        return [_source(item, path) for item in listed]
    if not path.exists():
        raise OptionError(f"no such file or folder: {text!r}")
    return [_source(path, path.parent)]


def _source(path: Path, root: Path) -> Source:
    relative = path.relative_to(root).as_posix()
    for suffix in SUFFIXES:
        relative = relative.removesuffix(suffix)
    return Source(label=relative, path=str(path.resolve()), family=path.resolve().parent.name)


def _distinct(sources: Sequence[Source]) -> list[Source]:
    """Give documents of equal names, from different folders, distinct labels."""
    counts: dict[str, int] = {}
    for source in sources:
        counts[source.label] = counts.get(source.label, 0) + 1
    taken: set[str] = set()
    result = []
    for source in sources:
        label, parts = source.label, Path(source.path).parts[:-1]
        depth = 1
        while counts[source.label] > 1 and (label == source.label or label in taken) and depth <= len(parts):
            label = "/".join((*parts[-depth:], source.label.rpartition("/")[2]))
            depth += 1
        taken.add(label)
        result.append(Source(label=label, path=source.path, family=source.family))
    return result


def jobs_of(request: Request, described: Described, digests: dict[str, str] | None = None) -> list[Job | Cell]:
    """Return the jobs for one instance; combinations that are refused in advance are returned as cells.

    `digests` are those of plug-ins' sources, by package, for all instances of a comparison; new ones are added.
    """
    digests = {} if digests is None else digests
    planned: list[Job | Cell] = []
    for label in request.algorithms or [*_applicable(described.kind), *request.labels]:
        name = request.labels.get(label, label)
        version, why = _acceptable(name, described.kind)
        source = "" if why else _source_of(name, described.kind, digests)
        for budget, capacity, problem in _capacities(request, described):
            for seed in request.seeds:
                job = _job(request, described, label, version, budget, capacity, seed, source=source)
                if why or problem:
                    planned.append(Cell(job=job, answer=Answer(outcome=Outcome.REFUSED, detail=why or problem)))
                else:
                    planned.append(job)
    return planned


def unreadable(source: Source, answer: Answer) -> Cell:
    """Return the only cell of a document that is not an instance."""
    job = Job(
        key=_hash(["unreadable", source.path]),
        instance=source.label,
        source=source.path,
        family=source.family,
        digest="",
        kind="",
        time_unit="",
        memory_unit="",
        algorithm="",
        version="",
        options={},
        budget="",
        capacity=None,
        seed=0,
    )
    return Cell(job=job, answer=answer)


def _applicable(kind: str) -> list[str]:
    return [algorithm.name for algorithm in registry.algorithms(kind, available=True)]


def _acceptable(name: str, kind: str) -> tuple[str, str]:
    """Return the version of an algorithm, and the reason why it cannot run (empty if it can)."""
    if name == "auto":
        return _version_of("remat"), ""
    try:
        algorithm = registry.find(name, kind)
    except OptionError as error:
        return "", str(error)
    return _version_of(algorithm.package), ""


def _version_of(package: str) -> str:
    from remat.version import __version__

    if package in ("remat", "remat_algorithms"):
        return __version__
    found = registry.distribution_of(package)
    return "unknown" if found is None else found.version


def _source_of(name: str, kind: str, digests: dict[str, str]) -> str:
    """Return a digest of the source that a plug-in's answer comes from; of `auto`, that of all plug-ins.

    Empty without plug-ins: releases of remat have versions of their own.
    """
    asked = registry.algorithms(kind, available=True) if name == "auto" else [registry.find(name, kind)]
    packages = sorted({one.package for one in asked} - {"remat", "remat_algorithms"})
    for package in packages:
        if package not in digests:
            digests[package] = _digest_of(package)
    return _hash([digests[package] for package in packages]) if packages else ""


def _digest_of(package: str) -> str:
    """Return a digest of the Python files of a package or module; empty if they are not found."""
    # An imported module may come from elsewhere than the one that workers import.
    found_by = (finder.find_spec(package, None) for finder in sys.meta_path)
    spec = next((spec for spec in found_by if spec is not None), None)
    if spec is None:
        return ""
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    if not folders and spec.origin is not None:
        files = [Path(spec.origin)]
    found = hashlib.sha256()
    for path in files:
        with suppress(OSError):
            found.update(path.read_bytes() + b"\0")
    return found.hexdigest()


def _capacities(request: Request, described: Described) -> list[tuple[str, int | None, str]]:
    """Return (as requested, in the instance's unit, reason why it is impossible) for each budget."""
    units = Units(described.time_unit, described.memory_unit)
    listed: list[tuple[str, int | None, str]] = []
    shares = [(f"{100 * share:.4g}%", Decimal(repr(share))) for share in request.fractions]
    for budget in request.budgets:
        try:
            share = share_of(budget)
            if share is None:
                listed.append((str(budget), parse_budget(budget, units), ""))
            else:
                listed.append(_part(str(budget), share, described))
        except ValueError as error:
            listed.append((str(budget), None, f"budget: {error}"))
    listed += [_part(shown, share, described) for shown, share in shares]
    return list({(shown, size): (shown, size, why) for shown, size, why in listed}.values()) or [("", None, "")]


def _part(shown: str, share: Decimal, described: Described) -> tuple[str, int | None, str]:
    if described.peak is None:
        return shown, None, f"budget: {NOTHING.format(shown)}"
    return shown, int(share * described.peak), ""


def _job(
    request: Request,
    described: Described,
    label: str,
    version: str,
    budget: str,
    capacity: int | None,
    seed: int,
    *,
    source: str,
) -> Job:
    name, options = request.labels.get(label, label), dict(request.options.get(label, {}))
    earlier = {"gap": request.gap, "patience": request.patience}
    identity = [
        described.digest,
        request.machine,
        name,
        version,
        options,
        capacity,
        seed,
        request.time_limit,
        request.threads,
        *([earlier] if any(limit is not None for limit in earlier.values()) else []),
        *([source] if source else []),
    ]
    return Job(
        key=_hash(identity),
        instance=described.source.label,
        source=described.source.path,
        family=described.source.family,
        digest=described.digest,
        kind=described.kind,
        time_unit=described.time_unit,
        memory_unit=described.memory_unit,
        algorithm=label,
        registered=name if label in request.labels else "",
        version=version,
        options=options,
        budget=budget,
        capacity=capacity,
        seed=seed,
    )


def _hash(identity: object) -> str:
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
