"""`remat import graphml|dot|wfcommons|dask|contraction-tree|rotor`: graphs of other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

ATTRIBUTES = """Each node is a task with a `time`. It writes one value with the `size` of the node, which its successors
read. An edge with a `size` is a separate value. The `workspace` of a node is extra memory while it runs. Sizes may have
a suffix."""

GRAPHML_HELP = f"""Make a task graph of a GraphML file.

{ATTRIBUTES}

\b
  remat import graphml graph.graphml -o graph.json
  remat import graphml graph.graphml --time weight --default-size 1MB --time-unit ms -o graph.json"""

DOT_HELP = f"""Make a task graph of a DOT file of Graphviz.

{ATTRIBUTES}

\b
  echo 'digraph {{ a [time=2, size=4]; b [time=1, size=1]; a -> b }}' > graph.dot
  remat import dot graph.dot | remat solve -"""

WFCOMMONS_HELP = """Make a task graph of a workflow of WfCommons (WfFormat 1.5 and 1.6).

Tasks have the runtimes of the workflow's run; values are its files. The instance's memory is the storage of the files.

\b
  remat import wfcommons workflow.json -o workflow.dag.json
  remat sweep workflow.dag.json"""

DASK_HELP = """Make a task graph of a dask graph.

JSON is the result of remat.bridges.dask.document(collection): keys, sizes, times and dependencies, no code.
remat.bridges.dask.order(collection) returns priorities for dask's scheduler.

\b
  python -c 'import json, remat.bridges.dask as d, m; json.dump(d.document(m.collection), open("g.json", "w"))'
  remat import dask g.json -o graph.json"""

TREE_HELP = """Make a task graph of a contraction tree of cotengra or opt_einsum.

JSON has inputs (lists of indices), output, sizes of indices, and path or ssa_path.
remat.bridges.contraction_tree.document(tree) returns it.

\b
  remat import contraction-tree tree.json -o tree.dag.json
  remat solve tree.dag.json --budget 2000000"""

ROTOR_HELP = """Make a chain instance from a chain of rotor.

TXT is the output of rotor's print(chain): a list of times and sizes for each stage.

\b
  remat import rotor chain.txt -o chain.json"""

output_option = click.option(
    "-o", "--output", metavar="FILE", default="-", help="Output file (.gz too); - is standard output."
)
name_option = click.option("--name", metavar="TEXT", help="Name of the instance [default: the file's].")


def attribute_options(command: Decorated) -> Decorated:
    """Add the options of graphs with attributes."""
    options: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
        (
            ("--default-size",),
            {"metavar": "SIZE", "help": "Size of values without the attribute. [default: refuse them]"},
        ),
        (
            ("--default-time",),
            {"metavar": "TIME", "help": "Time of nodes without the attribute. [default: refuse them]"},
        ),
        (
            ("--time-unit",),
            {
                "type": click.Choice(("unit", "s", "ms", "us", "ns")),
                "default": "unit",
                "show_default": True,
                "help": "Unit of bare times.",
            },
        ),
        (("--workspace",), {"metavar": "ATTRIBUTE", "default": "workspace", "help": "Attribute of the workspace."}),
        (("--size",), {"metavar": "ATTRIBUTE", "default": "size", "help": "Attribute of the size."}),
        (("--time",), {"metavar": "ATTRIBUTE", "default": "time", "help": "Attribute of the time."}),
    )
    for names, more in options:
        command = click.option(*names, **more)(command)
    return command


@click.command("graphml", help=GRAPHML_HELP)
@click.argument("path", metavar="GRAPHML", type=click.Path())
@attribute_options
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def graphml(session: Session, /, path: str, output: str, **given: Any) -> int:
    """Write the task graph of a GraphML file."""
    from remat.bridges.attributed.graph import Reading
    from remat.bridges.graphml.reading import import_graphml

    return finish(session, path, output, lambda: import_graphml(path, Reading(**given)))


@click.command("dot", help=DOT_HELP)
@click.argument("path", metavar="DOT", type=click.Path())
@attribute_options
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def dot(session: Session, /, path: str, output: str, **given: Any) -> int:
    """Write the task graph of a DOT file."""
    from remat.bridges.attributed.graph import Reading
    from remat.bridges.dot.reading import import_dot

    return finish(session, path, output, lambda: import_dot(path, Reading(**given)))


@click.command("wfcommons", help=WFCOMMONS_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--memory", is_flag=True, help="Count the memory of a task's process as its workspace.")
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def wfcommons(session: Session, /, path: str, memory: bool, name: str | None, output: str) -> int:
    """Write the task graph of a workflow."""
    from remat.bridges.wfcommons.importing import import_workflow

    return finish(session, path, output, lambda: import_workflow(path, name=name, memory=memory))


@click.command("dask", help=DASK_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--recompute", is_flag=True, help="Allow tasks to run more than once.")
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def dask(session: Session, /, path: str, recompute: bool, name: str | None, output: str) -> int:
    """Write the task graph of a dask graph."""
    from remat.bridges.dask.importing import import_graph

    return finish(session, path, output, lambda: import_graph(path, name=name, recompute=recompute))


@click.command("contraction-tree", help=TREE_HELP)
@click.argument("path", metavar="JSON", type=click.Path())
@click.option("--bytes", "entry_bytes", type=click.IntRange(min=1), metavar="N", help="Bytes per entry.")
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def contraction_tree(session: Session, /, path: str, entry_bytes: int | None, name: str | None, output: str) -> int:
    """Write the task graph of a contraction."""
    from remat.bridges.contraction_tree.importing import import_tree

    return finish(session, path, output, lambda: import_tree(path, name=name, entry_bytes=entry_bytes))


@click.command("rotor", help=ROTOR_HELP)
@click.argument("path", metavar="TXT", type=click.Path())
@click.option("--time-unit", type=click.Choice(("s", "ms", "us", "ns")), default="ms", show_default=True)
@name_option
@output_option
@common.verbosity_options
@click.pass_obj
def rotor(session: Session, /, path: str, time_unit: str, name: str | None, output: str) -> int:
    """Write the chain instance of a chain of rotor."""
    from remat.bridges.rotor.importing import import_chain

    return finish(session, path, output, lambda: import_chain(path, name=name, time_unit=time_unit))


def finish(session: Session, path: str, output: str, make: Callable[[], dict[str, Any]]) -> int:
    """Make a document, check that it is an instance, and write it."""
    from remat.errors import InstanceError
    from remat.instance import instance_from_document

    common.check_files({"FILE": path}, output)
    document = make()
    try:
        instance_from_document(document)
    except InstanceError as error:
        raise InstanceError(f"{path}: {error}", more=error.more) from None
    session.remark(document["description"])
    common.write_document(document, output)
    return ExitCode.OK


COMMANDS = (graphml, dot, wfcommons, dask, contraction_tree, rotor)
