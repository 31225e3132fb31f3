"""`remat fit CONFIG`: the memory of a model's training step, computed from its configuration."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.generate import write_instance
from remat.cli.io_session import ExitCode, Session, writing
from remat.cli.parameters import naming_option, option_of
from remat.generate import FAMILIES, generate_rows
from remat.generate.options import HOMES_OF_MODEL, flag
from remat.units import format_size

if TYPE_CHECKING:
    from remat.generate.document import Document
    from remat.generate.models.instances import Workload
    from remat.generate.models.memory import Training
    from remat.report.text.model_memory import Remedy

HELP = """Compute the memory of a training step from a model's configuration, without a framework.

CONFIG is a Hugging Face config.json, or the name of a shipped configuration such as llama-3-8b. The verdict says
whether the step fits, or with what. The table splits the memory into parameters, gradients, optimizer states,
activations and logits, and gives the largest batch and the longest sequence, without recomputation and with every block
recomputed. If the step does not fit, the answer lists what would help, with commands; the search behind offloading
takes some seconds.

\b
  remat fit config.json --device H100 --optimizer adam --sequence 4096
  remat fit llama-3-8b --budget 24GB --sequence 8192 --lora rank=16 --loss-chunks 16
  remat fit llama-3-8b --budget 24GB --sequence 8192 --host 256GB
  remat fit llama-3-8b --budget 80GB --lora rank=16 -o lora.json --plot memory.svg
  remat fit llama-3-70b --device H100 --data 64 --zero 3 --network 50GB/s

All options that are not about the answer are options of remat generate chain --config, too.

Times are those of --device. Without it, they are those of the fastest listed device that has the memory --budget.

Exit code 0: it fits, with --host if need be. 3: parameters, gradients and states alone do not fit. 4: it does not fit
even if every block is recomputed; remat solve searches all schedules of the instance that -o writes."""

LEAST_BYTES = 10**6
"""A smaller budget is not plausible as a device's memory: its unit is missing."""

LEAST_RESERVE = 10**3
"""The same for the reserve, whose unit has been read: 100kB is one."""

FAMILY = FAMILIES["chain/model"]
OF_MACHINE = ("link", "host_speed", "network")
"""Options of a machine on which parameters are values: they change times and remedies."""

