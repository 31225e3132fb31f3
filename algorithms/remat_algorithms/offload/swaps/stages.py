"""Stages of a chain selected by their names or by their operators."""

from __future__ import annotations

from collections.abc import Sequence

from remat.plugin import ChainInstance, Problem

_SHOWN = 4
"""Names that an error lists."""


def stage_names(problem: Problem) -> list[str]:
    """Return the name of each stage of a chain, repeats expanded; empty without a name, as for steps of a loop."""
    if not isinstance(problem.instance, ChainInstance):
        return [""] * problem.chain.length
    return [stage.name for stage in problem.instance.stages for _ in range(stage.repeat)]


def stages_named(problem: Problem, words: str, *, mixed: bool) -> list[int]:
    """Return the stages (0-based) that some words select, separated by commas, ignoring case.

    A stage counts if its name contains one of the words, or if operators in its `origin` have one in `op` or `module`.
    With `mixed`, one such operator is enough; otherwise all operators must have one.
    """
    if not isinstance(problem.instance, ChainInstance):
        return []
    parts = words_of(words)
    found: list[bool] = []
    for stage in problem.instance.stages:
        operators = [contains((operator.op, operator.module), parts) for operator in stage.origin]
        of_them = any(operators) if mixed else bool(operators) and all(operators)
        found += [of_them or contains((stage.name,), parts)] * stage.repeat
    return [stage for stage, chosen in enumerate(found) if chosen]


def words_of(words: str) -> list[str]:
    """Split words at commas."""
    return [part.strip().lower() for part in words.split(",") if part.strip()]


def contains(texts: Sequence[str], words: Sequence[str]) -> bool:
    """Whether some text contains one of the words, ignoring case."""
    return any(word in text.lower() for text in texts for word in words)


def named(problem: Problem) -> str:
    """Describe the names of stages, for an error."""
    known = list(dict.fromkeys(name for name in stage_names(problem) if name))
    if not known:
        return "its stages have no names"
    return "its stages are " + ", ".join(map(repr, known[:_SHOWN])) + (", ..." if len(known) > _SHOWN else "")
