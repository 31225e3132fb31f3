"""`remat import onnx`: task graphs of ONNX models."""

from __future__ import annotations

import click

from remat.cli import common
from remat.cli.import_graphs import finish, name_option, output_option
from remat.cli.io_session import Session

HELP = """Make a task graph of an ONNX model.

ONNX is a model file. remat infers shapes; --dim gives named dimensions a value. --training adds a loss and the backward
of each operator. Unused tensors of unknown shape are left out and listed; other tensors of unknown shape are refused.
Needs onnx: pip install 'remat[onnx]'.

\b
  remat import onnx model.onnx --dim batch=32 --device H100 -o model.json
  remat import onnx model.onnx --training -o step.json"""


@click.command("onnx", help=HELP)
@click.argument("path", metavar="ONNX", type=click.Path())
@click.option("--dim", "dimensions", metavar="NAME=N", multiple=True, help="Value of a named dimension.")
@click.option("--training", is_flag=True, help="Add a loss and the backward operators.")
@click.option("--device", metavar="NAME", default="A100", show_default=True, help="Device of the shipped table.")
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def command(
    session: Session,
    /,
    path: str,
    dimensions: tuple[str, ...],
    training: bool,
    device: str,
    name: str | None,
    output: str,
) -> int:
    """Write the task graph of a model."""
    from remat.bridges.onnx.importing import import_model
    from remat.errors import OptionError
    from remat.messages import brief, listing

    values: dict[str, int] = {}
    for key, text in common.split_assignments("--dim", dimensions).items():
        if not text.isdecimal() or not 0 < int(text[:12]) < 2**31:
            raise OptionError(f"--dim: expected NAME=N with a number, not {brief(f'{key}={text}')}")
        values[key] = int(text)

    def make() -> dict[str, object]:
        made = import_model(path, dimensions=values, training=training, device=device, name=name)
        if made.unknown:
            many = len(made.unknown)
            session.note(f"{many} unused tensors of unknown shape are left out: {listing(made.unknown)}")
        session.remark(f"{made.flops / 1e9:.2f} GFLOP forward")
        return made.document

    return finish(session, path, output, make)
