"""`remat layout`: find addresses for the values of a schedule in a memory, or for the buffers of a CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, writing
from remat.errors import OptionError

if TYPE_CHECKING:
    from remat.solving.questions.layout import Addresses
    from remat.units import Units

LARGEST = 2**30
"""Bytes of the largest CSV that is read."""

FOREIGN = "minimalloc-csv"

FLAGS = {"algorithm": "allocator", "fixed": "fix", "reserved": "reserve"}
"""Arguments of the library whose options have other names here."""

HELP = """Find addresses for buffers, in the smallest arena that can be found or within a capacity.

SCHEDULE is a schedule of remat, or a CSV of minimalloc (id,lower,upper,size; times are half-open). In a schedule, each
residency of a value and each workspace gets an address in one memory. The verifier checks every layout.

\b
  remat layout schedule.json --of net.json
  remat layout schedule.json --of net.json -o placed.json           the schedule with addresses
  remat layout schedule.json --of net.json --align 512 --format csv -o addresses.csv
  remat layout schedule.json --of net.json --format minimalloc-csv  the buffers, for other programs
  remat layout schedule.json --of net.json --allocator caching      the memory that PyTorch would reserve
  remat layout buffers.csv --capacity 1MiB

Exit code 0: a layout was found. 4: no layout was found, or it is proved that this schedule has none."""


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of the command, by click's names."""

    schedule: str
    of: str | None
    memory: str | None
    capacity: str | None
    align: str
    fix: tuple[str, ...]
    reserve: tuple[str, ...]
    allocator: str
    option: tuple[str, ...]
    time_limit: str | None
    seed: int
    format_: str
    output: str | None


