"""`remat fit CONFIG`: the memory of a model's training step, computed from its configuration."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.generate import write_instance
from remat.cli.io_session import ExitCode, Session, writing
from remat.cli.parameters import naming_option, option_of
from remat.generate import FAMILIES, generate_rows
from remat.generate.options import HOMES_OF_MODEL, flag

if TYPE_CHECKING:
    from remat.generate.models.instances import Workload
    from remat.generate.models.memory import Training

HELP = """Compute the memory of a training step from a model's configuration, without a framework.

CONFIG is a Hugging Face config.json, or the name of a shipped configuration such as llama-3-8b. The answer splits the
memory into parameters, gradients, optimizer states, activations and logits, and gives the largest batch and the longest
sequence, without recomputation and with every block recomputed.

\b
  remat fit config.json --device H100 --optimizer adam --sequence 4096
  remat fit llama-3-8b --budget 24GB --sequence 8192 --lora rank=16 --loss-chunks 16
  remat fit llama-3-8b --budget 80GB --lora rank=16 -o lora.json --plot memory.svg
  remat fit llama-3-70b --device H100 --data 64 --zero 3

All options that are not about the answer are options of remat generate chain --config, too.

Exit code 0: it fits. 3: parameters, gradients and states alone do not fit. 4: it does not fit even if every block is
recomputed; remat solve searches all schedules of the instance that -o writes."""

LEAST_BYTES = 10**6
"""A smaller budget is not plausible as a device's memory: its unit is missing."""

NEAR = 1.1
"""Factor within which a budget is the memory of a device."""

FAMILY = FAMILIES["chain/model"]
HOMES = tuple(parameter.name for parameter in HOMES_OF_MODEL)


class _Command(click.Command):
    """A command with the options of the family that `remat generate chain --config` selects."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the argument, the options of the family, and the others."""
        first, *others = super().get_params(ctx)
        shared = [option_of(parameter) for parameter in FAMILY.parameters if parameter.name != "config"]
        for option in shared:
            option.hidden = option.name in HOMES
        return [first, *shared, *others]


@click.command("config", help=HELP, cls=_Command)
@click.argument("config", type=click.Path())
@click.option("-b", "--budget", metavar="SIZE", help="Device memory, for example 80GB. [default: the device's]")
@click.option("-o", "--output", metavar="FILE", help="Write the instance, for remat solve (.gz too).")
@click.option("--plot", metavar="FILE", help="Draw the memory as bars (.svg, .png, .pdf).")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(
    session: Session,
    /,
    config: str,
    budget: str | None,
    output: str | None,
    plot: str | None,
    format_: str,
    **given: Any,
) -> int:
    """Compute, and print the table or JSON."""
    from remat.cli.fit_remedies import remedies_of
    from remat.errors import OptionError, RematError
    from remat.generate.models import memory
    from remat.generate.models.chains import training_of, workload_of
    from remat.generate.models.reading import read_model
    from remat.report.text import model_memory

    if config == common.STANDARD_STREAM:
        common.require_standard_input()
    _check_outputs(config, output, plot)
    options = {name: value for name, value in given.items() if value is not None}
    _refuse_homes(config, budget, options)
    asked = {parameter.name: options.get(parameter.name, parameter.default) for parameter in FAMILY.parameters}
    try:
        size, reserve = _sizes(asked, budget)
        work, training = workload_of(read_model(config), asked), training_of(asked)
        instance = None if output is None else generate_rows("chain", "model", config=config, **options)
    except RematError:
        raise
    except ValueError as error:
        raise OptionError(naming_option(str(error), FAMILY)) from None
    available = max(0, size - reserve)
    remark = "" if "device" in options else _remark_on_device(str(asked["device"]), size)
    found = memory.estimate(work, training, available)

    def both(ask: Any) -> Any:
        return tuple(ask(work, training, available, recompute=recompute) for recompute in (False, True))

    sequences = both(memory.longest_sequence)
    is_printed = format_ == "json" or not session.quiet
    shown = model_memory.Asked(
        found=found,
        about=_about(work, training, asked),
        budget=size,
        reserve=reserve,
        batches=both(memory.largest_batch),
        sequences=None if None in sequences else sequences,
        remedies=remedies_of(work.model, asked, available, _generating(config, options))
        if found.chosen is None and is_printed
        else (),
        remark=remark,
    )
    if instance is not None and output is not None:
        write_instance(instance, output)
    if plot is not None:
        from remat.report.plot.model_memory import plot_memory

        plot_memory(shown, plot)
    if format_ == "json":
        with writing():
            click.echo(json.dumps(model_memory.document(shown), indent=2))
    elif not session.quiet:
        with writing():
            click.echo("\n".join(model_memory.lines(shown)))
    if found.chosen is not None:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if found.static.total > available else ExitCode.UNKNOWN


