"""`remat fit CONFIG`: the memory of a model's training step, computed from its configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, writing
from remat.generate.optimizers import IMPLEMENTATIONS, SPELLED

if TYPE_CHECKING:
    from remat.generate.models.memory import Estimate, Training

HELP = """Compute the memory of a training step from a model's configuration, without a framework.

CONFIG is a Hugging Face config.json, or the name of a shipped configuration such as llama-3-8b. The answer splits the
memory into parameters, gradients, optimizer states, activations and logits, and gives the largest batch and the longest
sequence, without recomputation and with every block recomputed.

\b
  remat fit config.json --device H100 --optimizer adam --sequence 4096
  remat fit llama-3-8b --budget 24GB --sequence 8192 --lora rank=16 --loss-chunks 16
  remat fit llama-3-70b --device H100 --data 64 --zero 3

Exit code 0: it fits. 3: parameters, gradients and states alone do not fit. 4: it does not fit even if every block is
recomputed; remat generate chain --config and remat solve search all schedules."""

LEAST_BYTES = 10**6
"""A smaller budget is not plausible as a device's memory: its unit is missing."""


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options of the command, by click's names."""

    config: str
    device: str
    budget: str | None
    reserve: str
    batch: int
    sequence: int | None
    dtype: str
    flash: bool
    optimizer: str
    precision: str
    step: str | None
    loss_chunks: int
    lora: str
    frozen: tuple[str, ...]
    quantize: str
    data: int
    zero: int
    format_: str


def _positive(most: int = 2**40) -> click.IntRange:
    return click.IntRange(min=1, max=most)


@click.command("config", help=HELP)
@click.argument("config", type=click.Path())
@click.option("--device", metavar="NAME", default="H100", show_default=True, help="Device of the shipped table.")
@click.option("-b", "--budget", metavar="SIZE", help="Device memory, for example 80GB. [default: the device's]")
@click.option(
    "--reserve", metavar="SIZE", default="1GiB", show_default=True, help="Memory for context and fragmentation."
)
@click.option("--batch", type=_positive(), metavar="N", default=1, show_default=True, help="Sequences per device.")
@click.option("--sequence", type=_positive(), metavar="N", help="Tokens per sequence. [default: up to 4096]")
@click.option("--dtype", type=click.Choice(("bf16", "fp16", "fp32")), default="bf16", show_default=True)
@click.option("--flash/--no-flash", default=True, show_default=True, help="Tiled attention, without stored scores.")
@click.option(
    "--optimizer",
    metavar=f"{SPELLED}|none",
    default="adam",
    show_default=True,
    help="Optimizer, optionally with its implementation.",
)
@click.option(
    "--precision",
    type=click.Choice(("mixed", "pure")),
    default="mixed",
    show_default=True,
    help="States in fp32 with a copy of 16-bit parameters, or in the parameters' type.",
)
@click.option(
    "--step",
    type=click.Choice(IMPLEMENTATIONS),
    help="Implementation of the optimizer's step. [default: PyTorch's for the device]",
)
@click.option(
    "--loss-chunks",
    type=_positive(2**20),
    metavar="N",
    default=1,
    show_default=True,
    help="Number of chunks in which the loss is computed.",
)
@click.option(
    "--lora", metavar="rank=N[,TARGET]", default="", help="Train adapters of rank N for all matrices, or for TARGET."
)
@click.option("--frozen", metavar="PATTERN", multiple=True, help="Parameters that are not trained, as in 'layers.0.*'.")
@click.option(
    "--quantize",
    type=click.Choice(("none", "nf4", "int8")),
    default="none",
    show_default=True,
    help="Storage of frozen matrices.",
)
@click.option("--data", type=_positive(2**20), metavar="N", default=1, show_default=True, help="Data-parallel ranks.")
@click.option("--zero", type=click.IntRange(0, 3), metavar="N", default=0, show_default=True, help="ZeRO level.")
@common.format_option("table", "json")
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, **given: Any) -> int:
    """Compute, and print the table or JSON."""
    asked = _with_step(_Asked(**given))
    from remat.errors import OptionError, RematError
    from remat.generate.models import memory
    from remat.report.text import model_memory

    budget, reserve = _sizes(asked)
    try:
        work = _workload(asked)
    except RematError:
        raise
    except ValueError as error:
        raise OptionError(f"--{error}".replace("--loss_chunks", "--loss-chunks")) from None
    training = _training(asked)
    available = max(0, budget - reserve)
    found = memory.estimate(work, training, available)

    def both(ask: Any) -> Any:
        return tuple(ask(work, training, available, recompute=recompute) for recompute in (False, True))

    sequences = both(memory.longest_sequence)
    shown = model_memory.Asked(
        found=found,
        about=f"{asked.batch} x {work.setting.sequence:,} tokens, {asked.dtype}, {_optimizer(asked)}, {asked.device}",
        budget=budget,
        reserve=reserve,
        batches=both(memory.largest_batch),
        sequences=None if None in sequences else sequences,
        remedies=tuple(_remedies(asked, available)) if found.chosen is None else (),
    )
    if asked.format_ == "json":
        with writing():
            click.echo(json.dumps(model_memory.document(shown), indent=2))
    elif not session.quiet:
        with writing():
            click.echo("\n".join(model_memory.lines(shown)))
    if found.chosen is not None:
        return ExitCode.OK
    return ExitCode.INFEASIBLE if found.static.total > available else ExitCode.UNKNOWN


