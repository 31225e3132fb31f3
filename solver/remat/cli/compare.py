"""`remat compare`: many instances, algorithms and budgets, in worker processes, with a journal and a report."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import OptionError
from remat.messages import brief, counted

if TYPE_CHECKING:
    from remat.comparing.comparison import Comparison
    from remat.comparing.run import Tally

HELP = """Solve instances with several algorithms and budgets, and compare.

PATH is a JSON file, a folder (searched recursively), example:NAME, or examples for all shipped instances. Each
combination is a cell. Failures, refusals and limits are recorded per cell and never stop the comparison.

\b
  remat compare example:resnet50 -a rotor,periodic --budget 1GiB,2GiB
  remat compare instances/ -a all --budget-fraction .5,.7,.9 -o results/
  remat compare instances/chains -a rotor-float,fine=rotor-float -O fine.slots=2000
  remat compare graphs/ -a dag-auto,checkmate --seeds 0,1,2 --time-limit 1min --jobs 8 -o results/
  remat compare big/ --executor dask://head-node:8786 -o results/

With -o, a journal (results/journal.jsonl) records finished cells, and the same command resumes an interrupted run. The
folder also gets tables and a report (report.html). Without budgets, the machines of the instances apply."""


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of the command, by click's names."""

    paths: tuple[str, ...]
    algorithms: tuple[str, ...]
    budgets: tuple[str, ...]
    fractions: str | None
    seeds: str
    options: tuple[str, ...]
    machine: str | None
    time_limit: str
    gap: str | None
    patience: str | None
    memory_limit: str | None
    jobs: int | None
    threads: int
    executor: str | None
    output: str | None
    rerun: Any
    baseline: str | None
    pages: bool | None
    single_file: bool
    format_: str


@click.command("compare", help=HELP)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, shell_complete=common.complete_instance)
@click.option(
    "-a",
    "--algorithms",
    metavar="[LABEL=]NAME,...",
    multiple=True,
    help="Algorithm names, auto or all. LABEL= names a second column.  [default: auto]",
)
@click.option("-b", "--budget", "budgets", metavar="SIZES", multiple=True, help="Budgets, for example 4GB,8GB.")
@click.option(
    "--budget-fraction",
    "fractions",
    metavar="SHARES",
    help="Budgets as shares of the peak without recomputation: .5,70%.",
)
@click.option("--seeds", metavar="NUMBERS", default="0", show_default=True)
@click.option(
    "-O",
    "--option",
    "options",
    metavar="NAME.KEY=VALUE",
    multiple=True,
    help="Option of one algorithm (or label): rotor-float.slots=500.",
)
@common.machine_option
@common.limit_options("Time limit of each job.", "10s")
@click.option("--memory-limit", metavar="SIZE", help="Memory limit of each job. [default: 90% of the machine, shared]")
@click.option("-j", "--jobs", type=click.IntRange(1, 1024), help="Number of workers. [default: number of cores]")
@click.option("--threads", type=click.IntRange(1, 4096), default=1, show_default=True, help="Threads of each solve.")
@click.option("--executor", metavar="ADDRESS", help="local, or dask://HOST:PORT.")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Folder for journal, tables and report; an existing run resumes."
)
@click.option("--rerun", type=click.Choice(["failed", "all"]), help="Repeat runs that are already in the journal.")
@click.option("--baseline", metavar="NAME", help="Algorithm that ratios are relative to. [default: the best one]")
@click.option("--pages/--no-pages", default=None, help="Write a page for each schedule. [default: for up to 200 runs]")
@click.option("--single-file", is_flag=True, help="Write the report as one file, without pages; same as --no-pages.")
@common.format_option("table", "csv", "markdown", "json")
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Run the comparison, then hand it to the renderers."""
    asked = _Given(**given)
    if asked.single_file:
        if asked.pages:
            raise OptionError("--single-file writes no pages; leave out --pages or --single-file")
        asked = replace(asked, pages=False)
    arguments: dict[str, Any] = {
        "algorithms": _names(asked.algorithms),
        "budgets": [part for text in asked.budgets for part in _parts(text)],
        "budget_fractions": [_share(part) for part in _parts(asked.fractions or "")],
        "seeds": [_number("--seeds", part) for part in _parts(asked.seeds)],
        "options": _options(asked.options),
        "machine": _machine(asked.machine),
    }
    from remat.comparing.run import compare

    _warn_of_bare_budgets(session, asked.paths, arguments["budgets"])
    with _progress(session) as listener:
        comparison = compare(
            asked.paths,
            **arguments,
            time_limit=asked.time_limit,
            gap=asked.gap,
            patience=asked.patience,
            memory_limit=asked.memory_limit,
            jobs=asked.jobs,
            threads=asked.threads,
            executor=asked.executor,
            output=asked.output,
            rerun=asked.rerun,
            pictures=asked.output is not None,
            pages=asked.pages if asked.output is not None else False,
            baseline=asked.baseline,
            progress=listener,
        )
    try:
        if asked.output is not None:
            _write(comparison, Path(asked.output), session, asked)
    finally:  # print the table even if the disk is full
        _print(comparison, asked.format_, session)
    if comparison.interrupted:
        if not session.quiet:
            resume = "" if asked.output is None else "; the same command resumes from here"
            click.echo(f"interrupted after {counted(len(comparison), 'cell')}{resume}", err=True)
        return ExitCode.OK if len(comparison) else ExitCode.INTERRUPTED
    return ExitCode.OK


MOST_READ = 5
"""Number of documents that the check of the budgets reads."""


def _warn_of_bare_budgets(session: Session, paths: Sequence[str], budgets: Sequence[str]) -> None:
    """Warn if bare numbers are implausibly small for the first instance; other documents are skipped."""
    if session.quiet or not any(budget.isdecimal() for budget in budgets):
        return
    from remat.comparing.plan import find_sources
    from remat.errors import RematError

    for source in find_sources(paths)[:MOST_READ]:
        try:
            loaded = common.load_instance(source.path)
            common.warn_of_bare_budgets(session, [("", budget) for budget in budgets], loaded, None)
        except RematError:  # not an instance: the comparison reports it
            continue
        return


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _names(given: Sequence[str]) -> list[str]:
    names = [part for text in given for part in _parts(text)] if given else ["auto"]
    if not names:
        raise OptionError("name at least one, or auto, or all", argument="algorithms")
    return names


def _share(text: str) -> float:
    from remat.solving.problem_setup import read_share

    return float(read_share(text, "budget_fraction"))


def _number(option: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise OptionError(f"{option}: {brief(text)} is not a whole number >= 0")
    return int(text)


def _options(given: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for key, value in common.split_assignments("--option", given).items():
        name, dot, option = key.rpartition(".")
        if not dot or not name or not option:
            raise OptionError(f"expected NAME.KEY=VALUE, not {brief(key)}", argument="options")
        found.setdefault(name, {})[option] = value
    return found


def _machine(path: str | None) -> Any:
    """Read --machine without conversion, because its figures are in the units of each instance."""
    if path is None:
        return None
    from remat.documents import read_document
    from remat.errors import InstanceError

    try:
        return json.loads(json.dumps(read_document(path, "machine"), default=str))
    except InstanceError as error:
        raise InstanceError(f"--machine: {error}", more=error.more) from None


@contextmanager
def _progress(session: Session) -> Iterator[Callable[[Tally], None] | None]:
    """Show the expected total before the start; then a bar with the remaining time on a terminal, or lines with -v."""
    if session.quiet:
        yield None
    elif not session.verbose and sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        what = TextColumn("{task.description}", markup=False)  # names come from files and are not markup
        columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield _Bar(bar).show
    else:
        yield _lines(session)


class _Bar:
    """Feeds tallies to rich's bar."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._tasks: dict[str, Any] = {}

    def show(self, tally: Tally) -> None:
        from remat.report.text.readable_names import shown_name

        if tally.phase not in self._tasks:
            self._tasks[tally.phase] = self._bar.add_task(tally.phase, total=tally.total)
            if tally.phase == "solving":
                self._bar.console.print(announcement(tally), highlight=False)
        job = None if tally.last is None else tally.last.job
        last = "" if job is None else f" {job.algorithm} on {shown_name(job.instance)}"[:40]
        self._bar.update(self._tasks[tally.phase], completed=tally.done, description=f"{tally.phase}{last}")


