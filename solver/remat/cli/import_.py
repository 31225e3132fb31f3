"""`remat import`: instances from files of other formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from remat.cli import common, import_graphs, import_jax, import_onnx, import_profiles
from remat.cli.io_session import ExitCode, Session
from remat.errors import OptionError
from remat.generate.optimizers import SPELLED

HELP = """Make an instance from a file of another format.

\b
  remat import matrix bcspwr10.mtx.gz -o bcspwr10.json
  remat import matrix FILE.mtx --ordering nd --relax 4 --symmetric --bytes 8 | remat solve -
  remat import pipeline-csv schedule.csv --times times.json -o pipeline.json --schedule schedule.json
  remat import dnn-partitioning bert24_inference.json -o bert.json --split expert.json --schedule expert_plan.json
  remat import piper bert32a100.json.gz --devices 8 --memory 16GiB -o bert32.json
  remat import torch train:make -o step.json
  remat import jax train:make -o step.json
  remat import dot graph.dot -o graph.json
  remat import wfcommons workflow.json -o workflow.dag.json
  remat import chrome-trace trace.json

remat layout FILE.csv reads buffers of minimalloc. remat generate KIND --config FILE makes an instance from a model's
config.json."""

MATRIX_HELP = """Make the assembly tree of a sparse matrix: the task tree of its multifrontal factorisation.

MTX is a Matrix Market file (.gz too). remat makes its pattern symmetric, orders it, and merges its elimination tree
into supernodes. A node with eta columns and a contribution block of order cb has f = cb^2 and m = (eta + cb)^2 - cb^2.
The ordering rcm needs scipy: pip install 'remat[sparse]'."""

PIPELINE_HELP = """Make a pipeline and its schedule from a CSV of torch.distributed.pipelining and stage times.

CSV (.gz too) has one row for each rank, with cells such as 0F0 and 1B0, or 1I0 and 1W0 if a backward has two halves.
The file of --times is a JSON object with these keys:

\b
  stages     a list of objects, or one object for all stages: the times F and B, or F, I and W, and
             sizes as in layers of an instance (output_size, saved_size, parameter_size, ...)
  hop        bandwidth, latency and delay between any two devices
  transfers  overlap (default), blocking, rendezvous or grouped
  units      as in an instance

\b
  echo '{"stages": {"F": "1ms", "B": "2ms", "saved_size": "1GB"}, "hop": {"delay": "5us"}}' > times.json
  remat import pipeline-csv 1f1b.csv --times times.json -o pipeline.json --schedule 1f1b.json
  remat verify pipeline.json 1f1b.json
  remat solve pipeline.json                 search for a better schedule"""

PARTITIONING_HELP = """Make a stream instance from a layer graph for accelerators and CPUs.

JSON (.gz too) is a profile in the format of the repository dnn-partitioning. Nodes have milliseconds on a CPU and on an
accelerator, bytes and a colour class; edges have milliseconds. Every accelerator is connected to the memory of the
CPUs. A transfer takes the time of its edge once for each accelerator that the data leaves or enters; this accelerator
computes nothing meanwhile. Nodes of one colour class run on the same device, because they read a common input of their
total size. The bandwidth is the most frequent ratio of bytes to time of the edges.

\b
  remat import dnn-partitioning bert24_inference.json -o bert.json
  remat solve bert.json
  remat import dnn-partitioning bert24_inference.json -o bert.json --split expert.json --schedule plan.json"""

PIPER_HELP = """Make a pipeline from a profile of layers, with execution variants for one or several devices.

JSON (.gz too) is a profile in the format of the repository piper: seconds per sample, bytes per micro-batch in flight,
permanent bytes, and edges in bytes. A micro-batch is one sample. The bytes in flight of a layer are its output and its
saved values.

\b
  remat import piper bert32a100.json.gz --devices 8 --memory 16GiB --micro-batches 32 -o bert32.json"""

TORCH_HELP = """Make a task graph from the training step of a PyTorch module.

FACTORY is a function in the Python module (or file.py) MODULE. It takes no arguments and returns (module, args) or
(module, args, kwargs); the module returns the loss. remat calls the function, then captures the training step without
executing it. Needs PyTorch: pip install 'remat[torch]'.

