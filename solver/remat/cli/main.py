"""The entry point `remat`: find the command, run it, and return its exit code."""

from __future__ import annotations

import errno
import gc
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

from remat.cli.io_session import ExitCode, Session, abandon
from remat.errors import AlgorithmError, ClaimError, OptionError, RematError
from remat.messages import LONGEST_MESSAGE, nearest, one_line
from remat.version import __version__

# Name -> (module, one line of help). The modules are imported when their command is called, not for this list.
COMMANDS = {
    "solve": ("remat.cli.solve", "Find a schedule within the memory budget, and verify it."),
    "verify": ("remat.cli.verify", "Check that a schedule is valid for its instance."),
    "compare": ("remat.cli.compare", "Compare algorithms over many instances and budgets."),
    "plan": ("remat.cli.plan", "Plan a training step on several devices."),
    "sweep": ("remat.cli.sweep", "Compute time-memory curves, down to the minimum budget."),
    "diff": ("remat.cli.diff", "Show two schedules of one instance side by side."),
    "show": ("remat.cli.show", "Print facts about an instance or a schedule: sizes, bounds, peaks."),
    "decisions": ("remat.cli.decisions", "List what a schedule keeps, recomputes, offloads and drops."),
    "algorithms": ("remat.cli.algorithms", "List the algorithms, or explain one."),
    "explain": ("remat.cli.explain", "Explain a term."),
    "generate": ("remat.cli.generate", "Make an instance: random, synthetic, or of a real architecture."),
    "import": ("remat.cli.import_", "Make an instance from a file of another format."),
    "fit": ("remat.cli.fit", "Check whether a training step fits into memory, and plan it."),
    "completion": ("remat.cli.completion", "Complete names in the shell."),
    "layout": ("remat.cli.layout", "Find addresses for the values of a schedule in a memory."),
    "export": ("remat.cli.export", "Write a schedule in the format of another program."),
}

RESERVED: tuple[str, ...] = ()

HELP = """Plan the execution of a computation under a memory budget.

An instance describes a computation and a machine. A schedule decides what runs when, and what is kept, recomputed
or moved. remat verifies every schedule before it prints anything.

\b
  remat show example:resnet50                           print facts about an instance
  remat solve example:resnet50 --budget 1GiB            find a schedule within 1 GiB
  remat solve net.json.gz -b 8GB -o schedule.json --plot memory.svg
  remat solve net.json -b 8GB -a rotor -O gap=1%        a specific algorithm
  remat solve net.json --max-overhead 20%               the smallest budget that meets a time limit
  remat plan net.json --devices 8 --budget 8GB          stages on devices, with recomputation
  remat sweep net.json --plot curves.svg                all budgets
  remat verify net.json schedule.json                   verify a schedule
  remat algorithms --kind chain                         list the algorithms
  remat generate chain --family transformer --layers 24 | remat solve - -b 20GB

Sizes are exact: 8GB is 8*10^9 bytes, 8GiB is 2^33. INSTANCE is a JSON file (.gz too), - for standard input, or
example:NAME (remat show --examples)."""

EPILOG = """\b
Exit codes: 0 verified schedule, 1 internal error, 2 usage or bad input, 3 proved infeasible, 4 nothing
found in time, 5 claim and verifier differ, 6 violations found by verify, 130 interrupted.

\b
Completion: remat completion --install."""


