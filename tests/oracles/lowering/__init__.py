"""Lower instance documents to a plain task graph and a plain machine.

Documents are `remat.instance/1` to `/3` dictionaries whose sizes and times are bare numbers.  No validation is done
beyond what falls out of reading them: these functions are fed correct documents.

Readings of the format where it is brief
----------------------------------------
- Chain stages need `forward_time`, `backward_time` and `output_size`; `saved_size` and the workspaces default to 0.
- Adjoint, per-step objects override the instance's own figures.  `state_size` and `adjoint_size` of step i are
  the sizes of x_i and y_i, so y_0 has step 0's *adjoint* size.  With a tape there is one more state x_n and one
  more adjoint y_n: they are as large as those of the last step.
- Tapes are stored as soon as `tape_size` is given, for the instance or in any step (0 in the others).
- The working memory of an adjoint with storage is larger by the static memory, which would otherwise never fit.
- An adjoint document with both `storage` and `machine` runs on the `machine`; a level given neither `slots` nor
  `capacity` is unbounded.
- The working memory is that of the first processor of speed 1, and the default for values that name no memory.
- Processors without `memory` sit on the first memory; a machine without processors has one called `processor`.
- A channel named like a processor of `count` > 1 is a separate resource: the processors are name0, name1, ...
- A tree's `parallel` is one object for all tasks, or a list with one object (or null) per task.
- B and loss are `once` and leave `recomputable` at its default.
- A pipeline's `count` of 1 means, as in a machine, that the device has the bare name. A device's processor and memory
  share its name; static memory is in the first memory.
- Groups of a level are consecutive devices as listed; a level without bandwidth takes its latency only.
- A layer is split into halves if its weight time is anything but the number 0; an object always means halves.
- The backward's workspace is used by B and by W.
- In recompute times a task with times by type counts the least that a device here takes, wherever it ran.
- A forward of a pipeline is not `required`: its backward needs it anyway.
- A machine's processor without a type is of none, and cannot run a task with times by type.
- Samples of a stream are listed one after the other, each with all its tasks in the listed order.
"""

from .adjoints import lower_adjoint
from .chains import around, lower_chain, lower_join, of_layer
from .graphs import each_sample, lower_dag, lower_tree
from .machines import machine, read_machine
from .pipelines import WORK, lower_inference, lower_pipeline
from .records import Graph, Link, Machine, Task, ratio, run_time

__all__ = [
    "WORK",
    "Graph",
    "Link",
    "Machine",
    "Task",
    "around",
    "lower",
    "machine",
    "of_layer",
    "ratio",
    "read_machine",
    "run_time",
]


def lower(document, on=None, degrees=None):
    """Lower an instance document of any kind to its task graph.

    Parameters
    ----------
    document : dict
        An instance.
    on : Machine, optional
        The machine whose working memory holds inputs and outputs by default; the instance's own if omitted.
    degrees : list of int, optional
        Of a pipeline, for each layer: how many devices share every micro-batch.

    Returns
    -------
    Graph
    """
    first = (on or machine(document)).first
    if document["kind"] == "pipeline" and document.get("weights") == "fixed":
        return each_sample(lower_inference(document, on or machine(document)), document["micro_batches"])
    if document["kind"] == "pipeline":
        return lower_pipeline(document, on or machine(document), degrees)
    if document["kind"] == "dag":
        graph = lower_dag(document, on or machine(document))
        return graph if document.get("stream") is None else each_sample(graph, document["stream"])
    if document["kind"] in ("chain", "join"):
        return {"chain": lower_chain, "join": lower_join}[document["kind"]](document, on or machine(document))
    return {"adjoint": lower_adjoint, "tree": lower_tree}[document["kind"]](document, first)