def _lines(session: Session) -> Callable[[Tally], None]:
    from remat.report.text.readable_names import shown_name

    def show(tally: Tally) -> None:
        if tally.phase == "solving" and tally.last is None:
            click.echo(announcement(tally), err=True)
        elif tally.last is not None:
            job, answer = tally.last.job, tally.last.answer
            about = f"{job.algorithm} on {shown_name(job.instance)} {job.budget}".rstrip()
            session.remark(f"{tally.done}/{tally.total} {about}: {answer.outcome}")

    return show


LONG = 1800
"""Longer runs, in seconds, get advice on how to shorten them."""


def announcement(tally: Tally) -> str:
    """Announce the planned runs before they begin."""
    from remat.units import format_time

    known = f", {tally.known:,} already in the journal" if tally.known else ""
    most = tally.most_seconds
    long = format_time(most) if most < 3600 else f"{most / 3600:.1f} h"
    advice = ""
    if most >= LONG:
        advice = "; fewer --algorithms or a lower --time-limit shorten the run; with -o it resumes after Ctrl-C"
    return f"{counted(tally.total, 'cell')} to solve{known}; at most {long} at the time limit{advice}"


def _write(comparison: Comparison, folder: Path, session: Session, asked: _Given) -> None:
    from remat.comparing.report.page import page
    from remat.comparing.report.sentences import circumstances
    from remat.comparing.report.tables import to_csv, to_json, to_markdown
    from remat.documents import write_text

    limits = ("time_limit", "gap", "patience", "memory_limit")
    made = circumstances(session.arguments, [(name.replace("_", "-"), getattr(asked, name)) for name in limits])
    for name, render in (
        ("cells.csv", to_csv),
        ("summary.md", to_markdown),
        ("comparison.json", to_json),
        ("report.html", lambda found: page(found, made, {} if asked.pages is False else _links(found, folder))),
    ):
        write_text(folder / name, [_encodable(render(comparison))])
    session.remark(f"wrote tables and report.html into {folder}")


def _links(comparison: Comparison, folder: Path) -> dict[str, str]:
    """Return the paths of the schedule pages in the folder, by cell key."""
    from remat.comparing.run import PAGES, page_name

    keys = {cell.job.key for cell in comparison if cell.answer.solved}
    return {key: f"{PAGES}/{page_name(key)}" for key in keys if (folder / PAGES / page_name(key)).exists()}


def _print(comparison: Comparison, format_: str, session: Session) -> None:
    from remat.comparing.report import tables as text

    if format_ == "csv":
        emit(_encodable(text.to_csv(comparison).rstrip("\n")))
    elif format_ == "markdown":
        emit(_encodable(text.to_markdown(comparison)))
    elif format_ == "json":
        emit(_encodable(text.to_json(comparison)))
    elif not session.quiet:
        from remat.comparing.report.terminal import comparison_table

        emit(_encodable(comparison_table(comparison)))


def _encodable(text: str) -> str:
    """Replace bytes of file names that are not UTF-8 by escapes, which are valid in JSON."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