HOMES = tuple(parameter.name for parameter in HOMES_OF_MODEL if parameter.name not in OF_MACHINE)


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
@click.option("--host", metavar="SIZE", help="Memory of a host to which the step may offload, for example 256GB.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the instance, for remat solve (.gz too); with --host: one that offloads, if it must.",
)
@click.option("--plot", metavar="FILE", help="Draw the memory as bars (.svg, .png, .pdf).")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(
    session: Session,
    /,
    config: str,
    budget: str | None,
    host: str | None,
    output: str | None,
    plot: str | None,
    format_: str,
    **given: Any,
) -> int:
    """Compute, and print the table or JSON."""
    from remat.cli.fit_remedies import Offloaded, of_values, remedies_of, unneeded_host, why_no_offloading, why_static
    from remat.generate.models import memory
    from remat.generate.models.chains import network_of
    from remat.report.text import model_memory

    if config == common.STANDARD_STREAM:
        common.require_standard_input()
    _check_outputs(config, output, plot)
    options = {name: value for name, value in given.items() if value is not None}
    _refuse_homes(config, budget, host, options)
    of_host = None if host is None else _size("host", host)
    assumed = _assume_device(options, budget)
    asked = {parameter.name: options.get(parameter.name, parameter.default) for parameter in FAMILY.parameters}
    size, reserve = _sizes(asked, budget)
    work, training, instance = _made(config, options, asked, writes=output is not None)
    available = max(0, size - reserve)
    found = memory.estimate(work, training, available)

    def both(ask: Any) -> Any:
        return tuple(ask(work, training, available, recompute=recompute) for recompute in (False, True))

    sequences = both(memory.longest_sequence)
    is_printed = format_ == "json" or not session.quiet
    asks = found.chosen is None and (is_printed or of_host is not None)
    valued = {name: value for name, value in options.items() if name in of_values(asked)}
    generating = _generating(config, valued)
    remedies = remedies_of(work.model, asked, available, generating, of_host) if asks else ()
    offloaded = [one for one in remedies if isinstance(one, Offloaded)]
    hosted = [one for one in offloaded if of_host is not None and one.at_host <= of_host]
    why = why_no_offloading(work.model, asked) if asks and of_host is not None and not offloaded else ""
    is_static = bool(why_static(work.model, asked))
    unneeded = of_host and found.chosen is not None and found.chosen.time > 0
    remark = unneeded_host(work.model, asked, available, generating, of_host or 0) if unneeded else ""
    shown = model_memory.Asked(
        found=found,
        about=_about(work, training, asked, assumed is not None),
        budget=size,
        reserve=reserve,
        batches=both(memory.largest_batch),
        sequences=None if None in sequences else sequences,
        remedies=remedies,
        remarks=tuple(filter(None, (assumed, remark))),
        nothing="none without a host" if offloaded else "none",
        network=network_of(asked),
        otherwise=tuple(_otherwise(remedies, of_host, why, is_static=is_static)) if asks else (),
    )
    if instance is not None and output is not None:
        if hosted:
            instance = generate_rows("chain", "model", config=config, **(valued | dict(hosted[0].changes)))
        write_instance(instance, output)
    if plot is not None:
        from remat.report.plot.model_memory import plot_memory

        plot_memory(shown, plot)
    fits = found.chosen is not None or bool(hosted)
    if format_ == "json":
        more: dict[str, Any] = {"device": asked["device"]}
        more |= {} if of_host is None else {"host": {"budget": of_host, "fits": fits}}
        with writing():
            click.echo(json.dumps(_with_commands(model_memory.document(shown) | more, remedies), indent=2))
    elif not session.quiet:
        with writing():
            click.echo("\n".join(model_memory.lines(shown)))
    if fits:
        return ExitCode.OK
    stays = of_host is None or is_static
    least = found.static.total if stays else found.static.parameters + found.static.states - (of_host or 0)
    return ExitCode.INFEASIBLE if least > available else ExitCode.UNKNOWN


def _made(
    config: str, options: Mapping[str, Any], asked: Mapping[str, Any], *, writes: bool
) -> tuple[Workload, Training, Document | None]:
    """Return the workload, the training, and the instance if a file is to be written."""
    from remat.errors import OptionError, RematError
    from remat.generate.models.chains import training_of, workload_of
    from remat.generate.models.reading import read_model

    try:
        work, training = workload_of(read_model(config), asked), training_of(asked)
        static = {name: value for name, value in options.items() if name not in OF_MACHINE}
        instance = generate_rows("chain", "model", config=config, **static) if writes else None
    except RematError:
        raise
    except ValueError as error:
        raise OptionError(naming_option(str(error), FAMILY)) from None
    return work, training, instance


def _otherwise(remedies: Sequence[Remedy], host: int | None, why: str, *, is_static: bool) -> Iterator[str]:
    """Yield the verdict on a step that does not fit in the device alone, and `why` a host cannot be planned."""
    from remat.cli.fit_remedies import SAME, Offloaded
    from remat.report.text.model_memory import shown_size

    same = next((one for one in remedies if one.kind == SAME), None)
    best = next((one for one in remedies if isinstance(one, Offloaded)), None)
    said: list[str] = []
    if same is not None:
        said += [f"does not fit as asked; fits with {same.options}: {same.split}, {same.cost}"]
    asked = " as asked" if said else ""
    if best is not None and host is not None and best.at_host <= host:
        fits = f"fits with a host of {shown_size(host)}, not in the device alone: {best.split}, {best.cost}"
        said = [fits, *said]
    elif best is not None:
        with_ = "in the device alone" if host is None else f"with a host of {shown_size(host)}"
        said += [f"does not fit {with_}{asked}; {best.enough}"]
    elif host is not None and not why:
        what = " activations (all else stays on the device)" if is_static else ""
        said += [f"does not fit{asked}; no schedule was found that offloads{what} to a host of {shown_size(host)}"]
    yield from said or [f"does not fit{' as asked; the changes below would help' if remedies else ''}"]
    if why:
        yield f"a host is not planned: {why}"


