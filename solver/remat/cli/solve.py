"""`remat solve`: find a schedule within the budget, verify it, print it, and write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit, emit_lines, writing
from remat.cli.progress import progress
from remat.errors import OptionError

if TYPE_CHECKING:
    from remat.instance import Instance, MachineModel
    from remat.plugin.problem import Problem
    from remat.solving.result import Result

HELP = """Find a schedule within the memory budget, and verify it.

INSTANCE is a JSON file (.gz too), - for standard input, or example:NAME for a shipped one.

\b
  remat solve example:resnet50 --budget 1GiB
  remat solve net.json -b 80% -o schedule.json.gz --plot memory.svg --trace trace.json
  remat solve net.json -b 8GB --plot plan.html                an interactive page
  remat solve net.json -b 8GB --plot stages.svg --view stages
  remat solve net.json -b device=8GB -b host=64GB -a pofo -O slots=30
  remat solve loop.json -b 20 --format actions
  remat solve net.json -b 8GB --gap 1% --patience 10s        stop at 1 %, or after 10 s without progress
  remat solve net.json --max-overhead 20%                    the smallest budget that meets a time limit
  remat solve net.json -b 8GB --layout                       with addresses that fit the budget
  remat solve net.json -b 8GB -O scale=batch -O batch=32     the largest batch for a budget

\b
Exit codes:
  0  the schedule is verified (also after Ctrl-C, if a schedule was found)
  3  no schedule fits: proved for all schedules; the table names the smallest budget
  4  no schedule found, or infeasibility proved only for a class of schedules"""


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """The files and formats of a result."""

    schedule: str | None
    instance: str | None
    plot: str | None
    view: str | None
    trace: str | None
    log: str | None
    format: str
    overwrite: bool

    def check(self, instance: str, machine: str | None) -> None:
        """Refuse outputs that cannot be written, before the solve starts."""
        inputs = {"INSTANCE": instance, "--machine": machine}
        outputs = {
            "--output": self.schedule,
            "--output-instance": self.instance,
            "--plot": self.plot,
            "--trace": self.trace,
            "--log": self.log,
        }
        common.one_standard_input(inputs)
        common.check_distinct(inputs | outputs)
        for option, path in outputs.items():
            if path is None:
                continue
            if path != common.STANDARD_STREAM:
                common.check_writable(option, path)
            elif option != "--output":
                raise OptionError(f"{option}: name a file; standard output is for the schedule and the table")
            elif self.format != "table":
                raise OptionError(f"--output -: standard output cannot hold --format {self.format} as well")
        if self.plot is not None:
            common.check_plot(self.plot, self.view)


@dataclass(frozen=True, kw_only=True)
class _Given:
    """The options of the command, by click's names."""

    instance: str
    algorithm: str
    budget: tuple[str, ...]
    machine: str | None
    options: tuple[str, ...]
    max_overhead: str | None
    max_makespan: str | None
    time_limit: str | None
    gap: str | None
    patience: str | None
    warm_start: str | None
    layout: bool
    seed: int
    threads: int
    output: str | None
    output_instance: str | None
    format_: str
    plot: str | None
    view: str | None
    trace: str | None
    log: str | None
    overwrite: bool
    live: bool

    @property
    def outputs(self) -> _Outputs:
        """The files and formats of the result."""
        return _Outputs(
            schedule=self.output,
            instance=self.output_instance,
            plot=self.plot,
            view=self.view,
            trace=self.trace,
            log=self.log,
            format=self.format_,
            overwrite=self.overwrite,
        )


