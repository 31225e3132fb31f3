"""`remat plan`: plan a training step on several devices."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.cli.progress import progress
from remat.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from remat.instance import Instance
    from remat.solving.questions.plan import Planned

PLANNED = 0.6
"""Share of the time limit for the plan if --explain uses the rest."""

HELP = """Plan a training step on several devices: stages, order, recomputation, and the split of the batch.

INSTANCE is a pipeline or a chain with parameters. A chain needs --devices, --micro-batches and --link.

\b
  remat plan net.json --devices 8 --budget 8GB
  remat plan net.json --budget 16GiB -o plan.json --plot plan.svg
  remat plan net.json --devices 8 -b 16GiB --data 1,2,4 --zero 0,1   ranks that share the batch
  remat plan net.json --budget 16GiB --tensor 1,2                    devices that run stages together
  remat plan chain.json --devices 8 -b 16GiB --micro-batches 32 --link 25GB/s
  remat plan net.json --devices 8 -b 8GB --explain                   limits, and the gain of more memory
  remat plan net.json --devices 8 -b 8GB --as megatron               the plan as flags for another program

--devices and --budget replace the cluster's number of devices and their memory. Exit codes are those of solve."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options of the command, by click's names."""

    instance: str
    devices: int | None
    budget: tuple[str, ...]
    micro_batches: int | None
    link: str | None
    data: str
    zero: str
    tensor: str | None
    objective: str
    options: tuple[str, ...]
    time_limit: str | None
    gap: str | None
    patience: str | None
    seed: int
    output: str | None
    output_instance: str | None
    format_: str
    plot: str | None
    as_: str | None
    explain: bool
    max_makespan: str | None
    max_overhead: str | None

    @property
    def reshaping(self) -> dict[str, str | int | None]:
        """The options that change the instance, by flag; None where they are the default."""
        return {
            "--devices": self.devices,
            "--micro-batches": self.micro_batches,
            "--link": self.link,
            "--data": None if self.data == "1" else self.data,
            "--zero": None if self.zero == "0" else self.zero,
            "--tensor": self.tensor,
        }

    @property
    def words(self) -> list[str]:
        """The command without degrees and outputs."""
        kept = {name: self.reshaping[name] for name in ("--devices", "--micro-batches", "--link")}
        kept |= {"--seed": self.seed or None}
        limits = {"--time-limit": self.time_limit, "--gap": self.gap, "--patience": self.patience}
        flags = [word for name, value in (kept | limits).items() if value is not None for word in (name, str(value))]
        budgets = [word for size in self.budget for word in ("-b", size)]
        options = [word for text in self.options for word in ("-O", text)]
        return ["remat", "plan", self.instance, *flags, *budgets, *options]


@click.command("plan", help=HELP)
@common.instance_argument
@click.option("--devices", type=click.IntRange(min=1), metavar="N", help="Number of devices.")
@common.budget_option
@click.option(
    "--micro-batches", type=click.IntRange(min=1), metavar="N", help="Micro-batches per step, over all ranks."
)
@click.option("--link", metavar="BANDWIDTH", help="Bandwidth between any two devices, for example 25GB/s.")
@click.option("--data", metavar="N,N", default="1", show_default=True, help="Numbers of data-parallel ranks to try.")
@click.option("--tensor", metavar="N,N", help="Tensor-parallel degrees to try. [default: all that the layers list]")
@click.option("--zero", metavar="N,N", default="0", show_default=True, help="ZeRO levels to try.")
@click.option(
    "--objective",
    type=click.Choice(("sample", "makespan")),
    default="sample",
    show_default=True,
    help="Minimise the time per sample, or of a step.",
)
@click.option("-O", "--option", "options", metavar="KEY=VALUE", multiple=True, help="Option of pipe-plan.")
@common.limit_options("Time limit for the whole command, for example 30s or 5min.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option("-o", "--output", metavar="FILE", help="Write the schedule.")
@click.option(
    "--output-instance", metavar="FILE", help="Write the pipeline instance of the schedule, without --budget."
)
@common.format_option("table", "json")
@click.option(
    "--plot", metavar="FILE", help="Draw the devices over time (.svg, .png, .pdf); .html: an interactive page."
)
@click.option("--as", "as_", type=click.Choice(("megatron",)), help="Print the plan as flags for another program.")
@click.option("--explain", is_flag=True, help="Explain what limits the plan, and the gain of one more GiB or device.")
@click.option("--max-makespan", metavar="TIME", hidden=True)
@click.option("--max-overhead", metavar="SHARE", hidden=True)
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Plan, then show the plan."""
    asked = _Asked(**given)
    if refusal := _target_refusal(asked):
        click.echo(f"Error: {refusal}", err=True)  # commands are not shortened, as other messages are
        return ExitCode.USAGE
    _check_outputs(asked)
    begun = time.monotonic()
    loaded = common.load_instance(asked.instance)
    _check_chain(loaded, asked)
    common.check_rate(asked.link, "link", loaded)
    from remat.solving.problem_setup import read_seconds
    from remat.solving.questions.plan import plan

    budgets = common.split_budgets(asked.budget)
    _warn_of_bare_budgets(session, loaded, budgets, asked)
    limit = read_seconds(asked.time_limit, default=None)
    end = None if limit is None else begun + limit
    share = PLANNED if asked.explain else 1.0

    with progress(session, loaded.units.build(), f"planning {loaded.name or asked.instance}") as listener:
        planned = plan(
            loaded,
            devices=asked.devices,
            budget=budgets or None,
            micro_batches=asked.micro_batches,
            link=asked.link,
            data=common.split_numbers(asked.data, "data"),
            zero=common.split_numbers(asked.zero, "zero"),
            tensor=None if asked.tensor is None else common.split_numbers(asked.tensor, "tensor"),
            objective=asked.objective,
            options=common.split_assignments("--option", asked.options),
            time_limit=None if limit is None else share * limit,
            gap=asked.gap,
            patience=asked.patience,
            seed=asked.seed,
            progress=listener,
        )
    _write(planned, asked)
    _print(planned, asked, session, end)
    return ExitCode.of(planned.result)