\b
  remat import torch train:make --costs roofline:H100-bf16 --optimizer adamw -o step.json
  remat solve step.json --budget 70%"""

ORDERINGS = ("amd", "nd", "natural", "rcm")
OPTIMIZER = f"{SPELLED}|FILE"
TARGETS = ("cpu", "cuda")
TARGET_HELP = "Device to plan for; it may be absent. [default: that of a roofline in --costs, or of the inputs]"

EXTRAS = {"torch": ("torch", "torch"), "jax": ("jax", "jax"), "onnx": ("onnx", "onnx")}
"""Commands that need a package: the package, and the extra that installs it."""


class _Import(click.Group):
    """A group whose help names the commands that need a missing package."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with the missing package and how to install it."""
        from importlib.util import find_spec

        rows = []
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            if found is None:
                continue
            package, extra = EXTRAS.get(name, ("", ""))
            missing = package and find_spec(package) is None
            needs = f" Needs: pip install 'remat[{extra}]'." if missing else ""
            rows.append((name, found.get_short_help_str(80) + needs))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group("import", help=HELP, invoke_without_command=True, cls=_Import)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Print the help where no format is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return ExitCode.OK


@dataclass(frozen=True, kw_only=True)
class _Matrix:
    """The options of the command, by click's names."""

    path: str
    ordering: str
    relax: int
    symmetric: bool
    factors: str
    entry_bytes: int | None
    name: str | None
    output: str


@command.command("matrix", help=MATRIX_HELP)
@click.argument("path", metavar="MTX", type=click.Path())
@click.option(
    "--ordering", type=click.Choice(ORDERINGS), default="amd", show_default=True, help="Order of the columns."
)
@click.option(
    "--relax",
    type=click.IntRange(min=0),
    metavar="N",
    default=0,
    show_default=True,
    help="Merge children into nodes that eliminate at most N columns.",
)
@click.option("--symmetric/--full", default=False, help="Store one triangle of each front. [default: full]")
@click.option(
    "--factors",
    type=click.Choice(("out-of-core", "in-core")),
    default="out-of-core",
    show_default=True,
    help="In core, the factors count as static memory.",
)
@click.option(
    "--bytes",
    "entry_bytes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Bytes per entry. [default: sizes count entries]",
)
@click.option("--name", metavar="TEXT", help="Name of the instance [default: the file's, and the ordering].")
@common.instance_output_option
@common.verbosity_options
@click.pass_obj
def matrix(session: Session, /, **given: Any) -> int:
    """Write the assembly tree of a matrix."""
    asked = _Matrix(**given)
    from remat.bridges.matrix_market.importing import import_matrix

    common.check_distinct({"MTX": asked.path, "--output": asked.output})
    if asked.output != common.STANDARD_STREAM:
        common.check_writable("--output", asked.output)
    document = import_matrix(
        asked.path,
        ordering=asked.ordering,
        relax=asked.relax,
        symmetric=asked.symmetric,
        factors_in_core=asked.factors == "in-core",
        entry_bytes=asked.entry_bytes,
        name=asked.name,
    )
    session.remark(document["description"])
    common.write_document(document, asked.output)
    return ExitCode.OK


@command.command("pipeline-csv", help=PIPELINE_HELP)
@click.argument("path", metavar="CSV", type=click.Path())
@click.option(
    "--times", metavar="FILE", type=click.Path(), required=True, help="JSON file with the times of the stages."
)
@click.option("--schedule", metavar="FILE", help="Write the schedule, remat.schedule/2 with orders.")
@click.option("--name", metavar="TEXT", help="Name of the instance [default: the file's].")
@common.instance_output_option
@common.verbosity_options
@click.pass_obj
def pipeline_csv(
    session: Session, /, path: str, times: str, schedule: str | None, name: str | None, output: str
) -> int:
    """Write the pipeline of a CSV schedule, and the schedule."""
    common.check_files({"CSV": path, "--times": times}, output, schedule)
    from remat.bridges.pipelining.importing import import_csv
    from remat.instance import instance_document

    made = import_csv(path, times, name=name)
    for note in made.notes:
        session.note(note)
    common.write_document(instance_document(made.instance), output)
    if schedule is not None:
        common.write_document(made.schedule, schedule)
    return ExitCode.OK


