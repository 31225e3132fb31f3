"""`remat sweep`: compute time-memory curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit, writing
from remat.cli.progress import progress
from remat.errors import OptionError
from remat.messages import brief

if TYPE_CHECKING:
    from remat.solving.questions.curves import Sweep

HELP = """Compute time-memory curves: the makespan for each budget, down to the minimum budget.

INSTANCE is a JSON file (.gz too), - for standard input, or example:NAME for a shipped one.

\b
  remat sweep example:resnet50
  remat sweep example:resnet50 --algorithms rotor,periodic --plot curves.svg
  remat sweep net.json --budget 4GB,8GB,16GB --format markdown
  remat sweep net.json --points 50 -o sweep.json --format csv
  remat sweep net.json -a rotor-float,fine=rotor-float -O fine.slots=2000
  remat sweep net.json -a rotor,fixed -O rotor.gap=1% -O checkpoints=0,4

Without --budget, the budgets lie between the minimum budget and the peak of the schedule without a budget. Algorithms
that answer many budgets at once give every breakpoint of their curves. Every point is verified. After Ctrl-C, the
command prints the points that are finished.

Exit code 0: there is a schedule. 3: every budget is proved infeasible. 4: no schedule was found."""


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of the command, by click's names."""

    instance: str
    algorithms: tuple[str, ...]
    budgets: tuple[str, ...]
    points: int | None
    machine: str | None
    options: tuple[str, ...]
    time_limit: str | None
    gap: str | None
    patience: str | None
    seed: int
    threads: int
    output: str | None
    format_: str
    plot: str | None


@click.command("sweep", help=HELP)
@common.instance_argument
@click.option(
    "-a",
    "--algorithms",
    "--algorithm",
    "algorithms",
    metavar="[LABEL=]NAME,...",
    multiple=True,
    help="Algorithms, one curve each. LABEL= names a second curve of one.  [default: auto]",
)
@click.option(
    "-b",
    "--budget",
    "budgets",
    metavar="[NAME=]SIZE,...",
    multiple=True,
    help="Budgets of the working memory (adjoint: the fastest storage level): sizes, or shares such as 80%.",
)
@click.option(
    "--points", type=click.IntRange(2, 100_000), help="Number of budgets.  [default: 20, or every breakpoint]"
)
@common.machine_option
@click.option(
    "-O",
    "--option",
    "options",
    metavar="[NAME.]KEY=VALUE",
    multiple=True,
    help="Option of the algorithms; with NAME of one of them (or of a label).",
)
@common.limit_options("Time limit of each curve, for example 30s or 5min.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1, 4096), default=1, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write the sweep as JSON; - is standard output.")
@common.format_option("table", "csv", "markdown", "json")
@click.option("--plot", metavar="FILE", help="Draw the curves (.svg, .png, .pdf); .html: an interactive page.")
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Sweep, then hand the curves to the renderers."""
    asked = _Given(**given)
    _check_outputs(asked.instance, asked.machine, asked.output, asked.plot, asked.format_)
    chosen = common.split_assignments("--option", asked.options)
    names = _split("--algorithms", asked.algorithms) or ["auto"]
    sizes = _split("--budget", asked.budgets)

    from remat.solving.questions.sweep import sweep

    loaded = common.load_instance(asked.instance)
    units = loaded.units.build()
    model = common.load_machine_option(asked.machine, units)
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'}")
    common.warn_of_bare_budgets(session, [("", size.rpartition("=")[2]) for size in sizes], loaded, model)
    with progress(session, units, f"sweeping {loaded.name or asked.instance}") as listener:
        found = sweep(
            loaded,
            names,
            budgets=sizes or None,
            points=asked.points,
            machine=model,
            options=chosen,
            time_limit=asked.time_limit,
            gap=asked.gap,
            patience=asked.patience,
            seed=asked.seed,
            threads=asked.threads,
            progress=listener,
        )
    _write(found, asked.output, asked.plot, session)
    _print(found, asked.output, asked.format_, session)
    return exit_code(found)


def _split(option: str, given: tuple[str, ...]) -> list[str]:
    """Split ``a,b`` texts of a repeatable option."""
    parts = [part.strip() for text in given for part in text.split(",")]
    if "" in parts:
        raise OptionError(f"{option}: an entry of {brief(','.join(given))} is empty")
    return parts


def _check_outputs(instance: str, machine: str | None, output: str | None, plot: str | None, format_: str) -> None:
    """Refuse outputs that cannot be written, before the sweep starts."""
    inputs = {"INSTANCE": instance, "--machine": machine}
    common.one_standard_input(inputs)
    common.check_distinct(inputs | {"--output": output, "--plot": plot})
    if output == common.STANDARD_STREAM:
        if format_ != "table":
            raise OptionError(f"--output -: standard output cannot hold --format {format_} as well")
    elif output is not None:
        common.check_writable("--output", output)
    if plot is not None:
        common.check_plot(plot)
        common.check_writable("--plot", plot)


def _write(found: Sweep, output: str | None, plot: str | None, session: Session) -> None:
    if output is not None:
        import json

        from remat.documents import write_text

        text = [json.dumps(found.to_dict(), indent=1, ensure_ascii=False), "\n"]
        if output == common.STANDARD_STREAM:
            with writing():
                write_text(output, text)
        else:
            write_text(output, text)
    if plot is not None:
        if any(curve.points for curve in found.curves):
            from remat.report.plot.pareto import plot_sweep

            plot_sweep(found, plot)
        elif not session.quiet:
            click.echo("Warning: no schedule was found, so there is no curve to plot", err=True)


def _print(found: Sweep, output: str | None, format_: str, session: Session) -> None:
    if format_ == "json":
        import json

        emit(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
        return
    from remat.report.text import curve_tables

    if format_ == "csv":
        emit(curve_tables.sweep_csv(found))
    elif format_ == "markdown":
        emit(curve_tables.sweep_markdown(found))
    elif not session.quiet:
        if output == common.STANDARD_STREAM:
            click.echo(curve_tables.sweep_table(found, option=common.BUDGET), err=True)
        else:
            emit(curve_tables.sweep_table(found, option=common.BUDGET))


def exit_code(found: Sweep) -> ExitCode:
    """Return 0 if there is a schedule, else why there is none."""
    from remat.plugin.proposal import Status, Termination

    answers = [point for curve in found.curves for point in curve.answers]
    if any(point.solved for point in answers):
        return ExitCode.OK
    if any(curve.termination is Termination.INTERRUPTED for curve in found.curves):
        return ExitCode.INTERRUPTED
    refuted = {point.budget for point in answers if point.status is Status.INFEASIBLE}
    if answers and all(point.budget in refuted for point in answers):
        return ExitCode.INFEASIBLE
    return ExitCode.UNKNOWN