@click.command("solve", help=HELP)
@common.instance_argument
@click.option(
    "-a",
    "--algorithm",
    metavar="NAME",
    default="auto",
    show_default=True,
    shell_complete=common.complete_algorithm,
    help="Algorithm; `remat algorithms` lists them.",
)
@common.budget_option
@common.machine_option
@click.option("-O", "--option", "options", metavar="KEY=VALUE", multiple=True, help="Option of the algorithm.")
@click.option(
    "--max-overhead", metavar="SHARE", help="Find the smallest budget with at most this overhead: 0.2 or 20%."
)
@click.option("--max-makespan", metavar="TIME", help="Find the smallest budget with at most this makespan.")
@common.limit_options("Time limit, for example 30s or 5min. [auto: 60s]")
@click.option("--warm-start", metavar="FILE", help="Start from this schedule of the instance.")
@click.option("--layout", is_flag=True, help="Find addresses, too: a schedule whose arenas fit the budgets.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1, 4096), default=1, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write the schedule; - is standard output.")
@click.option("--overwrite", is_flag=True, help="Overwrite the schedule in --output even if no schedule is found.")
@click.option(
    "--output-instance", metavar="FILE", help="Write the instance for the batch size found (with -O scale=batch)."
)
@common.format_option("table", "json", "actions")
@common.plot_options
@click.option("--trace", metavar="FILE", help="Write a trace for Chrome or Perfetto.")
@click.option("--live", is_flag=True, help="Show progress live: schedules, bound, gap, memory of the best schedule.")
@click.option("--log", metavar="FILE", help="Log every better schedule and bound with its time, as CSV.")
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Solve, then hand the result to the renderers."""
    asked = _Given(**given)
    outputs = asked.outputs
    outputs.check(asked.instance, asked.machine)
    chosen = common.split_assignments("--option", asked.options)
    if outputs.instance is not None and "scale" not in chosen:
        raise OptionError("only --option scale=batch changes the instance", argument="output_instance")
    capacities = common.split_budgets(asked.budget)

    from remat.solving.problem_setup import make_problem

    loaded = common.load_instance(asked.instance)
    units = loaded.units.build()
    _check_kind(loaded, outputs.format)
    common.check_view(outputs.view, outputs.plot, loaded.kind)
    model = common.load_machine_option(asked.machine, units)
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'}")
    common.warn_of_bare_budgets(session, capacities.items(), loaded, model)
    budget = capacities or None
    with _listening(session, asked, loaded, budget, model) as listener:
        question = _question(
            chosen,
            {"max_overhead": asked.max_overhead, "max_makespan": asked.max_makespan},
            lambda: _own_options(make_problem(loaded, budget=budget, machine=model), asked.algorithm),
            warm_start=asked.warm_start is not None,
            layout=asked.layout,
        )
        with question.errors():
            result = question.ask(
                loaded,
                algorithm=asked.algorithm,
                budget=budget,
                machine=model,
                options=question.options,
                time_limit=asked.time_limit,
                gap=asked.gap,
                patience=asked.patience,
                **({} if asked.warm_start is None else {"warm_start": asked.warm_start}),
                **({"layout": True} if asked.layout else {}),
                seed=asked.seed,
                threads=asked.threads,
                progress=listener,
            )
    steps = 0 if result.columns is None else len(result.columns)
    for line in result.log:
        session.remark(line)
    session.remark(f"{result.algorithm}: {result.status}, {steps:,} steps verified")
    _write(result, outputs, session, asked.instance)
    return ExitCode.of(result)


@contextmanager
def _listening(
    session: Session, asked: _Given, loaded: Instance, budget: Any, model: MachineModel | None
) -> Iterator[Any]:
    """Show the solver's progress, live if requested and standard error is a terminal."""
    import sys

    units, what = loaded.units.build(), f"solving {loaded.name or asked.instance}"
    if not asked.live or session.quiet or session.verbose:
        with progress(session, units, what) as listener:
            yield listener
        return
    if sys.stderr is None or not sys.stderr.isatty():
        session.note("--live needs a terminal; each better schedule and bound is printed as a line instead")
        session.verbose = True
        with progress(session, units, what) as listener:
            yield listener
        return
    from rich.console import Console

    from remat.cli.live import LiveView, live
    from remat.solving.problem_setup import make_problem, read_seconds

    asks = asked.max_overhead or asked.max_makespan or any(text.startswith("scale=") for text in asked.options)
    problem = None if asks else make_problem(loaded, budget=budget, machine=model)
    limit = read_seconds(asked.time_limit, default=None)
    with live(LiveView(what, units, problem, limit), Console(stderr=True, highlight=False)) as listener:
        yield listener


