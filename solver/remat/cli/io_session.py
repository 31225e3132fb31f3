"""Exit codes, verbosity and output streams, shared by all commands."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import click

from remat.errors import RematError

if TYPE_CHECKING:
    from remat.solving.result import Result


class ExitCode(enum.IntEnum):
    """Exit codes of the command line."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    INFEASIBLE = 3
    UNKNOWN = 4
    CLAIM = 5
    VIOLATION = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141

    @staticmethod
    def of(result: Result) -> ExitCode:
        """Return 0 if there is a schedule, else why there is none."""
        from remat.plugin.proposal import Status, Termination

        match result.status:
            case Status.INFEASIBLE:
                return ExitCode.INFEASIBLE
            case Status.UNKNOWN:
                interrupted = result.termination is Termination.INTERRUPTED
                return ExitCode.INTERRUPTED if interrupted else ExitCode.UNKNOWN
            case _:
                return ExitCode.OK


class Session:
    """Verbosity of one invocation; a plain class, because importing dataclasses would slow down `remat --help`.

    Attributes
    ----------
    quiet : bool
        No progress, no remarks, no table.
    verbose : bool
        Remarks on the progress, and tracebacks of internal errors.
    arguments : sequence of str
        Arguments of the command line.
    """

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.arguments = tuple(arguments)
        self.quiet = False
        self.verbose = bool(os.environ.get("REMAT_DEBUG"))

    def remark(self, text: str) -> None:
        """Print a remark on the progress to standard error in verbose mode."""
        if self.verbose and not self.quiet:
            from remat.messages import printable

            click.echo(f"remat: {printable(text)}", err=True)

    def emit(self, text: str) -> None:
        """Write text to standard output, except in quiet mode."""
        if not self.quiet:
            emit(text)

    def note(self, text: str) -> None:
        """Print a note on the answer to standard error, except in quiet mode."""
        if not self.quiet:
            from remat.messages import printable

            click.echo(f"Note: {printable(text)}", err=True)


@contextmanager
def writing() -> Iterator[None]:
    """Write to standard output.

    Raises
    ------
    BrokenPipeError
        The reader has closed the pipe; the command line exits without a message.
    RematError
        Any other failure.
    """
    if sys.stdout is None:
        raise RematError("cannot write to standard output: it is closed")
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RematError(f"cannot write to standard output: {error.strerror or error}") from None


def emit(text: str) -> None:
    """Write a result and a line break to standard output (see `writing` for the errors)."""
    from remat.messages import printable

    with writing():
        click.echo(printable(text, lines=True))


def emit_lines(lines: Iterable[str]) -> None:
    """Write many lines to standard output, some thousands at a time."""
    remaining = iter(lines)
    while batch := list(islice(remaining, 10_000)):
        emit("\n".join(batch))


def abandon(*streams: object) -> None:
    """Discard the buffers of broken streams, so that the interpreter exits silently."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        except (AttributeError, OSError, ValueError):
            continue
    os.close(nowhere)