def _with_step(asked: _Asked) -> _Asked:
    """Return the options with the implementation split off the optimizer's name."""
    from remat.errors import OptionError
    from remat.generate.optimizers import read_name

    if asked.optimizer == "none":
        return asked
    named = read_name(asked.optimizer)
    if asked.step is None or not named.implementation:
        read_name("-".join(filter(None, (named.family, asked.step or named.implementation))))
        return replace(asked, optimizer=named.family, step=asked.step or named.implementation or None)
    if named.implementation != asked.step:
        raise OptionError(
            f"{asked.step!r} contradicts --optimizer {asked.optimizer}; give the implementation once", argument="step"
        )
    return replace(asked, optimizer=named.family)


def _training(asked: _Asked) -> Training:
    from remat.generate.models.memory import Training
    from remat.generate.optimizers import read_name

    if asked.step and asked.optimizer != "none":
        read_name(f"{asked.optimizer}-{asked.step}")  # reject an optimizer without this implementation
    return Training(
        optimizer=asked.optimizer,
        precision=asked.precision,
        step=asked.step or "",
        data=asked.data,
        zero=asked.zero,
    )


def _optimizer(asked: _Asked) -> str:
    return asked.optimizer + (f"-{asked.step}" if asked.step and asked.optimizer != "none" else "")


REMEDIES: tuple[dict[str, Any], ...] = (
    {"loss_chunks": 16},
    {"step": "fused"},
    {"precision": "pure", "step": "fused"},
    {"optimizer": "adam8", "step": "fused", "loss_chunks": 16},
    {"precision": "pure", "step": "fused", "loss_chunks": 16},
    *({"data": ranks, "zero": 3, "loss_chunks": 16} for ranks in (2, 4, 8, 16, 32, 64)),
    {"lora": "rank=16"},
    {"lora": "rank=16", "loss_chunks": 16},
    {"lora": "rank=16", "quantize": "nf4", "loss_chunks": 16},
)
"""Changes of the options to try if a step does not fit, from small to large."""

MOST_REMEDIES = 4


def _remedies(asked: _Asked, available: int) -> Iterator[tuple[str, Estimate]]:
    """Yield the first changes of options with which the step fits, each with the memory that it then needs.

    Among changes of the number of ranks, only the smallest number is named. A change is left out if a part of it is
    enough.
    """
    from remat.generate.models.memory import estimate

    taken: list[dict[str, Any]] = []
    for change in REMEDIES:
        new = {name: value for name, value in change.items() if getattr(asked, name) != value}
        known = any(before.items() <= new.items() or ("data" in before and "data" in new) for before in taken)
        if not new or known or asked.data > new.get("data", asked.data):
            continue
        other = replace(asked, **new)
        try:
            found = estimate(_workload(other), _training(other), available)
        except ValueError:  # options that exclude each other
            continue
        if found.chosen is not None:
            taken.append(new)
            yield " ".join(f"--{name.replace('_', '-')} {value}" for name, value in new.items()), found
            if len(taken) == MOST_REMEDIES:
                return


def _workload(asked: _Asked) -> Any:
    from remat.generate.models.instances import workload
    from remat.generate.models.reading import read_model

    if asked.config == common.STANDARD_STREAM:
        common.require_standard_input()
    return workload(
        config=read_model(asked.config),
        batch=asked.batch,
        sequence=asked.sequence,
        dtype=asked.dtype,
        flash=asked.flash,
        loss_chunks=asked.loss_chunks,
        lora=asked.lora,
        frozen=",".join(asked.frozen),
        quantize=asked.quantize,
        device=asked.device,
    )


def _sizes(asked: _Asked) -> tuple[int, int]:
    """Return the budget and the reserve in bytes."""
    from remat.errors import OptionError, QuantityError
    from remat.generate.devices import rates
    from remat.units import parse_size

    known = rates(asked.device, asked.dtype)
    found = []
    for name, text in (("budget", asked.budget), ("reserve", asked.reserve)):
        try:
            if text is not None and text.isdecimal() and 0 < int(text[:20]) < LEAST_BYTES:
                raise OptionError(f"{text} bytes: did you mean {text}GB?", argument=name)
            found.append(known.memory if text is None else parse_size(int(text) if text.isdecimal() else text))
        except QuantityError as error:
            raise OptionError(str(error), argument=name) from None
    budget, reserve = found
    if budget is None or reserve is None:
        raise OptionError(f"the table has no memory size for {asked.device}; give one", argument="budget")
    return budget, reserve