@click.command("layout", help=HELP)
@click.argument("schedule", type=click.Path())
@click.option("--of", metavar="INSTANCE", help="Instance of the schedule. [default: found if shipped]")
@click.option("--memory", metavar="NAME", help="Memory to lay out. [default: that of the first processor]")
@click.option("--capacity", metavar="SIZE", help="Size of the arena. [default: as small as possible]")
@click.option("--align", metavar="SIZE", default="1", show_default=True, help="Alignment of addresses, a power of two.")
@click.option("--fix", metavar="VALUE=ADDRESS", multiple=True, help="Fixed address of a value.")
@click.option(
    "--reserve", metavar="FROM-TO", multiple=True, help="Addresses to leave unused, rounded outwards to --align."
)
@click.option(
    "--allocator", metavar="NAME", default="layout-auto", show_default=True, help="Algorithm that finds the addresses."
)
@click.option("-O", "--option", metavar="KEY=VALUE", multiple=True, help="Option of the algorithm.")
@click.option("--time-limit", metavar="TIME", help="Stop the search after this time.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@common.format_option("table", "json", "csv", FOREIGN)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the schedule with addresses, or the output of --format (.gz too); - is standard output.",
)
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Lay out, and print the figures or the addresses."""
    asked = _Given(**given)
    common.check_distinct({"SCHEDULE": asked.schedule, "--of": asked.of, "--output": asked.output})
    if asked.output is not None and asked.output != common.STANDARD_STREAM:
        common.check_writable("--output", asked.output)
    source, units = _source(asked)
    if asked.format_ == FOREIGN:
        asked = _without_search(asked)
    try:
        found = _laid_out(asked, source, units)
    except OptionError as error:
        raise _named_here(error) from None
    output = asked.output or common.STANDARD_STREAM
    if asked.format_ == "json":
        _write(output, [json.dumps(_document(found), indent=2, ensure_ascii=False) + "\n"])
    elif asked.format_ == "csv":
        if found.offset is not None:
            _write(output, _rows(found, found.offset.tolist()))
    elif asked.format_ == FOREIGN:
        _write(output, _rows(found, None))
        return ExitCode.OK
    elif not session.quiet:
        from remat.report.text.summary import table

        click.echo(table(_lines(found, units)), err=asked.output == common.STANDARD_STREAM)
    if found.offset is None:
        return ExitCode.UNKNOWN
    if asked.format_ == "table" and asked.output is not None:
        if (capacity := _exceeded(found, source)) is not None:
            click.echo(
                f"Warning: {output!r} is not written: the arena takes {found.arena} bytes of {found.memory}, whose "
                f"capacity is {capacity}. Solve with a smaller budget, or with --layout.",
                err=True,
            )
            return ExitCode.UNKNOWN
        source.with_addresses(found).save(output)
    return ExitCode.OK


def _without_search(asked: _Given) -> _Given:
    """Return options that read the buffers without a search for a layout."""
    if asked.fix or asked.reserve or asked.capacity:
        name = "fix" if asked.fix else "reserve" if asked.reserve else "capacity"
        raise OptionError(f"--format {FOREIGN} writes buffers, without constraints on their addresses", argument=name)
    return replace(asked, allocator="best-fit", option=())


def _named_here(error: OptionError) -> OptionError:
    """Return an error that names the option of this command, or none if the error is in the buffers."""
    if error.option or error.argument not in {*FLAGS, "buffers", "source"}:
        return error
    return OptionError(error.message, argument=FLAGS.get(error.argument, ""))


def _rows(found: Addresses, offset: list[int] | None) -> Iterator[str]:
    from remat.bridges.minimalloc.table import table_lines

    first, last, size = (column.tolist() for column in (found.first, found.last, found.size))
    return table_lines(found.names, first, last, size, offset, alignment=found.alignment)


def _exceeded(found: Addresses, source: Any) -> int | None:
    """Return the capacity of the memory if the arena exceeds it."""
    machine = source.machine
    capacity: int | None = machine.memories[machine.memory_index[found.memory]].capacity
    return capacity if capacity is not None and found.arena is not None and found.arena > capacity else None


def _laid_out(asked: _Given, source: Any, units: Units) -> Addresses:
    import time

    from remat.plugin.context import Context, interruptible
    from remat.solving.questions.layout import layout
    from remat.units import parse_duration, parse_size

    def size(text: str, argument: str) -> int:
        try:
            return parse_size(int(text) if text.isdecimal() else text, units)
        except ValueError as error:
            raise OptionError(str(error), argument=argument) from None

    reserved = []
    for text in asked.reserve:
        low, dash, high = text.partition("-")
        if not dash:
            raise OptionError(f"expected FROM-TO, not {text[:60]!r}", argument="reserve")
        reserved.append((size(low, "reserve"), size(high, "reserve")))
    fixed = {name: size(text, "fix") for name, text in common.split_assignments("--fix", asked.fix).items()}
    context = Context(seed=asked.seed)
    if asked.time_limit is not None:
        try:
            seconds = parse_duration(asked.time_limit)
        except ValueError as error:
            raise OptionError(str(error), argument="time_limit") from None
        context.deadline = time.monotonic() + seconds
    with interruptible(context):
        return layout(
            source,
            memory=asked.memory,
            capacity=None if asked.capacity is None else size(asked.capacity, "capacity"),
            align=size(asked.align, "align"),
            reserved=tuple(reserved),
            fixed=fixed,
            algorithm=asked.allocator,
            options=common.split_assignments("--option", asked.option),
            context=context,
        )


def _source(asked: _Given) -> tuple[Any, Units]:
    """Read a schedule, or a CSV."""
    import numpy as np

    from remat.errors import InstanceError
    from remat.plugin.layouts import Buffers
    from remat.units import Units

    if asked.schedule.removesuffix(".gz").endswith(".csv"):
        from remat.bridges.minimalloc.table import read_table
        from remat.documents import read_text

        if asked.output is not None and asked.format_ == "table":
            raise OptionError("a CSV has no schedule to write; give --format csv or json, too", argument="output")
        if asked.of is not None or asked.memory is not None:
            raise OptionError("a CSV has no instance and no memories", argument="of" if asked.of else "memory")
        name, text = read_text(asked.schedule, "table", LARGEST)
        try:
            table = read_table(text)
        except InstanceError as error:
            raise InstanceError(f"{name}: {error}") from None
        lower, upper, size = (np.array(column, dtype=np.int64) for column in (table.lower, table.upper, table.size))
        fixed = None if table.offset is None else np.array(table.offset, dtype=np.int64)
        try:
            return Buffers(lower, upper, size, names=table.names, fixed=fixed, alignment=table.alignment), Units()
        except OptionError as error:
            raise InstanceError(f"{name}: {error.message}") from None
    common.one_standard_input({"SCHEDULE": asked.schedule, "--of": asked.of})
    from remat.solving.verifying import examine

    document = common.load_schedule(asked.schedule)
    loaded = (
        common.load_instance(asked.of)
        if asked.of is not None
        else common.instance_of_schedule(document, asked.schedule)
    )
    return examine(loaded, document), loaded.units.build()


def _write(output: str, lines: Any) -> None:
    from remat.documents import write_text

    if output == common.STANDARD_STREAM:
        with writing():
            write_text(output, lines)
    else:
        write_text(output, lines)


def _lines(found: Addresses, units: Units) -> Iterator[tuple[str, str]]:
    from remat.units import format_budget, format_percent

    def shown(size: int, *, enough: bool = True) -> str:
        return format_budget(size, units, both=True, enough=enough)

    yield "algorithm", found.algorithm
    if found.memory:
        yield "memory", found.memory
    yield "residencies", f"{len(found.size):,}"
    yield "peak", shown(found.peak)
    if found.alignment > 1:
        yield "peak of rounded sizes", shown(found.rounded_peak)
    yield "lower bound", shown(found.bound, enough=found.bound == found.arena)
    if found.capacity is not None:
        yield "capacity", shown(found.capacity)
    if found.arena is not None and found.fragmentation is not None:
        yield "arena", shown(found.arena)
        yield "fragmentation", format_percent(found.fragmentation, 3)
        if found.reserved is not None:
            yield "reserved", shown(found.reserved)
    elif found.infeasible_within is not None:
        yield "infeasible within", found.infeasible_within
    else:
        yield "arena", "no layout found"
    for note in found.notes:
        yield "notes", note


def _document(found: Addresses) -> dict[str, Any]:
    return {
        "algorithm": found.algorithm,
        "memory": found.memory,
        "alignment": found.alignment,
        "capacity": found.capacity,
        "peak": found.peak,
        "rounded_peak": found.rounded_peak,
        "lower_bound": found.bound,
        "arena": found.arena,
        **({} if found.reserved is None else {"reserved": found.reserved}),
        "infeasible_within": found.infeasible_within,
        "termination": str(found.termination),
        "notes": list(found.notes),
        "addresses": []
        if found.offset is None
        else [
            {"name": name, "first": first, "last": last, "offset": offset, "size": size}
            for name, first, last, offset, size in zip(
                found.names,
                found.first.tolist(),
                found.last.tolist(),
                found.offset.tolist(),
                found.size.tolist(),
                strict=True,
            )
        ],
    }
