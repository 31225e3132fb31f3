"""`remat import chrome-trace|memory-snapshot|chakra`: profiles of programs that have run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click

from remat.cli import common
from remat.cli.import_graphs import finish, name_option, output_option
from remat.cli.io_session import ExitCode, Session, writing

TRACE_HELP = """Explain the memory peak in a trace of the PyTorch profiler.

JSON is the output of profile.export_chrome_trace(), recorded with profile_memory=True (and record_shapes=True). The
answer names the memory at the peak, the part that could be recomputed or offloaded, and the peak without that part.

\b
  remat import chrome-trace trace.json.gz
  remat import chrome-trace trace.json --device cuda:0 --buffers buffers.csv
  remat layout buffers.csv                                        the smallest arena for these buffers"""

SNAPSHOT_HELP = """Explain the memory peak in a snapshot of PyTorch's allocator.

PICKLE is the output of torch.cuda.memory._dump_snapshot() after torch.cuda.memory._record_memory_history(). Reading it
imports and executes no code.

\b
  remat import memory-snapshot snapshot.pickle
  remat import memory-snapshot snapshot.pickle --format json"""

CHAKRA_HELP = """Make a task graph of a Chakra execution trace.

JSON is the output of torch.profiler.ExecutionTraceObserver: operators, and tensors with their storages. A trace without
durations needs --default-time.

\b
  remat import chakra trace.json --default-time 10us -o graph.json
  remat solve graph.json --budget 80%"""

DEFAULT_LINK = "25GB/s"


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options of the commands that explain, by click's names."""

    path: str
    device: Any
    link: str
    buffers: str | None
    format_: str


def _explaining(command: Any) -> Any:
    """Add the options of the commands that explain."""
    options: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
        (
            ("--buffers",),
            {"metavar": "FILE", "help": "Write the allocations as CSV for remat layout (.gz too)."},
        ),
        (
            ("--link",),
            {"metavar": "RATE", "default": DEFAULT_LINK, "show_default": True, "help": "Bandwidth to the host."},
        ),
    )
    for names, more in options:
        command = click.option(*names, **more)(command)
    return common.format_option("table", "json")(command)


@click.command("chrome-trace", help=TRACE_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--device", metavar="NAME", help="cpu or cuda:0. [default: the device with the most bytes]")
@_explaining
@common.verbosity_options
@click.pass_obj
def chrome_trace(session: Session, /, **given: Any) -> int:
    """Explain a trace."""
    from remat.bridges.chrome_trace.reading import read_chrome_trace

    asked = _Asked(**given)
    return _explain(session, asked, lambda: read_chrome_trace(asked.path, asked.device))


@click.command("memory-snapshot", help=SNAPSHOT_HELP)
@click.argument("path", metavar="PICKLE", type=click.Path())
@click.option("--device", type=click.IntRange(min=0), metavar="N", help="Number of the device. [default: the busiest]")
@_explaining
@common.verbosity_options
@click.pass_obj
def memory_snapshot(session: Session, /, **given: Any) -> int:
    """Explain a snapshot."""
    from remat.bridges.memory_snapshot.reading import read_snapshot

    asked = _Asked(**given)
    return _explain(session, asked, lambda: read_snapshot(asked.path, asked.device))


@click.command("chakra", help=CHAKRA_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--device", metavar="NAME", help="Device whose tensors count. [default: the device with the most bytes]")
@click.option("--default-time", metavar="TIME", help="Time of operators without a duration. [default: refuse them]")
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def chakra(
    session: Session, /, path: str, device: str | None, default_time: str | None, name: str | None, output: str
) -> int:
    """Write the task graph of an execution trace."""
    from remat.bridges.chakra.importing import import_trace
    from remat.errors import OptionError, QuantityError
    from remat.units import Units, parse_time

    try:
        time = None if default_time is None else float(parse_time(default_time, Units("us", "B")))
    except QuantityError as error:
        raise OptionError(str(error), argument="default_time") from None
    return finish(session, path, output, lambda: import_trace(path, name=name, device=device, default_time=time))


def _explain(session: Session, asked: _Asked, read: Any) -> int:
    """Print the explanation of a timeline's peak."""
    from remat.bridges.allocations.timeline import buffers, explain
    from remat.documents import write_text
    from remat.errors import InstanceError, OptionError, QuantityError
    from remat.report.text.summary import table
    from remat.units import parse_bandwidth

    common.check_distinct({"FILE": asked.path, "--buffers": asked.buffers})
    if asked.buffers is not None:
        common.check_writable("--buffers", asked.buffers)
    try:
        bandwidth = parse_bandwidth(asked.link)
    except QuantityError as error:
        raise OptionError(str(error), argument="link") from None
    if not bandwidth:
        raise OptionError(f"expected a bandwidth such as {DEFAULT_LINK}, not {asked.link!r}", argument="link")
    allocations = read()
    try:
        explained = explain(allocations, float(bandwidth))
    except InstanceError as error:
        raise InstanceError(f"{asked.path}: {error}") from None
    if asked.buffers is not None:
        write_text(asked.buffers, buffers(allocations))
    if asked.format_ == "json":
        with writing():
            click.echo(json.dumps(explained.document(), indent=2))
    elif not session.quiet:
        with writing():
            click.echo(table(explained.lines()))
    return ExitCode.OK


COMMANDS = (chrome_trace, memory_snapshot, chakra)