class CommandTable(click.Group):
    """A group whose commands come from `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse unknown commands, and suggest the most similar one."""
        name = args[0]
        if name not in COMMANDS and not ctx.resilient_parsing:
            if name in RESERVED:
                raise click.UsageError(f"{name!r} is reserved for a later release", ctx)
            if name.startswith("-"):
                raise click.NoSuchOption(name, ctx=ctx)
            near = nearest(name, COMMANDS)
            hint = f"did you mean {near!r}?" if near else f"it is one of {', '.join(COMMANDS)}"
            raise click.UsageError(f"unknown command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(
    cls=CommandTable,
    help=HELP,
    epilog=EPILOG,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Print the help where no command is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _leave_at_once_if_asked_again() -> None:
    """Let another Ctrl-C end the process silently: it is already exiting, and may wait for a solver's thread."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, lambda *_: os._exit(ExitCode.INTERRUPTED))


def _ignore_interrupts() -> None:
    """Protect the exit code from an interrupt during interpreter shutdown: the answer is already printed."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: those of the process.

    Returns
    -------
    int
        The exit code (`ExitCode`).
    """
    if "_REMAT_COMPLETE" in os.environ:
        cli.main(prog_name="remat")  # writes completions, and exits
    if arguments is None:
        # remat uses no linear algebra of numpy, and starting numpy's threads takes a fifth of the startup time.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Modules, records and models are permanent: the garbage collector need not scan them repeatedly.
        gc.set_threshold(500_000, 10, 10)
    session = Session(sys.argv[1:] if arguments is None else arguments)
    try:
        with _interrupts_as_such(), _remarks_as_lines(session), _shown_as_typed(session.arguments):
            code = _run(session.arguments, session)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        if arguments is None:
            _ignore_interrupts()
            gc.freeze()  # the interpreter's exit would scan them three times
        return code
    except BrokenPipeError:
        abandon(sys.stdout, sys.stderr)
        return ExitCode.BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        # The interpreter remembers an interrupt during `exec` (of a dataclass, for example) and would end by the signal
        # instead of the exit code; another `exec` clears this state.
        exec("")
        if arguments is None:
            _leave_at_once_if_asked_again()
        return _complain("interrupted", ExitCode.INTERRUPTED)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "remat"
        return _complain(f"{_with_what_is_near(error).rstrip('.')} (see {command} --help)", ExitCode.USAGE)
    except click.ClickException as error:
        return _complain(error.format_message(), ExitCode.USAGE)
    except OptionError as error:
        return _complain(_with_flag(error, session.arguments), ExitCode.USAGE)
    except RematError as error:
        return _complain(str(error), ExitCode.USAGE, getattr(error, "more", ()))
    except ClaimError as error:
        return _complain(f"{error} (a bug in the algorithm{_of_whom(error)})", ExitCode.CLAIM)
    except AlgorithmError as error:
        _show_traceback(session)
        hint = "" if session.verbose else f"; {AGAIN}"
        return _complain(f"{error} (a bug in the algorithm{_of_whom(error)}){hint}", ExitCode.INTERNAL)
    except MemoryError:
        return _complain("out of memory", ExitCode.INTERNAL)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in UNWRITABLE:
            abandon(sys.stdout)  # what is left of the answer cannot be written, either
            return _complain(f"cannot write the output: {error.strerror}", ExitCode.USAGE)
        return _internal(error, session)
    except SystemExit as stop:  # exit codes are for answers; a plug-in, for example, must not set one
        return _internal(RuntimeError(f"code other than remat tried to exit with code {stop.code!r:.60}"), session)


@contextmanager
def _interrupts_as_such() -> Iterator[None]:
    """Raise an interrupt that Python wraps: up to 3.11, one of `__set_name__`, while a class is made, is the cause."""
    try:
        yield
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            cause = cause.__cause__
        raise


SIZED = ("-b", "--budget", "--capacity")
"""Options whose unit is that of all sizes in the answer."""


@contextmanager
def _shown_as_typed(arguments: Sequence[str]) -> Iterator[None]:
    """Show sizes in units of the kind that the user has typed."""
    typed = tuple(_typed_sizes(arguments))
    if not typed:
        yield
        return
    from remat.units import sizes_shown_as

    with sizes_shown_as(typed):
        yield


def _typed_sizes(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of options with sizes."""
    for place, word in enumerate(arguments):
        option, equals, value = word.partition("=")
        if option in SIZED:
            yield value if equals else "".join(arguments[place + 1 : place + 2])
        elif word.startswith("-b"):
            yield word[2:]


UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write to a stream: the disk is full, or broken."""

AGAIN = "run it again with -v (or REMAT_DEBUG=1) for the traceback"

FLAGS = {"options": "option", "entry_bytes": "bytes", "budget_fractions": "budget-fraction", "budgets": "budget"}
"""Arguments of the library whose options on the command line have other names."""


ELSEWHERE: dict[str, str] = dict.fromkeys(("--plot", "--view"), "remat show SCHEDULE --plot FILE draws a schedule")
"""Hints for options that only other commands have."""


_UNIT = re.compile(r"\(([kKMGTPE](?:iB?|B)?|B)\)")
"""A unit of sizes as the only extra argument: of a size that was copied with its space."""


def _with_what_is_near(error: click.UsageError) -> str:
    """Return an error's message, with only the closest option as suggestion, or the one that takes an instance."""
    if not isinstance(error, click.NoSuchOption):
        told, command = error.format_message(), error.ctx.command if error.ctx is not None else None
        if command is not None and told.startswith("Got unexpected extra argument"):
            names = [one for one in command.params if isinstance(one, click.Option) and "--of" in one.opts]
            hint = "; the instance of a schedule is given with --of INSTANCE" if names else ""
            unit = _UNIT.search(told)
            told = told.rstrip(".") + (f"; write a size in one word, such as 8{unit[1]}" if unit else hint)
        return told
    near = nearest(error.option_name, error.possibilities or ())
    hint = f"did you mean {near}?" if near else ELSEWHERE.get(error.option_name, "")
    return error.message.rstrip(".") + (f"; {hint}" if hint else "")


def _with_flag(error: OptionError, arguments: Sequence[str]) -> str:
    """Return an error's message, with the option or the file of the command line in place of the library's argument."""
    if error.option:
        return f"--option {error.option}: {error.message}"
    if not error.argument:
        return error.message
    name = FLAGS.get(error.argument, error.argument).replace("_", "-")
    flags, files = _asked_of(arguments)
    if f"--{name}" not in flags and name in files:
        return f"{files[name]}: {error.message}"
    return f"--{name}: {error.message}"


def _asked_of(arguments: Sequence[str]) -> tuple[set[str], dict[str, str]]:
    """Return the options of the command that was called, and its named arguments with their texts."""
    command: click.Command = cli
    rest, name = list(arguments), "remat"
    with suppress(click.ClickException, click.exceptions.Exit, IndexError):
        while isinstance(command, click.Group):
            found, next_one, rest = command.resolve_command(click.Context(command, resilient_parsing=True), rest)
            if next_one is None:
                return set(), {}
            command, name = next_one, found or ""
        with command.make_context(name, list(rest), resilient_parsing=True) as context:
            parameters = command.get_params(context)
            flags = {flag for one in parameters if isinstance(one, click.Option) for flag in one.opts}
            named = (one.name or "" for one in parameters if isinstance(one, click.Argument))
            texts = {key: context.params.get(key) for key in named}
        return flags, {key: text for key, text in texts.items() if isinstance(text, str)}
    return set(), {}


def _of_whom(error: AlgorithmError) -> str:
    """Return the text that names who can fix a bug: the authors of a plug-in, or remat."""
    if error.package in ("", "remat", "remat_algorithms"):
        return ": please report it"
    from remat.plugin.registry import distribution_of

    found = distribution_of(error.package)
    name = error.package if found is None else found.name
    return f" of the package {name!r}: please report it to its authors"


def _run(arguments: Sequence[str], session: Session) -> int:
    try:
        with cli.make_context("remat", list(arguments), obj=session, terminal_width=_width()) as context:
            code: Any = cli.invoke(context)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    return int(code or 0)


def _width() -> int:
    """Return the width of help texts; click would import shutil, and with it three compressors, to find it."""
    from remat.report.text.columns import terminal_columns

    return max(50, min(terminal_columns() or 80, 120) - 2)


@contextmanager
def _remarks_as_lines(session: Session) -> Iterator[None]:
    """Print warnings (a plug-in that cannot be loaded) as one line each."""
    import warnings

    def show(message: Warning | str, *rest: object, **more: object) -> None:
        if not session.quiet:
            click.echo(f"Warning: {_one_line(str(message))}", err=True)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _complain(message: str, code: ExitCode, more: Sequence[str] = ()) -> int:
    try:
        click.echo(_one_line(f"Error: {message}"), err=True)
        for line in more:
            click.echo(f"  {_one_line(line, LONGEST_MESSAGE - 2)}", err=True)
    except OSError:
        abandon(sys.stderr)
    return code


def _internal(error: Exception, session: Session) -> int:
    _show_traceback(session)
    hint = "" if session.verbose else f"; {AGAIN}, and report it"
    return _complain(f"internal error: {type(error).__name__}: {error}{hint}", ExitCode.INTERNAL)


def _show_traceback(session: Session) -> None:
    if session.verbose:
        import traceback

        click.echo(traceback.format_exc().rstrip(), err=True)


def _one_line(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return the text as one line of at most `longest` characters that a terminal shows as it is."""
    return one_line(" ".join(text.split()), longest)