def _with_commands(document: dict[str, Any], remedies: Sequence[Remedy]) -> dict[str, Any]:
    """Return the document with the bytes at the host, and the commands, of remedies that have them."""
    from remat.cli.fit_remedies import Offloaded

    for row, remedy in zip(document.get("remedies", ()), remedies, strict=True):
        if isinstance(remedy, Offloaded):
            row |= {"at_host": remedy.at_host, "commands": list(remedy.commands)}
    return document


def _about(work: Workload, training: Training, asked: Mapping[str, Any], is_assumed: bool) -> str:
    words = [f"{work.setting.batch} x {work.setting.sequence:,} tokens", asked["dtype"], training.name]
    if training.has_master(work.setting.element):
        words += ["with an fp32 copy of the parameters"]
    if training.precision == "pure":
        words += ["no fp32 copy"] if asked["optimizer"].endswith(("8", "4")) else [f"states in {asked['dtype']}"]
    words += [f"loss in {work.setting.chunks} chunks"] if work.chunked else []
    return ", ".join([*words, f"times of {asked['device']}" if is_assumed else asked["device"]])


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


def _refuse_homes(config: str, budget: str | None, host: str | None, options: Mapping[str, Any]) -> None:
    """Refuse parameters and states as values, whose memory a schedule decides, and name the commands."""
    from remat.errors import OptionError

    name = next((name for name in HOMES if name in options), None)
    if name is None:
        return
    solve = "remat solve FILE" + (f" --budget {budget}" if budget else "") + (f" --budget host={host}" if host else "")
    if not {"parameters", "states"} & options.keys():
        options = {**options, "parameters": "device"}
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


def _assume_device(options: dict[str, Any], budget: str | None) -> str | None:
    """Choose a device with the memory of the budget if none is named; return the remark on it."""
    from remat.generate.devices import devices, fastest_with

    if "device" in options or budget is None:
        return None
    by_name = {parameter.name: parameter.default for parameter in FAMILY.parameters}
    default, dtype = str(by_name["device"]), str(options.get("dtype", by_name["dtype"]))
    alike = fastest_with(_size("budget", budget), dtype)
    if default in alike:
        return None
    memory = format_size(int(devices()[(alike or [default])[0]]["memory"]))
    if not alike:
        return f"no listed device has this memory, so times are those of {default} ({memory}); --device names another"
    options["device"] = alike[0]
    others = f" ({', '.join(alike[1:])})" if alike[1:] else ""
    named = f"times are those of {alike[0]} ({memory}), the fastest listed device of this size"
    return f"{named}; --device names another{others}"


def _size(name: str, text: str, least: int = LEAST_BYTES) -> int:
    """Read the size of an option; a bare number that is no plausible memory is refused."""
    from remat.errors import OptionError, QuantityError
    from remat.units import parse_size

    if text.isdecimal() and 0 < int(text[:20]) < least:
        raise OptionError(f"{text} bytes: did you mean {text}GB?", argument=name)
    try:
        return parse_size(int(text) if text.isdecimal() else text)
    except QuantityError as error:
        raise OptionError(str(error), argument=name) from None


def _sizes(asked: Mapping[str, Any], budget: str | None) -> tuple[int, int]:
    """Return the budget and the reserve in bytes."""
    from remat.errors import OptionError
    from remat.generate.devices import rates

    known, reserve = rates(asked["device"], asked["dtype"]), _size("reserve", str(asked["reserve"]), LEAST_RESERVE)
    size = known.memory if budget is None else _size("budget", budget)
    if size is None:
        raise OptionError(f"the table has no memory size for {asked['device']}; give one", argument="budget")
    return size, reserve