def _about(work: Workload, training: Training, asked: Mapping[str, Any]) -> str:
    words = [f"{work.setting.batch} x {work.setting.sequence:,} tokens", asked["dtype"], training.name]
    if training.has_master(work.setting.element):
        words += ["with an fp32 copy of the parameters"]
    if training.precision == "pure":
        words += ["no fp32 copy"] if asked["optimizer"].endswith(("8", "4")) else [f"states in {asked['dtype']}"]
    words += [f"loss in {work.setting.chunks} chunks"] if work.chunked else []
    return ", ".join([*words, asked["device"]])


def _check_outputs(config: str, output: str | None, plot: str | None) -> None:
    """Refuse outputs that cannot be written, before the work begins."""
    from remat.errors import OptionError
    from remat.report.plot.style import check_suffix

    common.check_distinct({"CONFIG": config, "--output": output, "--plot": plot})
    if output == common.STANDARD_STREAM:
        raise OptionError("the table goes to standard output; name a file", argument="output")
    if output is not None and config == common.STANDARD_STREAM:
        raise OptionError("an instance names the file of its configuration; save the configuration", argument="output")
    for option, path in (("--output", output), ("--plot", plot)):
        if path is not None:
            common.check_writable(option, path)
    if plot is not None:
        check_suffix(plot)
        common.check_plot(plot)


def _refuse_homes(config: str, budget: str | None, options: Mapping[str, Any]) -> None:
    """Refuse parameters and states as values, whose memory a schedule decides, and name the commands."""
    from remat.errors import OptionError

    name = next((name for name in HOMES if name in options), None)
    if name is None:
        return
    solve = "remat solve FILE" + (f" --budget {budget}" if budget else "")
    raise OptionError(
        "a schedule decides what is on the device, so make an instance and solve it: "
        f"{_generating(config, options)} -o FILE; {solve}",
        argument=name,
    )


def _generating(config: str, options: Mapping[str, Any]) -> str:
    """Return the command that makes an instance with the same options."""
    words = ["remat", "generate", "chain", "--config", config]
    for key, value in options.items():
        words += [flag(key if value is not False else f"no_{key}")] + ([] if isinstance(value, bool) else [str(value)])
    return shlex.join(words)


def _remark_on_device(assumed: str, size: int) -> str:
    """Name the assumed device, whose times are printed, if the budget is far from its memory; empty otherwise."""
    from remat.generate.devices import devices
    from remat.units import format_size

    memories = {name: int(entry["memory"]) for name, entry in devices().items() if entry.get("memory")}
    if NEAR * size >= memories.get(assumed, 0):
        return ""
    near = [name for name, memory in memories.items() if size <= memory * NEAR and memory <= size * NEAR]
    named = f" ({', '.join(near)})" if near else ""
    whole = format_size(memories[assumed])
    return f"times are those of {assumed} ({whole}); --device names another one{named}"


def _sizes(asked: Mapping[str, Any], budget: str | None) -> tuple[int, int]:
    """Return the budget and the reserve in bytes."""
    from remat.errors import OptionError, QuantityError
    from remat.generate.devices import rates
    from remat.units import parse_size

    known, reserve = rates(asked["device"], asked["dtype"]), int(asked["reserve"])
    for name, bare in (("budget", budget), ("reserve", str(reserve))):
        if bare is not None and bare.isdecimal() and 0 < int(bare[:20]) < LEAST_BYTES:
            raise OptionError(f"{bare} bytes: did you mean {bare}GB?", argument=name)
    try:
        size = known.memory if budget is None else parse_size(int(budget) if budget.isdecimal() else budget)
    except QuantityError as error:
        raise OptionError(str(error), argument="budget") from None
    if size is None:
        raise OptionError(f"the table has no memory size for {asked['device']}; give one", argument="budget")
    return size, reserve
