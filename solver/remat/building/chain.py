"""`remat.chain` and `remat.join`: chains of stages from columns of times and sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from remat.building.columns import check_scalars, common_length, listed, rows, sequence_of
from remat.building.common import Column, Common, Rule, Size, Time, build, builder, fields_among, head, units_of
from remat.errors import InstanceError
from remat.instance.base import instance_document
from remat.instance.chain import ChainInstance, Loss, Stage
from remat.instance.native import native
from remat.messages import brief

if TYPE_CHECKING:
    from remat.instance.join import JoinInstance

_KEYS = {"names": "name", "stage_backward_reads": "backward_reads"}
"""Columns that have another name than their field of a stage."""

OF_STAGES: tuple[Rule, ...] = (
    (r"^\$\.stages\[(\d+)\]\.name\b", r"names[\1]"),
    (r"^\$\.stages\[(\d+)\]\.backward_reads", r"stage_backward_reads[\1]"),
    (r"^\$\.stages\[(\d+)\]\.(\w+)", r"\2[\1]"),
    (r"^\$\.loss\.(\w+)", r"loss_\1"),
)


class ChainArguments(Common, total=False):
    """Further arguments of `remat.chain`, in addition to those of every builder.

    Attributes
    ----------
    repeat : column
        Number of equal stages that each entry stands for. Default: 1.
    forward_workspace, backward_workspace : column
        Bytes of extra memory during a forward, or a backward. Default: 0.
    saving_workspace, saving_forward_time : column
        Figures of the saving forward. Default: those of the forward.
    gradient_size : column
        Bytes of the gradient of the stage's output. Default: as the output.
    parameter_size, parameter_gradient_size, bucket_size : column
        Bytes of the parameters (default: 0), of their gradient (as the parameters), and of the gradient as the backward
        creates it (as the gradient).
    output_ratio, saved_ratio : column
        Bytes that a link with compression sends for each byte of the output, and of the saved values. Default: the
        link's ratio.
    optimizer_size, update_time : column
        Bytes of the optimizer's state, and time of the update. Default: 0.
    variants : sequence of sequences of dict
        Alternatives of each stage, such as ``{"name": "save some", "saved_size": 10, "backward_time": 8}``.
    origin : sequence of sequences of dict
        Operators of each forward, for people: ``{"module": "layer1", "op": "aten.convolution"}``.
    backward_reads : sequence of str
        What backwards read in addition to the gradient: any of ``input``, ``output``, ``saved``. Default: all three.
    stage_backward_reads : sequence of sequences of str
        The same for each stage. Default, and for None: as `backward_reads`.
    loss_time, loss_workspace : time, size
        Time of the loss, and bytes of extra memory meanwhile. Default: 0.
    in_place : bool
        The output of a run may take the space of inputs that it frees. Default: False.
    input_gradient : bool
        The gradient of the input is an output. Default: True.
    input_ratio : float
        Bytes that a link with compression sends for each byte of the input. Default: the link's ratio.
    parameter_memory, optimizer_memory : str
        Memory of parameters, or optimizer states, at start and end of the step; ``any``: the schedule chooses. Default:
        the working memory.
    master_copy : bool
        Optimizer states contain the parameters, as in mixed precision. Default: False.
    sharding : dict
        Equal ranks that share the batch: ``{"data": 4, "zero": 2}``.
    staleness : int
        Steps follow each other without end, with the parameters from so many updates before the newest.
    """

    repeat: Column
    forward_workspace: Column
    backward_workspace: Column
    saving_workspace: Column
    saving_forward_time: Column
    gradient_size: Column
    parameter_size: Column
    parameter_gradient_size: Column
    bucket_size: Column
    output_ratio: Column
    saved_ratio: Column
    optimizer_size: Column
    update_time: Column
    variants: Sequence[Sequence[Mapping[str, Any]]]
    origin: Sequence[Sequence[Mapping[str, Any]]]
    backward_reads: Sequence[str]
    stage_backward_reads: Sequence[Sequence[str] | None]
    loss_time: Time
    loss_workspace: Size
    in_place: bool
    input_gradient: bool
    input_ratio: float | None
    parameter_memory: str | None
    optimizer_memory: str | None
    master_copy: bool
    sharding: Mapping[str, Any] | None
    staleness: int | None


_OF_CHAINS, _STAGE_COLUMNS = fields_among(ChainArguments, ChainInstance, Stage)


@builder(ChainArguments)
def chain(
    *,
    forward_time: Column,
    backward_time: Column,
    output_size: Column,
    saved_size: Column = None,
    input_size: Size = 0,
    names: Sequence[str] | None = None,
    length: int | None = None,
    **more: Unpack[ChainArguments],
) -> ChainInstance:
    """Build a chain: the forward and backward of a network, stage by stage.

    Parameters
    ----------
    forward_time, backward_time : column
        One entry for each stage, or one for all. A column is a scalar, a sequence or an array of one dimension; times
        are numbers in `time_unit`, or texts such as ``"3ms"``. An entry None leaves a field to its default.
    output_size : column
        Bytes of what the next stage reads: whole numbers, or texts such as ``"8MB"``.
    saved_size : column, optional
        Bytes that the backward needs beyond the stage's input and output.
    input_size : size
        Bytes of the input of the first stage.
    names : sequence of str, optional
        Names of the stages.
    length : int, optional
        Number of stages, if all columns are scalars.
    **more
        See `remat.building.chain.ChainArguments` and `remat.building.common.Common`.

    Returns
    -------
    ChainInstance

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.

    Examples
    --------
    >>> import remat
    >>> remat.chain(forward_time=[1, 2], backward_time=[2, 4], output_size=8, input_size=8).length
    2
    """
    given = dict(more)
    columns = {
        "forward_time": forward_time,
        "backward_time": backward_time,
        "output_size": output_size,
        "saved_size": saved_size,
        "names": names,
        "stage_backward_reads": given.pop("stage_backward_reads", None),
    } | {key: given.pop(key) for key in _STAGE_COLUMNS if key in given}
    own = {key: given.pop(key, None) for key in _OF_CHAINS} | {"input_size": input_size}
    loss = {"time": native(given.pop("loss_time", 0)), "workspace": native(given.pop("loss_workspace", 0))}
    document = head("chain", given) | {key: native(value) for key, value in own.items() if value is not None}
    document["stages"] = _stages(columns, length, document)
    document["loss"] = loss
    return cast("ChainInstance", build(document, OF_STAGES))


def _stages(columns: Mapping[str, Any], length: int | None, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = listed(columns)
    for key in ("forward_time", "backward_time", "output_size"):
        if key not in given:
            raise InstanceError("None is not a column; give an entry for all, or one for each stage", key)
    count = common_length(given, length, what="stages")
    check_scalars(Stage, given, units_of(document))
    return rows({_KEYS.get(key, key): column for key, column in given.items()}, count)


_OF_THE_JOIN = ("static_memory", "machine", "in_place", "backward_reads", "input_gradient")


@builder(Common)
def join(
    chains: Sequence[ChainInstance | Mapping[str, Any]],
    *,
    loss_time: Time = 0,
    loss_workspace: Size = 0,
    in_place: bool = False,
    backward_reads: Sequence[str] | None = None,
    input_gradient: bool = True,
    **common: Unpack[Common],
) -> JoinInstance:
    """Build a join: chains whose outputs one loss reads.

    Parameters
    ----------
    chains : sequence of ChainInstance, or of dict
        Each as `remat.chain` returns it, or a dict of its arguments. Machine, loss and what else belongs to the whole
        are those of the join. Units default to those of the first chain of `remat.chain`; all must be equal.
    loss_time, loss_workspace, in_place, backward_reads, input_gradient
        As in `remat.chain`.
    **common
        See `remat.building.common.Common`.

    Returns
    -------
    JoinInstance

    Raises
    ------
    remat.InstanceError
        Names the argument, the index and the value.
    """
    branches = sequence_of("chains", chains, "chains")
    document = head("join", _units_of_chains(branches) | dict(common))
    document |= {"in_place": native(in_place), "input_gradient": native(input_gradient)}
    if backward_reads is not None:
        document["backward_reads"] = native(backward_reads)
    document["chains"] = [_branch(number, each, document) for number, each in enumerate(branches)]
    document["loss"] = {"time": native(loss_time), "workspace": native(loss_workspace)}
    rules = ((r"^\$\.chains\[(\d+)\]\.stages\[(\d+)\]\.(\w+)", r"chains[\1].\3[\2]"), *OF_STAGES)
    return cast("JoinInstance", build(document, rules))


def _units_of_chains(branches: Sequence[Any]) -> dict[str, Any]:
    """Return the units of the first chain that is built already."""
    built = next((each.units for each in branches if isinstance(each, ChainInstance)), None)
    return {} if built is None else {"time_unit": built.time, "size_unit": built.memory}


def _branch(number: int, given: ChainInstance | Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    at = f"chains[{number}]"
    units = document["units"]
    if isinstance(given, Mapping):
        try:
            given = chain(**({"time_unit": units["time"], "size_unit": units["memory"]} | dict(given)))
        except InstanceError as error:
            raise InstanceError(error.message, f"{at}.{error.path}" if error.path else at, error.more) from None
        except TypeError as error:
            raise InstanceError(str(error), at) from None
    if not isinstance(given, ChainInstance):
        raise InstanceError(f"{brief(given)} is not a chain; build one with remat.chain", at)
    if (given.units.time, given.units.memory) != (units["time"], units["memory"]):
        raise InstanceError(
            f"it counts in {given.units.time} and {given.units.memory}, and the join in {units['time']} and "
            f"{units['memory']}; give both the same time_unit and size_unit",
            at,
        )
    own = instance_document(given)
    wrong = [key for key in _OF_THE_JOIN if key in own] + (["loss"] if given.loss != Loss() else [])
    if wrong:
        raise InstanceError("a join has this for all its chains; give it to remat.join", f"{at}.{wrong[0]}")
    found: dict[str, Any] = {"input_size": given.input_size, "stages": own["stages"]}
    ratio = {} if given.input_ratio is None else {"input_ratio": given.input_ratio}
    return found | ratio | ({"name": given.name} if given.name else {})
