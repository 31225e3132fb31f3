"""Stages of a chain by their names."""

from __future__ import annotations

from collections.abc import Sequence

from remat.plugin import ChainInstance, Problem

_SHOWN = 4
"""Names that an error lists."""


def stage_names(problem: Problem) -> list[str]:
    """Return the name of each stage of a chain, repeats expanded; empty where it has none, as the steps of a loop."""
    if not isinstance(problem.instance, ChainInstance):
        return [""] * problem.chain.length
    return [stage.name for stage in problem.instance.stages for _ in range(stage.repeat)]


def stages_named(names: Sequence[str], words: str) -> list[int]:
    """Return the stages (0-based) whose names contain one of some words, separated by commas, in either case."""
    parts = [part.strip().lower() for part in words.split(",") if part.strip()]
    return [stage for stage, name in enumerate(names) if any(part in name.lower() for part in parts)]


def named(names: Sequence[str]) -> str:
    """Say what stages are called, for an error."""
    known = list(dict.fromkeys(name for name in names if name))
    if not known:
        return "its stages have no names"
    return "its stages are " + ", ".join(map(repr, known[:_SHOWN])) + (", ..." if len(known) > _SHOWN else "")