@dataclass(frozen=True)
class _Question:
    """The question to solve, and the origin of its arguments.

    Attributes
    ----------
    ask : callable
        `remat.solve`, or one of the questions, with the question's own arguments.
    options : mapping
        Options of the algorithm.
    as_options : frozenset of str
        Arguments that were given with -O; errors name them as options.
    """

    ask: Callable[..., Result]
    options: Mapping[str, str]
    as_options: frozenset[str]

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise errors that name the options as they were given."""
        try:
            yield
        except OptionError as error:
            if error.argument not in self.as_options:
                raise
            raise OptionError(error.message, option=error.argument) from None


def _question(
    options: dict[str, str],
    flags: Mapping[str, str | None],
    own: Callable[[], set[str]],
    *,
    warm_start: bool,
    layout: bool,
) -> _Question:
    """Separate the question from the algorithm's options; `own` names the algorithm's own options."""
    import remat
    from remat.solving.questions import QUESTIONS

    given = {name: value for name, value in flags.items() if value is not None}
    for name in given:
        if name in options:
            raise OptionError(f"also given as --option {name}; give it once", argument=name)
    asked = QUESTIONS & options.keys()
    asked -= own() if asked else set()
    arguments = given | {name: options[name] for name in asked}
    left = {name: value for name, value in options.items() if name not in asked}
    if not arguments:
        return _Question(remat.solve, left, asked)
    if warm_start:
        raise OptionError("a question runs many solves and takes no warm start", argument="warm_start")
    if layout:
        raise OptionError("a question runs many solves and takes no layout", argument="layout")
    if "scale" in arguments:
        if (scale := arguments.pop("scale")) != "batch":
            raise OptionError(f"cannot scale by {scale!r:.60}; write scale=batch", option="scale")
        return _Question(partial(remat.largest_batch, **arguments), left, asked)  # type: ignore[arg-type]
    if "batch" in arguments:
        raise OptionError(
            "the batch size of the instance is used only with --option scale=batch; add it", option="batch"
        )
    return _Question(partial(remat.least_budget, **arguments), left, asked)  # type: ignore[arg-type]


def _own_options(problem: Problem, algorithm: str) -> set[str]:
    """Return the names of the options that the algorithm has."""
    from remat.solving.auto import find

    model = find(algorithm, problem.kind).load_options()
    return set() if model is None else set(model.model_fields)


def _check_kind(instance: Instance, format_: str) -> None:
    if format_ == "actions" and not instance.is_chain:
        raise OptionError(f"--format actions: only chains and adjoints have actions, not a {instance.kind}")


def _write(result: Result, outputs: _Outputs, session: Session, instance: str) -> None:
    if outputs.schedule == common.STANDARD_STREAM:
        with writing():
            result.save(outputs.schedule)
    elif outputs.schedule is not None:
        if result.report is None and not outputs.overwrite and common.holds_schedule(outputs.schedule):
            kept = f"{outputs.schedule!r} still holds its previous schedule"
            click.echo(f"Warning: {kept}, because this answer has none (--overwrite replaces it)", err=True)
        else:
            result.save(outputs.schedule)
    if outputs.instance is not None and result.answer is not None and result.answer.instance is not None:
        from remat.instance import save_instance

        save_instance(result.answer.instance, outputs.instance)
    if result.report is None:
        if (outputs.plot or outputs.trace) and not session.quiet:
            click.echo("Warning: no schedule to plot or trace", err=True)
    else:
        if outputs.plot is not None:
            from remat.report.plot.schedule import plot

            plot(result, outputs.plot, view=outputs.view or "time")
        if outputs.trace is not None:
            from remat.report.trace import write_trace

            write_trace(result, outputs.trace)
    if outputs.log is not None:
        from remat.report.text.incumbents import write_log

        write_log(result.history, outputs.log)
    _print(result, outputs, session, instance)


def _print(result: Result, outputs: _Outputs, session: Session, instance: str) -> None:
    if outputs.format == "json":
        import json

        from remat.report.text.summary import figures

        emit(json.dumps(figures(result), indent=2, ensure_ascii=False))
    elif outputs.format == "actions" and result.report is not None:
        from remat.report.text.actions import actions

        emit_lines(actions(result))
    elif not session.quiet:
        from remat.report.text.summary import summary

        text = summary(result, verbose=session.verbose, option=common.BUDGET) + (
            _peak(result) if session.verbose else ""
        )
        text += _more(text, outputs, instance)
        if outputs.schedule == common.STANDARD_STREAM or outputs.format == "actions":
            click.echo(text, err=True)
        else:
            emit(text)


def _more(text: str, outputs: _Outputs, instance: str) -> str:
    """Return the command that lists the decisions, if the answer does not list them all."""
    from remat.cli.plan_commands import decisions_command

    schedule = None if outputs.schedule == common.STANDARD_STREAM else outputs.schedule
    command = decisions_command(text, schedule, outputs.instance or instance)
    return f"\n\n{command}" if command else ""


def _peak(result: Result) -> str:
    """Return the values at the peak; empty without a peak or for very long schedules."""
    from remat.report.text.peak_table import MOST_STEPS, peak_table

    if result.columns is None or len(result.columns) > MOST_STEPS or (peak := result.peak) is None:
        return ""
    return "\n\n" + peak_table(peak, result.units)
