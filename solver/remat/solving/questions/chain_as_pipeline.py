"""Conversion of a chain with parameters to a pipeline: one layer per stage, on devices that replace its machine.

Each field of a chain is carried over (`CARRIED`), meaningless for a pipeline (`WITHOUT_MEANING`), or rejected if a
pipeline cannot express it (`_refusals`). Therefore a plan is valid for the chain as given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from remat.errors import OptionError
from remat.graph.machine import Machine, Memory
from remat.instance.chain import ChainInstance, Stage
from remat.instance.machine import ANY
from remat.solving.budget import Budget
from remat.solving.relative_budget import plain_budget, share_of
from remat.units import Units, parse_budget

CARRIED = frozenset(
    {
        *("name", "units", "stages", "loss", "backward_reads", "machine"),
        *("forward_time", "saving_forward_time", "backward_time", "output_size", "saved_size", "gradient_size"),
        *("forward_workspace", "saving_workspace", "backward_workspace", "parameter_size", "parameter_gradient_size"),
        *("optimizer_size", "update_time", "repeat", "static_memory"),
    }
)
"""Fields of a chain and its stages that a pipeline has, too. Of the machine: how much its working memory holds. Static
memory reduces the memory of each device (`static_bytes`)."""

WITHOUT_MEANING = frozenset(
    {
        *("schema_", "kind", "description", "source", "origin", "input_size", "input_gradient", "master_copy"),
        *("input_ratio", "output_ratio", "saved_ratio"),
    }
)
"""Fields that change no plan: a pipeline does not count the network's input and its gradient, its devices keep
parameters and optimizer states for the whole step, and the link between its devices is a bandwidth, without
compression."""

REFUSED = frozenset(
    {
        *("sharding", "staleness", "variants", "parameter_memory", "optimizer_memory", "in_place"),
        "bucket_size",
    }
)
"""Fields that are refused where they differ from their default, or name another memory than the working memory."""


MEANINGS = {
    "devices": "the number of devices",
    "micro_batches": "the number of micro-batches of a step",
    "link": "the bandwidth of the link between two devices",
}
"""What a pipeline needs and a chain does not define, by argument."""


def document_of_chain(
    chain: ChainInstance, devices: int | None, micro_batches: int | None, link: str | float | None
) -> dict[str, Any]:
    """Return a chain as a pipeline document: one layer per stage, the loss last, undivided backwards.

    Raises
    ------
    OptionError
        If data are missing, or the chain has features that a pipeline cannot express.
    """
    wanted = {"devices": devices, "micro_batches": micro_batches, "link": link}
    for name, value in wanted.items():
        if value is None:
            others = [MEANINGS[other] for other, given in wanted.items() if given is None and other != name]
            more = f"; nor {' and '.join(others)}" if others else ""
            raise OptionError(f"a chain does not define {MEANINGS[name]}{more}", argument=name)
    for reason in _refusals(chain):
        raise OptionError(reason, argument="instance")
    static = static_bytes(chain)
    layers = [_layer(stage) for stage in chain.stages]
    last = layers[-1]
    if last["repeat"] > 1 and (chain.loss.time or chain.loss.workspace):
        last["repeat"] -= 1
        layers.append(last := last | {"repeat": 1})
    last["backward_time"] += chain.loss.time
    last["backward_workspace"] = max(last["backward_workspace"], chain.loss.workspace)
    device: dict[str, Any] = {"name": "gpu", "count": devices}
    capacity = _capacity(chain)
    if capacity is not None:
        capacity = max(0, capacity - static)
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "name": chain.name,
        "units": chain.units.model_dump(mode="json", exclude_defaults=True),
        "backward_reads": list(chain.backward_reads),
        "micro_batches": micro_batches,
        "layers": layers,
        "cluster": {
            "devices": [device if capacity is None else device | {"memory": capacity}],
            "levels": [{"bandwidth": link}],
        },
    }


def static_bytes(chain: ChainInstance) -> int:
    """Return the static memory that each device of a plan holds, such as a reserve."""
    working = None if chain.machine is None else chain.machine.working_memory
    memories = () if chain.machine is None else chain.machine.memories
    return chain.static_memory + sum(memory.static for memory in memories if memory.name == working)


def without_static(budget: Budget, static: int, units: Units) -> Budget:
    """Return a budget less the static bytes of each device, at least 0; shares refer to a peak without these bytes."""
    if isinstance(budget, Mapping):
        return {name: size if size is None else _sized(size, static, units) for name, size in budget.items()}
    return budget if budget is None else _sized(budget, static, units)


def _sized(size: float | str, static: int, units: Units) -> float | str:
    try:
        plain: float | str = plain_budget(size)
        if share_of(plain) is not None:
            return plain
        bytes_ = parse_budget(plain, units)
    except ValueError as error:
        raise OptionError(str(error), argument="budget") from None
    return max(0, bytes_ - static)


def with_static(machine: Machine, budget: Budget, chain: ChainInstance) -> Machine:
    """Return the machine of a plan with the static bytes of the chain on each device, and its capacities as given.

    A budget of less than the static bytes is a capacity of 0 during planning (`without_static`), not here.
    """
    static, units, own = static_bytes(chain), chain.units.build(), _capacity(chain)
    devices = {processor.memory for processor in machine.processors}

    def capacity(memory: Memory) -> int | None:
        size = budget.get(memory.name) if isinstance(budget, Mapping) else budget
        if memory.capacity is None:
            return None
        plain = own if size is None else plain_budget(size)
        if plain is None or share_of(plain) is not None:
            return memory.capacity + static
        return parse_budget(plain, units)

    memories = tuple(
        replace(memory, capacity=capacity(memory), static=static) if index in devices else memory
        for index, memory in enumerate(machine.memories)
    )
    return replace(machine, memories=memories)


def _refusals(chain: ChainInstance) -> Iterator[str]:
    """Yield the features of the chain that a pipeline cannot express."""
    if not chain.has_parameters:
        yield (
            "this chain has no parameters (`parameter_size`), so that their bytes on a device are not known: generate "
            "it with `parameters` and `states` in memory 'device', for a model of which all parameters are trained"
        )
    if chain.sharding is not None or chain.is_stream or any(stage.variants for stage in chain.stages):
        yield "of a chain that is cut into stages, no ranks, staleness or variants are known"
    working = None if chain.machine is None else chain.machine.working_memory
    is_open = chain.machine is None or chain.machine.leaves_places_open
    for key, what in (("parameter_memory", "parameters"), ("optimizer_memory", "optimizer states")):
        home = getattr(chain, key)
        if home not in (None, working) and not (working is None and home != ANY):
            where = "leaves their place to the schedule" if home == ANY and is_open else f"keeps them in {home!r:.60}"
            remedy = f"generate it with {what} on the device, or set `{key}` to {working or 'null'}"
            yield f"the devices of a plan keep {what}, and this chain {where} (`{key}`): {remedy}"
    if chain.in_place:
        yield "forwards of a pipeline do not run in place: leave `in_place` out to plan it without"
    if any(stage.bucket_size for stage in chain.stages):
        yield "of a chain that is cut into stages, no `bucket_size` is known: count it as backward_workspace"


def _layer(stage: Stage) -> dict[str, Any]:
    layer: dict[str, Any] = {
        "repeat": stage.repeat,
        "forward_time": stage.saving_time,
        "backward_time": stage.backward_time,
        "output_size": stage.output_size,
        "saved_size": stage.saved_size,
        "forward_workspace": stage.saving_bytes,
        "backward_workspace": stage.backward_workspace,
        "parameter_size": stage.parameter_size,
        "optimizer_size": stage.optimizer_size,
        "update_time": stage.update_time,
    }
    more = {
        "name": stage.name or None,
        "gradient_size": stage.gradient_size,
        "parameter_gradient_size": stage.parameter_gradient_size,
        "backward_reads": stage.backward_reads,
    }
    return layer | {key: value for key, value in more.items() if value is not None}


def _capacity(chain: ChainInstance) -> int | None:
    """Return the capacity of the working memory of the chain's machine."""
    if chain.machine is None:
        return None
    working = chain.machine.working_memory
    return next(memory.capacity for memory in chain.machine.memories if memory.name == working)
