"""Commands that `remat plan` and `remat solve` print: they repeat a choice, or read a schedule."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remat.solving.questions.plan import Planned

LISTED = "remat decisions"
"""Part of an answer that does not list all decisions."""

PLANNED_INSTANCE = "planned.json"
"""Suggested file for the instance of a plan."""

WRITTEN_SCHEDULE = "schedule.json"
"""Suggested file for a schedule."""

BY_STAGE = (f"{LISTED} (by stage)", f"{LISTED} lists all values, stages")
"""Parts of an answer that does not list all stages."""


def target_refusal(instance: str, words: Mapping[str, str | int | None], options: Sequence[str], target: str) -> str:
    """Return why a target such as ``--max-makespan 250ms`` is refused, and the commands that find a budget for it.

    Parameters
    ----------
    instance : str
    words : mapping
        The options of the plan that change the instance, by flag; None: not given.
    options : sequence of str
        Options of the planner, ``KEY=VALUE``.
    target : str
        The option and its value.
    """
    given = [word for flag, value in words.items() if value is not None for word in (flag, str(value))]
    chosen = [word for text in options for word in ("-O", text)]
    first, of = "", instance
    if given:
        of = PLANNED_INSTANCE
        others = [text for text in options if not text.startswith("moves=")]
        quick = [word for text in (*others, "moves=0") for word in ("-O", text)]
        first = shlex.join(["remat", "plan", instance, *given, *quick, "--output-instance", of]) + "; "
    flag, _, value = target.partition(" ")
    then = shlex.join(["remat", "solve", of, "-a", "pipe-plan", *chosen, flag, value])
    return f"{flag}: plan minimizes the time for a budget; the smallest budget for a time: {first}{then}"


def choice_command(planned: Planned, words: Sequence[str]) -> str:
    """Return the command that makes the same plan without trying other degrees; empty if no others were tried.

    `words` are those of the command without --data, --zero and --tensor. Stages of several tensor degrees cannot be
    asked for alone.
    """
    degrees, tried = planned.degrees, planned.tried
    if len(tried) < 2 or planned.result.report is None or not degrees.tensor:
        return ""
    chosen = ["--data", str(degrees.data)] if any(one.data != 1 for one in tried) else []
    chosen += ["--zero", str(degrees.zero)] if degrees.zero else []
    chosen += ["--tensor", str(degrees.tensor)] if any(one.tensor != 1 for one in tried) else []
    return shlex.join([*words, *chosen])


def decisions_command(answer: str, schedule: str | None, instance: str | None) -> str:
    """Return the command that lists all decisions, if an answer does not; empty if it does.

    Parameters
    ----------
    answer : str
        The printed answer.
    schedule : str or None
        The file of the schedule, if it was written.
    instance : str or None
        The file of its instance, if there is one.
    """
    words = " ".join(answer.split())
    if LISTED not in words:
        return ""
    files = {"-o": (schedule, WRITTEN_SCHEDULE), "--output-instance": (instance, PLANNED_INSTANCE)}
    missing = [f"{option} {file}" for option, (given, file) in files.items() if given is None]
    command = ["remat", "decisions", schedule or WRITTEN_SCHEDULE, "--of", instance or PLANNED_INSTANCE]
    command += ["--by", "stage"] if any(part in words for part in BY_STAGE) else []
    then = f"  # after the same command with {' and '.join(missing)}" if missing else ""
    return shlex.join(command) + then


def shown_commands(commands: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each command that is not empty, with its purpose as a comment."""
    for purpose, command in commands.items():
        if command:
            yield f"{command}  # {purpose}" if purpose and "  # " not in command else command
