"""Arguments and options shared by several commands, and checks that precede any work."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from remat.cli.io_session import Session, writing
from remat.errors import InstanceError, MissingExtraError, OptionError, RematError, ScheduleForInstanceError
from remat.messages import brief
from remat.report import VIEWS

if TYPE_CHECKING:
    from remat.graph.machine import Machine
    from remat.instance import Instance, MachineModel
    from remat.units import Units

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

EXAMPLE = "example:"
BUDGET = "--budget "
STANDARD_STREAM = "-"

WHERE_FROM = "remat show --examples lists the shipped instances, remat generate and remat import make others"

MOST_OF_HEAD = 2**20
"""The steps of a schedule document begin within this number of bytes."""


def complete_instance(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a file, or the name of a shipped instance."""
    if EXAMPLE.startswith(incomplete) or incomplete.startswith(EXAMPLE):
        from remat.instance.shipped import examples

        names = [EXAMPLE + key.partition("/")[2] for key in examples()]
        found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        if incomplete:
            return found
    return [CompletionItem(incomplete, type="file")]


def complete_algorithm(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of an algorithm, with its summary."""
    from remat.plugin.registry import algorithms

    listed = [CompletionItem(algorithm.name, help=algorithm.summary) for algorithm in algorithms()]
    return [item for item in listed if item.value.startswith(incomplete)]


instance_argument = click.argument("instance", shell_complete=complete_instance)

budget_option = click.option(
    "-b",
    "--budget",
    metavar="[MEMORY=]SIZE",
    multiple=True,
    help="Memory capacity: a size, or a share such as 80% of the peak without recomputation. Without MEMORY it applies "
    "to the working memory (adjoint: the fastest storage level; pipeline: every device). MEMORY may be type:T, for all "
    "devices of a type.",
)


def _not_to_a_terminal(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Refuse to print an instance to a terminal unless the user asked for it with ``-o -``."""
    from click.core import ParameterSource

    unasked = ctx.get_parameter_source(str(param.name)) is ParameterSource.DEFAULT
    if unasked and not ctx.resilient_parsing and sys.stdout is not None and sys.stdout.isatty():
        raise OptionError("an instance would fill this terminal: name a file with -o FILE, or print it with -o -")
    return value


instance_output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="-",
    callback=_not_to_a_terminal,
    help="Output file (.gz too); - is standard output.",
)

machine_option = click.option(
    "--machine",
    metavar="FILE",
    type=click.Path(),
    help="JSON file of a machine that replaces the machine of the instance.",
)


def format_option(*choices: str) -> Callable[[Decorated], Decorated]:
    """Return the option --format; the first choice is the default."""
    return click.option(
        "--format", "format_", type=click.Choice(choices), default=choices[0], show_default=True, help="Output format."
    )


def limit_options(time_limit: str, default: str | None = None) -> Callable[[Decorated], Decorated]:
    """Add --time-limit with this help text, --gap and --patience."""

    def add(command: Decorated) -> Decorated:
        for name, metavar, text in (
            ("--patience", "TIME", "Stop if neither schedule nor bound improves for TIME."),
            ("--gap", "SHARE", "Stop when the gap to the lower bound is at most SHARE (auto: 0.1%)."),
        ):
            command = click.option(name, metavar=metavar, help=text)(command)
        shown = default is not None
        command = click.option("--time-limit", metavar="TIME", default=default, show_default=shown, help=time_limit)(
            command
        )
        return command

    return add


def plot_options(command: Decorated) -> Decorated:
    """Add --plot and --view, the options for drawings of a schedule."""
    shown = click.option("--view", type=click.Choice(list(VIEWS)), help="View that --plot draws. [default: time]")
    where = click.option(
        "--plot",
        metavar="FILE",
        help="Draw memory and resources over time, or a --view (.svg, .png, .pdf); .html: an interactive page.",
    )
    return where(shown(command))


