"""`remat solve`: find a schedule within the budget, verify it, show it, write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from remat.cli import common
from remat.cli.progress import progress
from remat.cli.session import ExitCode, Session, emit, emit_lines, writing
from remat.errors import OptionError

if TYPE_CHECKING:
    from remat.instance import Instance
    from remat.solving.result import Result

HELP = """Find a schedule within the memory budget, and verify it.

INSTANCE is a JSON file (.gz too), - for standard input, or example:NAME for a shipped one.

\b
  remat solve example:resnet50 --budget 1GiB
  remat solve net.json -b 80% -o schedule.json.gz --plot memory.svg --trace trace.json
  remat solve net.json -b 8GB --plot stages.svg --view stages
  remat solve net.json -b device=8GB -b host=64GB -a rotor -O slots=1000
  remat solve loop.json -b 20 --format actions
  remat solve net.json --max-overhead 20%                    the least budget for a time
  remat solve net.json -b 8GB -O scale=batch -O batch=32     the largest batch for a budget

Exit code 0: the schedule is verified (also after Ctrl-C, if there is one). 3: proved infeasible; the table names the
least budget and the task that sets it, and the file of -o holds the answer, without steps. 4: nothing found in time."""


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """Where a result goes."""

    schedule: str | None
    instance: str | None
    plot: str | None
    view: str | None
    trace: str | None
    format: str

    def check(self, instance: str, machine: str | None) -> None:
        """Refuse what cannot be written, while nothing has been computed yet."""
        inputs = {"INSTANCE": instance, "--machine": machine}
        outputs = {
            "--output": self.schedule,
            "--output-instance": self.instance,
            "--plot": self.plot,
            "--trace": self.trace,
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
            common.check_plot(self.plot)


@click.command("solve", help=HELP)
@common.instance_argument
@click.option(
    "-a",
    "--algorithm",
    metavar="NAME",
    default="auto",
    show_default=True,
    shell_complete=common.complete_algorithm,
    help="One of `remat algorithms`.",
)
@common.budget_option
@common.machine_option
@click.option("-O", "--option", "options", metavar="KEY=VALUE", multiple=True, help="An option of the algorithm.")
@click.option("--max-overhead", metavar="SHARE", help="Find the least budget with at most this overhead: 0.2 or 20%.")
@click.option("--max-makespan", metavar="TIME", help="Find the least budget with at most this makespan.")
@click.option("--time-limit", metavar="TIME", help="Such as 30s or 5min; 60s for the algorithm auto.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1, 4096), default=1, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write the schedule; - is standard output.")
@click.option("--output-instance", metavar="FILE", help="With -O scale=batch: write the instance for the batch found.")
@common.format_option("table", "json", "actions")
@common.plot_options
@click.option("--trace", metavar="FILE", help="Write a trace for Chrome or Perfetto.")
@common.verbosity_options
@click.pass_obj
def command(
    session: Session,
    instance: str,
    algorithm: str,
    budget: tuple[str, ...],
    machine: str | None,
    options: tuple[str, ...],
    max_overhead: str | None,
    max_makespan: str | None,
    time_limit: str | None,
    seed: int,
    threads: int,
    output: str | None,
    output_instance: str | None,
    format_: str,
    plot: str | None,
    view: str | None,
    trace: str | None,
) -> int:
    """Solve, then hand the result to the renderers."""
    outputs = _Outputs(schedule=output, instance=output_instance, plot=plot, view=view, trace=trace, format=format_)
    outputs.check(instance, machine)
    chosen = common.split_assignments("--option", options)
    asked = _ask(chosen, max_overhead=max_overhead, max_makespan=max_makespan)
    if output_instance is not None and "scale" not in chosen:
        raise OptionError("--output-instance: only with --option scale=batch is the instance another one")
    capacities = common.split_budgets(budget)

    from remat.solving.single import solve

    loaded = common.load_instance(instance)
    units = loaded.units.build()
    _check_kind(loaded, format_)
    common.check_view(view, plot, loaded.kind)
    model = common.load_machine_option(machine, units)
    session.remark(f"loaded {loaded.kind} {loaded.name or '(unnamed)'}")
    with progress(session, units, f"solving {loaded.name or instance}") as listener, _as_given(asked):
        result = solve(
            loaded,
            algorithm=algorithm,
            budget=common.with_shares(capacities, loaded, model) or None,
            machine=model,
            options=chosen,
            time_limit=time_limit,
            seed=seed,
            threads=threads,
            progress=listener,
        )
    session.remark(f"{result.algorithm}: {result.status}, {len(result.steps):,} steps verified")
    _write(result, outputs, session)
    return _exit_code(result)


def _ask(chosen: dict[str, str], **questions: str | None) -> dict[str, str]:
    """Add --max-overhead and --max-makespan to the options, which are another way to ask; return how they were asked.

    The answer maps the beginning of an error to the option that was given.
    """
    asked = {}
    for name, value in questions.items():
        if value is not None:
            flag = f"--{name.replace('_', '-')}"
            if name in chosen:
                raise OptionError(f"{flag}: given as --option {name}, too")
            chosen[name] = value
            asked[f"--option {name}:"] = f"{flag}:"
    return asked


@contextmanager
def _as_given(asked: Mapping[str, str]) -> Iterator[None]:
    """Let errors name the options that were given."""
    try:
        yield
    except OptionError as error:
        text = str(error)
        for name, flag in asked.items():
            text = text.replace(name, flag)
        raise OptionError(text) from None


def _check_kind(instance: Instance, format_: str) -> None:
    if format_ == "actions" and not instance.is_chain:
        raise OptionError(f"--format actions: only chains and adjoints have them, not a {instance.kind}")


def _write(result: Result, outputs: _Outputs, session: Session) -> None:
    if outputs.schedule == common.STANDARD_STREAM:
        with writing():
            result.save(outputs.schedule)
    elif outputs.schedule is not None:
        result.save(outputs.schedule)
    if outputs.instance is not None and result.answer is not None and result.answer.instance is not None:
        from remat.instance import save_instance

        save_instance(result.answer.instance, outputs.instance)
    if result.report is None:
        if (outputs.plot or outputs.trace) and not session.quiet:
            click.echo("Warning: there is no schedule to plot or to trace", err=True)
    else:
        if outputs.plot is not None:
            from remat.report.plot.schedule import plot

            plot(result, outputs.plot, view=outputs.view or "time")
        if outputs.trace is not None:
            from remat.report.trace import write_trace

            write_trace(result, outputs.trace)
    _print(result, outputs, session)


def _print(result: Result, outputs: _Outputs, session: Session) -> None:
    if outputs.format == "json":
        import json

        from remat.report.text.summary import figures

        emit(json.dumps(figures(result), indent=2, ensure_ascii=False))
    elif outputs.format == "actions" and result.report is not None:
        from remat.report.text.actions import actions

        emit_lines(actions(result))
    elif not session.quiet:
        from remat.report.text.summary import summary

        if outputs.schedule == common.STANDARD_STREAM or outputs.format == "actions":
            click.echo(summary(result), err=True)
        else:
            emit(summary(result))


def _exit_code(result: Result) -> ExitCode:
    from remat.plugin.proposal import Status, Termination

    match result.status:
        case Status.INFEASIBLE:
            return ExitCode.INFEASIBLE
        case Status.UNKNOWN:
            interrupted = result.termination is Termination.INTERRUPTED
            return ExitCode.INTERRUPTED if interrupted else ExitCode.UNKNOWN
        case _:
            return ExitCode.OK
