"""`remat fit`: check whether a training step fits into memory, and plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from remat.cli import common
from remat.cli.fit_model import command as of_model
from remat.cli.import_ import OPTIMIZER, TARGET_HELP, TARGETS
from remat.cli.io_session import ExitCode, Session, writing

HELP = """Check whether a training step fits into memory, and plan it.

\b
  remat fit config.json --device H100 --sequence 4096       a model's configuration: figures in a second
  remat fit config.json --help                              its options
  remat fit torch train:make --budget 8GB --optimizer adamw -o plan.json
  remat fit torch train:make --budget 8GB --max-batch 256"""

CONFIG = "config"

TORCH_HELP = """Check whether a PyTorch training step fits into the memory of a device, and plan it.

FACTORY is a function in the Python module (or file.py) MODULE. It takes no arguments and returns (module, args) or
(module, args, kwargs); the module returns the loss. remat calls the function, then captures the training step without
executing it. The budget covers the whole device memory: parameters, buffers, inputs, gradients, optimizer states,
activations, temporary memory of optimizer.step(), and a reserve for the device's context and fragmentation.

--max-batch finds the largest batch by doubling and bisection; it calls FACTORY(batch=n) and captures the step for each
n. The largest batch that fits needs the most recomputation; --max-overhead limits it.

\b
  remat fit torch train:make --budget 8GB --optimizer adamw -o plan.json
  remat fit torch train:make --budget 8GB --optimizer adamw --max-batch 256 --max-overhead 10%
  remat fit torch train:make --budget 24GB --optimizer adamw-fused --target cuda     plan without a GPU
  remat fit torch train:make --budget 8GB --measure     operator times measured on this device
  remat fit torch train:make --budget 8GB --optimizer adamw --host 64GB --link 25GB/s --optimizer-memory host

Exit code 0: it fits. 3: proved that it does not. 4: no schedule was found in time.
Needs PyTorch: pip install 'remat[torch]'."""


class _Fit(click.Group):
    """A group whose first word may be a configuration instead of a framework."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Take a word that names no command for a configuration."""
        if args and (args[0] == common.STANDARD_STREAM or not args[0].startswith("-")) and args[0] not in self.commands:
            args = [CONFIG, *args]
        return super().resolve_command(ctx, args)


@click.group("fit", help=HELP, invoke_without_command=True, cls=_Fit)
@click.pass_context
def command(ctx: click.Context) -> int:
    """Print the help where no framework is named."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return ExitCode.OK


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options of the command, by click's names."""

    factory: str
    budget: str
    costs: str | None
    measure: bool
    optimizer: str | None
    reserve: str | None
    target: str | None
    host: str | None
    link: str | None
    optimizer_memory: str | None
    accumulate: bool
    algorithm: str
    time_limit: str
    max_batch: int | None
    max_overhead: str | None
    output: str | None


@command.command("torch", help=TORCH_HELP)
@click.argument("factory", metavar="MODULE:FACTORY")
@click.option("-b", "--budget", metavar="SIZE", required=True, help="Device memory, for example 8GB.")
@click.option(
    "--costs",
    metavar="COSTS",
    help="roofline:DEVICE[-DTYPE], measure (runs each operator), or a file of costs. [default: roofline:A100-fp32]",
)
@click.option("--measure", is_flag=True, help="Run and time each operator on this device, as --costs measure.")
@click.option("--optimizer", metavar=OPTIMIZER, help="Optimizer whose states and step to include. [default: none]")
@click.option(
    "--reserve",
    metavar="SIZE",
    help="Memory reserved for context and fragmentation. [default: 1GiB, on the CPU 0]",
)
@click.option("--target", type=click.Choice(TARGETS), help=TARGET_HELP)
@click.option("--host", metavar="SIZE", help="Memory of a host to which the step may offload, for example 64GB.")
@click.option("--link", metavar="RATE", help="Bandwidth to the host, such as 25GB/s. [default: measured on the device]")
@click.option("--optimizer-memory", type=click.Choice(("host",)), help="Keep and update optimizer states at the host.")
@click.option("--accumulate", is_flag=True, help="Count gradients of earlier backward passes, which the step adds to.")
@click.option("-a", "--algorithm", metavar="NAME", default="auto", show_default=True, help="Algorithm, as for solve.")
@click.option("--time-limit", metavar="TIME", default="30s", show_default=True, help="Time limit of each solve.")
@click.option("--max-batch", type=click.IntRange(min=1), metavar="N", help="Find the largest batch up to N.")
@click.option("--max-overhead", metavar="SHARE", help="Largest overhead of recomputation: 0.1 or 10%.")
@click.option("-o", "--output", metavar="FILE", help="Write the plan (.gz too).")
@common.verbosity_options
@click.pass_obj
def torch(session: Session, /, **given: Any) -> int:
    """Plan the training step of a factory."""
    asked = _Asked(**given)
    if asked.output is not None:
        common.check_writable("--output", asked.output)
    if asked.host is not None and asked.output is not None:
        raise click.UsageError("a plan with --host cannot be loaded from a file; the printed lines make it anew")
    if asked.measure and asked.costs is not None:
        raise click.UsageError("--measure and --costs exclude each other; give one")
    import remat.torch
    from remat.report.text.summary import table

    remat.torch.read_optimizer(asked.optimizer)  # reject a wrong name before user code runs
    made = remat.torch.Choices(
        budget=asked.budget,
        algorithm=asked.algorithm,
        time_limit=asked.time_limit,
        costs="measure" if asked.measure else asked.costs,
        optimizer=asked.optimizer,
        reserve=asked.reserve,
        accumulate=asked.accumulate,
        host=asked.host,
        link=asked.link,
        optimizer_memory=asked.optimizer_memory,
    )
    try:
        with common.user_code(session):
            fitted = remat.torch.fit(
                asked.factory,
                made,
                max_batch=asked.max_batch,
                max_overhead=asked.max_overhead,
                target=asked.target,
                tell=session.remark,
            )
    except remat.torch.TooSmallError as error:
        click.echo(f"Error: {error}", err=True)
        if error.remedy:
            click.echo(f"Note: {error.remedy}", err=True)
        return ExitCode.INFEASIBLE if error.proved else ExitCode.UNKNOWN
    if asked.output is not None:
        fitted.plan.save(asked.output)
    if not session.quiet:
        with writing():
            click.echo(table(fitted.lines()))
            click.echo("\n" + "\n".join(f"    {line}" for line in fitted.code(asked.output)))
    return ExitCode.OK


command.add_command(of_model, CONFIG)