def verbosity_options(command: Decorated) -> Decorated:
    """Add -q and -v, which set attributes of the `Session` instead of arguments of the command."""

    def note(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            setattr(ctx.ensure_object(Session), str(param.name), True)

    for short, name, text in (
        ("-v", "verbose", "Log progress in detail; show tracebacks of internal errors."),
        ("-q", "quiet", "Print nothing except errors."),
    ):
        command = click.option(
            short, f"--{name}", is_flag=True, expose_value=False, is_eager=True, callback=note, help=text
        )(command)
    return command


@contextmanager
def user_code(session: Session) -> Iterator[None]:
    """Show the exception of the user's code with its traceback in verbose mode."""
    try:
        yield
    except RematError as error:
        if session.verbose and error.__cause__ is not None:
            import traceback

            click.echo("".join(traceback.format_exception(error.__cause__)), err=True, nl=False)
        raise


def load_instance(source: str) -> Instance:
    """Load the INSTANCE of a command line: a path, ``-``, or ``example:NAME``."""
    from remat.instance import load
    from remat.instance.shipped import example_path

    if source == STANDARD_STREAM:
        require_standard_input()
        return load(source)
    if source.startswith(EXAMPLE):
        return load(example_path(source.removeprefix(EXAMPLE)))
    try:
        return load(source)
    except ScheduleForInstanceError as error:
        raise ScheduleForInstanceError(
            f"{error}; to verify it: remat verify INSTANCE {source}; to show it: remat show {source}"
        ) from None
    except InstanceError as error:
        if os.path.lexists(source):
            raise
        if hint := _shipped(source):
            raise InstanceError(f"{error}; the shipped instance is {EXAMPLE}{hint}") from None
        from remat.generate.models.reading import shipped

        if source in shipped():
            make = f"remat generate chain --config {source} --states device -o step.json"
            raise InstanceError(
                f"{source} is the configuration of a model, not an instance; this makes one: {make}"
            ) from None
        raise InstanceError(f"{error}; {WHERE_FROM}") from None


def load_schedule(path: str) -> Any:
    """Read a schedule document: a path, or ``-``."""
    from remat.schedule.reading import read_schedule

    if path == STANDARD_STREAM:
        require_standard_input()
    document = read_schedule(path)
    refuse_other_documents(document, path)
    refuse_answers_without_steps(document, path)
    return document


def refuse_other_documents(document: Any, path: str) -> None:
    """Refuse a document of another kind; the error names that kind and the command that writes a schedule."""
    from remat.schedule.document import SCHEMAS

    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or schema in SCHEMAS:
        return
    if any(key in document for key in ("steps", "orders", "schedule")):
        return
    if "kind" in document or (isinstance(schema, str) and schema.startswith("remat.instance/")):
        raise InstanceError(
            f"{path!r} is an instance, not a schedule; remat solve {path} -o schedule.json writes one", "$.schema"
        )
    if isinstance(schema, str):
        raise InstanceError(
            f"{path!r} is a document {brief(schema)}, not a schedule; remat solve INSTANCE -o FILE writes one",
            "$.schema",
        )


def lacks_steps(document: Any) -> bool:
    """Whether a document is an infeasible or unknown answer, which holds no schedule."""
    found = isinstance(document, dict) and "steps" not in document
    return found and document.get("status") in ("infeasible", "unknown")


def refuse_answers_without_steps(document: Any, path: str) -> None:
    """Refuse the file of an infeasible or unknown answer, because it holds no schedule."""
    if lacks_steps(document):
        raise InstanceError(
            f"$.status: {path} has no steps: the solver's answer was {document['status']!r}; "
            "remat show prints that answer"
        )


def instance_of_schedule(document: Any, path: str) -> Instance:
    """Find the shipped instance that a schedule was made for."""
    from remat.instance import digest, load
    from remat.instance.shipped import examples

    about = document.get("instance") if isinstance(document, dict) else None
    name = about.get("name") if isinstance(about, dict) else None
    for key, file in examples().items():
        if isinstance(name, str) and key.partition("/")[2] == name:
            loaded = load(file)
            if isinstance(about, dict) and digest(loaded) == about.get("digest"):
                return loaded
    if not isinstance(name, str) or not name:
        raise OptionError(f"the schedule {path!r} does not name its instance; give that with --of FILE", argument="of")
    raise OptionError(
        f"the instance {brief(name)} of the schedule {path!r} is not shipped; give it with --of FILE", argument="of"
    )


def require_standard_input() -> None:
    """Refuse ``-`` where standard input is closed."""
    if sys.stdin is None:
        raise InstanceError("cannot read standard input: it is closed")


def _shipped(source: str) -> str | None:
    """Return the shipped instance whose name matches a missing file."""
    from remat.instance.shipped import example_path

    name = Path(source).name.split(".json")[0]
    try:
        return example_path(name).name.split(".json")[0] if name else None
    except OptionError:
        return None


@contextmanager
def sizes_as_limits(machine: Machine) -> Iterator[None]:
    """Show sizes in the kind of unit, decimal or binary, in which the first limit of a machine's memories is round."""
    from remat.report.text.readable_names import sizes_as_limits as as_limits

    with as_limits(machine):
        yield


def load_machine_option(path: str | None, units: Units) -> MachineModel | None:
    """Load --machine, in the instance's units."""
    if path is None:
        return None
    from remat.instance import load_machine

    if path == STANDARD_STREAM:
        require_standard_input()
    try:
        return load_machine(path, units)
    except InstanceError as error:
        raise InstanceError(f"--machine: {error}", more=error.more) from None


def one_standard_input(sources: Mapping[str, str | None]) -> None:
    """Refuse two arguments (name -> path) that both read standard input."""
    readers = [name for name, source in sources.items() if source == STANDARD_STREAM]
    if len(readers) > 1:
        raise OptionError(f"{' and '.join(readers)} cannot both be standard input")


def check_writable(option: str, path: str) -> None:
    """Refuse a file that cannot be written, before the work begins.

    The check writes to the folder, because permissions alone do not reveal mount options or quotas.
    """
    import tempfile

    if not path:
        raise OptionError(f"{option}: the name of the file is empty")
    target = Path(path)
    try:
        if target.is_dir():
            raise OptionError(f"{option}: cannot write {path!r}: it is a directory")
        if target.exists() and not target.is_file():  # a device or a pipe
            return
        folder = target.resolve().parent
        if not folder.is_dir():
            raise OptionError(f"{option}: cannot write {path!r}: there is no directory {str(folder)!r}")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(f"{option}: cannot write {path!r}: {error.strerror or error}") from None


def holds_schedule(path: str) -> bool:
    """Whether an existing file is a schedule with steps, judged by its beginning only."""
    import gzip
    import zlib

    from remat.schedule.document import SCHEMAS

    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else open(path, "rb") as file:
            head = file.read(MOST_OF_HEAD)
    except (OSError, EOFError, zlib.error):
        return False
    listed = b'"steps":' in head or b'"orders":' in head
    return listed and any(schema.encode() in head[:400] for schema in SCHEMAS)


def check_plot(path: str, view: str | None = None) -> None:
    """Refuse a plot with an unknown suffix, without matplotlib, or a view that pages do not have."""
    from importlib.util import find_spec

    from remat.report.plot.style import PAGE, SUFFIXES, check_page_view, check_suffix

    if check_suffix(path, (*SUFFIXES, PAGE)) == PAGE:
        check_page_view(view)
    elif find_spec("matplotlib") is None:
        raise MissingExtraError("--plot", "plot")


def check_view(view: str | None, plot: str | None, kind: str) -> None:
    """Refuse a view without --plot, or for another kind of instance."""
    if view is None:
        return
    if plot is None:
        raise OptionError("selects what --plot draws; give --plot FILE, too", argument="view")
    if kind not in VIEWS[view]:
        suited = ", ".join(name for name, kinds in VIEWS.items() if kind in kinds)
        raise OptionError(f"{view!r} is not a view of a {kind}'s schedule; the views are {suited}", argument="view")


def check_distinct(files: Mapping[str, str | None]) -> None:
    """Refuse outputs (name -> path) that would overwrite each other or an input."""
    seen: dict[str, str] = {}
    for name, path in files.items():
        if path is None or path == STANDARD_STREAM or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        where = os.path.realpath(path)
        if where in seen:
            raise OptionError(f"{name}: {path!r} is also {seen[where]}")
        seen[where] = name


def split_assignments(option: str, given: Sequence[str]) -> dict[str, str]:
    """Split ``key=value`` texts of a repeatable option."""
    result: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{option}: expected KEY=VALUE, not {brief(text)}")
        if key.strip() in result:
            raise OptionError(f"{option}: {key.strip()!r} is given twice")
        result[key.strip()] = value.strip()
    return result


def warn_of_bare_budgets(
    session: Session, given: Iterable[tuple[str, object]], instance: Instance, machine: MachineModel | None
) -> None:
    """Warn on standard error if a budget without a unit is implausibly small for bytes."""
    from remat.plugin.problem import budget_memory
    from remat.solving.budget import meant_size
    from remat.solving.problem_setup import make_problem

    bare = [(name, str(size)) for name, size in given if str(size).isdecimal()]
    if session.quiet or instance.units.memory == "unit" or not bare:
        return
    problem = make_problem(instance, machine=machine)
    default = problem.machine.memories[budget_memory(instance, problem.machine)].name
    for name, size in bare:
        known = (name or default) in problem.machine.memory_index
        if known and (meant := meant_size(size, problem, name or default)):
            click.echo(f"Warning: --budget: {size} bytes: did you mean {meant}?", err=True)


def check_rate(text: str | None, option: str, instance: Instance) -> None:
    """Refuse a bandwidth without a unit that is implausibly small for bytes per second."""
    from remat.generate.options import LEAST_RATE

    if text is None or instance.units.memory == "unit" or not text.isdecimal() or not 0 < int(text[:20]) < LEAST_RATE:
        return
    raise OptionError(f"{text} bytes/s: did you mean {text}GB/s? If not, write {text}B/s", argument=option)


def split_numbers(text: str, argument: str) -> list[int]:
    """Split a list of numbers such as ``1,2,4``."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 8 for part in parts):
        raise OptionError(f"expected numbers such as 1,2,4, not {brief(text)}", argument=argument)
    return [int(part) for part in parts]


def split_budgets(given: tuple[str, ...]) -> dict[str, int | str | None]:
    """Split ``[MEMORY=]SIZE`` texts; a bare size has the empty name."""
    capacities: dict[str, int | str | None] = {}
    for text in given:
        name, equals, size = text.rpartition("=")
        if equals and not name.strip():
            raise OptionError(f"the memory's name is missing in {brief(text)}", argument="budget")
        if name.strip() in capacities:
            what = f"memory {name.strip()!r}" if name.strip() else "the working memory"
            raise OptionError(f"{what} is given twice", argument="budget")
        capacities[name.strip()] = size.strip()
    return capacities


def check_files(inputs: Mapping[str, str | None], output: str, schedule: str | None = None) -> None:
    """Refuse input and output files that conflict or cannot be written, before the work begins."""
    outputs = {"--output": output, "--schedule": schedule}
    one_standard_input(inputs)
    check_distinct({**inputs, **outputs})
    if output == schedule == STANDARD_STREAM:
        raise OptionError("the instance and the schedule cannot both go to standard output")
    for option, file in outputs.items():
        if file is not None and file != STANDARD_STREAM:
            check_writable(option, file)
    if STANDARD_STREAM in inputs.values():
        require_standard_input()


def write_document(document: Mapping[str, Any], output: str) -> None:
    """Write a document with one line for each key."""
    from remat.documents import write_text

    if output == STANDARD_STREAM:
        with writing():
            write_text(output, _lines(document))
    else:
        write_text(output, _lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON text with one line for each key."""
    separator = "{\n"
    for key, value in document.items():
        yield f"{separator} {json.dumps(key)}: {json.dumps(value)}"
        separator = ",\n"
    yield "\n}\n"