@command.command("dnn-partitioning", help=PARTITIONING_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--accelerators", type=click.IntRange(min=0, max=255), metavar="N", help="[default: the profile's]")
@click.option("--cpus", type=click.IntRange(min=0, max=255), metavar="N", help="[default: the profile's]")
@click.option("--memory", metavar="SIZE", help="Memory of each accelerator. [default: the profile's]")
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    metavar="N",
    default=8,
    show_default=True,
    help="Number of samples to simulate.",
)
@click.option(
    "--split", metavar="FILE", type=click.Path(), help="JSON file with the nodes that each accelerator and CPU runs."
)
@click.option("--schedule", metavar="FILE", help="Write the split as a schedule.")
@click.option("--name", metavar="TEXT", help="Name of the instance [default: the file's].")
@common.instance_output_option
@common.verbosity_options
@click.pass_obj
def partitioning(session: Session, /, **given: Any) -> int:
    """Write the stream of a layer graph, and a split of it as a schedule."""
    asked = _Partitioning(**given)
    if (asked.split is None) != (asked.schedule is None):
        raise OptionError("--split and --schedule go together")
    common.check_files({"JSON": asked.path, "--split": asked.split}, asked.output, asked.schedule)
    from remat.bridges.placement_profiles.partitioning import import_partitioning, import_split
    from remat.instance import instance_document

    own = ("accelerators", "cpus", "memory", "samples", "name")
    made = import_partitioning(asked.path, **{key: getattr(asked, key) for key in own})
    split = None if asked.split is None else import_split(made, asked.split)
    for note in (*made.notes, *(split.notes if split is not None else ())):
        session.note(note)
    common.write_document(instance_document(made.instance), asked.output)
    if split is not None and asked.schedule is not None:
        common.write_document(split.schedule, asked.schedule)
    return ExitCode.OK


@dataclass(frozen=True, kw_only=True)
class _Partitioning:
    """The options of the command, by click's names."""

    path: str
    accelerators: int | None
    cpus: int | None
    memory: str | None
    samples: int
    split: str | None
    schedule: str | None
    name: str | None
    output: str


@command.command("piper", help=PIPER_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--devices", type=click.IntRange(min=1, max=256), metavar="N", help="[default: the profile's]")
@click.option("--memory", metavar="SIZE", help="Memory of each device. [default: the profile's]")
@click.option(
    "--bandwidth",
    metavar="RATE",
    help="Bandwidth between any two devices, for example 25GiB/s. [default: the profile's]",
)
@click.option("--micro-batches", type=click.IntRange(min=1), metavar="N", default=16, show_default=True)
@click.option(
    "--forward-share",
    type=click.FloatRange(min=0, max=1),
    default=1 / 3,
    help="Share of the forward in a layer's time. [default: 1/3]",
)
@click.option("--way", metavar="NAME", default="vanilla", show_default=True, help="Execution variant of each layer.")
@click.option("--tensor", metavar="N,N", help="Tensor-parallel degrees. [default: the profile's]")
@click.option(
    "--weights",
    type=click.Choice(("flush", "stash", "double", "single", "predicted")),
    default="flush",
    show_default=True,
)
@click.option("--name", metavar="TEXT", help="Name of the instance [default: the file's].")
@common.instance_output_option
@common.verbosity_options
@click.pass_obj
def piper(session: Session, /, path: str, name: str | None, output: str, **given: Any) -> int:
    """Write the pipeline of a profile of layers."""
    common.check_files({"JSON": path}, output)
    from remat.bridges.placement_profiles.tensor_parallel import Chosen, import_layers
    from remat.instance import instance_document

    if given["tensor"] is not None:
        given["tensor"] = tuple(common.split_numbers(given["tensor"], "tensor"))
    made = import_layers(path, Chosen(**given), name=name)
    for note in made.notes:
        session.note(note)
    common.write_document(instance_document(made.instance), output)
    return ExitCode.OK


@command.command("torch", help=TORCH_HELP)
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option(
    "--costs",
    metavar="COSTS",
    help="roofline:DEVICE[-DTYPE], measure (runs each operator), or a file of costs. [default: roofline:A100-fp32]",
)
@click.option(
    "--optimizer", metavar=OPTIMIZER, help="Optimizer whose states count as static memory. [default: no states]"
)
@click.option("--target", type=click.Choice(TARGETS), help=TARGET_HELP)
@common.instance_output_option
@common.verbosity_options
@click.pass_obj
def torch(
    session: Session, /, factory: str, costs: str | None, optimizer: str | None, target: str | None, output: str
) -> int:
    """Write the training step of a PyTorch module."""
    if output != common.STANDARD_STREAM:
        common.check_writable("--output", output)
    from remat.instance import instance_document
    from remat.torch import capture_factory, measure, read_optimizer, target_of

    read_optimizer(optimizer)  # reject a wrong name before user code runs
    with common.user_code(session):
        captured = capture_factory(factory, target_of(target, costs))
        known = measure(captured) if costs == "measure" else costs
    static = captured.static_bytes()
    session.remark(f"{len(captured.joint.tasks)} tasks; in memory throughout: {static}")
    made = captured.instance(known, static=sum(static.values()), optimizer=optimizer)
    common.write_document(instance_document(made), output)
    return ExitCode.OK


for _each in (*import_graphs.COMMANDS, *import_profiles.COMMANDS, import_onnx.command, import_jax.command):
    command.add_command(_each)
