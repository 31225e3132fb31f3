"""`remat import jax`: task graphs of JAX functions."""

from __future__ import annotations

import click

from remat.cli import common
from remat.cli.import_graphs import finish, name_option, output_option
from remat.cli.io_session import Session

HELP = """Make a task graph of the gradient step of a JAX function.

FACTORY is a function in the Python module (or file.py) MODULE. It takes no arguments and returns (function, args) or
(function, args, kwargs); function returns the loss, and the gradient is with respect to its first argument. remat calls
the function, then traces the step without executing it. Scans are unrolled; each other loop is one task. Needs JAX: pip
install 'remat[jax]'.

\b
  remat import jax train:make --device H100 -o step.json
  remat solve step.json --budget 70%"""


@click.command("jax", help=HELP)
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("--device", metavar="NAME", default="A100", show_default=True, help="Device of the shipped table.")
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def command(session: Session, /, factory: str, device: str, name: str | None, output: str) -> int:
    """Write the task graph of a gradient step."""

    def make() -> dict[str, object]:
        from remat.jax import import_factory

        with common.user_code(session):
            made = import_factory(factory, device=device, name=name)
        if made.opaque:
            session.note(f"imported as one task each: {', '.join(made.opaque)}")
        return made.document

    return finish(session, factory, output, make)