def _target_refusal(asked: _Asked) -> str:
    """Return why the targets of solve are refused, with the commands that take them; empty without a target."""
    from remat.cli.plan_commands import target_refusal

    for flag, value in (("--max-makespan", asked.max_makespan), ("--max-overhead", asked.max_overhead)):
        if value is not None:
            return target_refusal(asked.instance, asked.reshaping, asked.options, f"{flag} {value}")
    return ""


def _check_chain(loaded: Instance, asked: _Asked) -> None:
    """Name all options that the plan of a chain still needs."""
    needed = {"--devices N": asked.devices, "--micro-batches N": asked.micro_batches, "--link BANDWIDTH": asked.link}
    missing = [option for option, value in needed.items() if value is None]
    if loaded.kind == "chain" and missing:
        from remat.solving.questions.plan import check_plannable

        check_plannable(loaded)
        listed = " and ".join([*filter(None, [", ".join(missing[:-1])]), missing[-1]])
        raise OptionError(f"the plan of a chain also needs {listed}")


def _warn_of_bare_budgets(
    session: Session, loaded: Instance, budgets: Mapping[str, int | str | None], asked: _Asked
) -> None:
    """Warn if bare numbers are implausibly small for the devices of the plan."""
    from remat.solving.questions.plan import pipeline_of

    if not any(str(size).isdecimal() for size in budgets.values()):
        return
    try:
        planned = pipeline_of(loaded, devices=asked.devices, micro_batches=asked.micro_batches, link=asked.link)
    except OptionError:  # the plan reports it
        return
    common.warn_of_bare_budgets(session, budgets.items(), planned, None)


def _check_outputs(asked: _Asked) -> None:
    outputs = {"--output": asked.output, "--output-instance": asked.output_instance, "--plot": asked.plot}
    common.check_distinct({"INSTANCE": asked.instance} | outputs)
    for option, path in outputs.items():
        if path is not None and path != common.STANDARD_STREAM:
            common.check_writable(option, path)
        elif path is not None:
            raise OptionError(f"{option}: name a file; standard output is for the table")
    if asked.plot is not None:
        common.check_plot(asked.plot)


def _write(planned: Planned, asked: _Asked) -> None:
    if asked.output is not None:
        planned.result.save(asked.output)
    if asked.output_instance is not None:
        from remat.instance import save_instance

        save_instance(planned.instance, asked.output_instance)
    if asked.plot is not None and planned.result.report is not None:
        from remat.report.plot.schedule import plot

        pictured = planned.result.orders is not None and not asked.plot.lower().endswith(".html")
        plot(planned.result, asked.plot, view="devices" if pictured else "time")


def _print(planned: Planned, asked: _Asked, session: Session, end: float | None) -> None:
    from remat.report.text.plan_view import binding_lines, plan_document, plan_lines, stage_table
    from remat.report.text.summary import table

    found = planned.result.report is not None
    more = None
    if asked.explain and found:
        from remat.solving.questions.binding import binding

        chosen = common.split_assignments("--option", asked.options)
        left = None if end is None else max(0.0, end - time.monotonic())
        more = binding(planned, options=chosen, time_limit=left, seed=asked.seed)
    if asked.format_ == "json":
        import json

        emit(json.dumps(plan_document(planned, more), indent=2, ensure_ascii=False))
        return
    if session.quiet:
        return
    text = table(plan_lines(planned, option=common.BUDGET))
    emit(text)
    if found:
        emit("\n" + stage_table(planned))
    if more is not None:
        emit("\n" + table(binding_lines(planned, more)))
    if asked.as_ == "megatron" and planned.result.orders is not None:
        from remat.bridges.megatron import megatron_flags

        said = megatron_flags(planned)
        emit("\n" + "\n".join([*(f"--{flag}" for flag in said.flags), *(f"# {note}" for note in said.notes)]))
    _print_commands(planned, asked, text)


def _print_commands(planned: Planned, asked: _Asked, text: str) -> None:
    """Print the command of the chosen degrees, and the one that lists all decisions if the answer does not."""
    from remat.cli.plan_commands import choice_command, decisions_command, shown_commands

    own = all(value is None for value in asked.reshaping.values()) and planned.instance.kind == "pipeline"
    of = asked.output_instance or (asked.instance if own and len(planned.tried) < 2 else None)
    commands = {
        "this plan, without the other degrees": choice_command(planned, asked.words),
        "all decisions": decisions_command(text, asked.output, of),
    }
    for number, line in enumerate(shown_commands(commands)):
        emit(line if number else f"\n{line}")
