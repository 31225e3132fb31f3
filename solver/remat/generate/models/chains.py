"""Chains of models whose configuration is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remat.generate import check
from remat.generate.devices import NETWORK, rates
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.models.architecture import Model
from remat.generate.models.instances import (
    Stages,
    Workload,
    described,
    name_of,
    one_stack,
    stages_of,
    workload,
)
from remat.generate.models.memory import Static, Training, read_training, static_of
from remat.generate.networks.operations import check_stages
from remat.generate.networks.parameters import States, offloading_machine, with_values
from remat.generate.options import MODEL_DEVICE

STATIC = ("static", "none")
"""Parameters that are no values of the schedule."""


def chain(
    *,
    config: str = "gpt2",
    batch: int = 1,
    sequence: int | None = None,
    dtype: str = "bf16",
    flash: bool = True,
    loss_chunks: int = 1,
    lora: str = "",
    frozen: str = "",
    quantize: str = "none",
    reserve: int = 2**30,
    parameters: str | None = None,
    states: str | None = None,
    link: float | None = None,
    host_speed: float | None = None,
    network: float | None = None,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = MODEL_DEVICE,
    **training: Any,
) -> Document:
    """Return the training step of a configured model as a chain.

    The memory of the optimizer's step is in the backward of the first stage, which runs last, as workspace: as much as
    is missing there.

    Parameters
    ----------
    config : str or mapping
        A Hugging Face `config.json`, its fields, or the name of a shipped configuration.
    batch, sequence : int
        Sequences, and tokens of each; default: 4096, or the model's positions where these are fewer.
    dtype, flash
        fp16, bf16 or fp32; tiled attention, without score matrices.
    loss_chunks : int
        Parts in which logits, loss and their gradient are computed, in the loss.
    lora, frozen, quantize : str
        Adapters (``rank=16`` or ``rank=16,q,v``), patterns of names that are not trained, storage of frozen matrices.
    reserve : int
        Bytes for context and fragmentation, as static memory.
    parameters : {"static", "none", "device", "host", "any"}, optional
        Static memory, left out, or values in this memory; default: static, or ``device`` if `states` are given.
    states : {"host", "device", "any"}, optional
        Memory of optimizer states, if parameters are values; default: the host.
    link, host_speed : float, optional
        Bytes/s each way to the host (default: the device's of the table), and the host's speed at updates, the device's
        being 1 (default: 1/16). If all stays on the device, a host has activations only, and exists only with `link`.
    network : float, optional
        Bytes/s from each rank to the next, if parameters are values (default: 25 GB/s).
    flops, bandwidth, device
        Properties of the device.
    **training
        Arguments of `read_training`: optimizer, precision, step, master, accumulation, data, zero.

    Returns
    -------
    dict
        Kind ``chain``, seconds and bytes. ValueError for an option out of range, or a model with an encoder and a
        decoder.
    """
    given: dict[str, Any] = {"batch": batch, "sequence": sequence, "dtype": dtype, "flash": flash}
    given |= {"loss_chunks": loss_chunks, "lora": lora, "frozen": frozen, "quantize": quantize}
    work = workload(config=config, **given, flops=flops, bandwidth=bandwidth, device=device)
    one_stack(work.model)
    trained = read_training(**training)
    check.integer("reserve", reserve)
    home = parameters or ("static" if states is None else "device")
    made, stages = _document(work, dtype, trained, home, reserve, network_of({"network": network}))
    if home in STATIC:
        _refuse_without_values(states=states, host_speed=host_speed, network=network)
        return made if link is None else made | _with_host(check.number("link", link, positive=True))
    if network is not None and trained.data == 1:
        raise ValueError("network is the bandwidth between ranks, but data, the number of ranks, is 1")
    homes = {"parameters": home, "states": states or "host"}
    if not _stays(homes, host_speed):
        link = link_of({"link": link, "device": device, "dtype": dtype})
    speeds = {"link": link, "host_speed": host_speed, "network": network}
    return _with_values(made, work, stages, trained, homes | speeds)


def _document(
    work: Workload, dtype: str, training: Training, home: str, reserve: int, network: float
) -> tuple[Document, Stages]:
    """Return the chain with its static memory, and its stages."""
    stages = stages_of(work)
    fixed = static_of(work, training)
    static = (fixed.total if home == "static" else 0) + reserve
    if home == "static":
        _add_step(stages, fixed)
    check_stages(stages.rows, static, "make the batch, the sequence or the model smaller")
    made = document(
        kind="chain",
        name=name_of(work, dtype),
        description=described(work, dtype) + _trained(training, home, reserve, network),
        units=SECONDS_AND_BYTES,
        static_memory=static or None,
        input_size=stages.source,
        stages=stages.rows,
        loss=stages.loss,
        input_gradient=False,
    )
    return made, stages


def _with_values(
    made: Document, work: Workload, stages: Stages, training: Training, given: Mapping[str, Any]
) -> Document:
    """Return the document with parameters as values; the reserve stays static."""
    said = {name: value for name, value in given.items() if value is not None}
    states = States(optimizer=training.moments, data=training.data, zero=training.zero, **said)
    _check_values(work, training, states.parameters)
    element, sizes = work.setting.element, []
    for part, *_ in stages.parts:
        own = part.amounts
        gradient = training.gradient_bytes(element) * own.trained
        sizes.append((own.weights, gradient, training.state_bytes(element, own.trained, own.factors)))
    values = with_values(made, sizes, states=states, master=training.has_master(element), device=work.device)
    return values | {key: made[key] for key in ("static_memory",) if key in made}


OF_WORKLOAD = ("batch", "sequence", "dtype", "flash", "loss_chunks", "lora", "frozen", "quantize")
OF_DEVICE = ("device", "flops", "bandwidth")
OF_TRAINING = ("optimizer", "precision", "step", "master", "accumulation", "data", "zero")


def workload_of(model: Model, options: Mapping[str, Any]) -> Workload:
    """Return the workload of a model for all options of `chain`, by name."""
    return workload(config=model, **{name: options[name] for name in (*OF_WORKLOAD, *OF_DEVICE)})


def training_of(options: Mapping[str, Any]) -> Training:
    """Return the training for all options of `chain`, by name."""
    return read_training(**{name: options[name] for name in OF_TRAINING})


def link_of(options: Mapping[str, Any]) -> float:
    """Return the bytes/s to a host for all options of `chain`, by name: the one given, or the device's."""
    given: float | None = options["link"]
    return rates(str(options["device"]), str(options["dtype"])).link if given is None else given


def network_of(options: Mapping[str, Any]) -> float:
    """Return the bytes/s between ranks for all options of `chain`, by name."""
    given: float | None = options["network"]
    return NETWORK if given is None else given


def _add_step(stages: Stages, fixed: Static) -> None:
    """Count the optimizer's step in the workspace of the backward that runs last."""
    first = stages.rows[0]
    there = fixed.gathered + stages.source + sum(first[key] for key in ("output_size", "saved_size"))
    there += first.get("gradient_size", first["output_size"])
    missing = fixed.step - there
    if missing > first["backward_workspace"]:
        stages.rows[0] = first | {"name": f"{first['name']}, optimizer step", "backward_workspace": missing}


def _trained(training: Training, home: str, reserve: int, network: float) -> str:
    """Return what a description says of the training."""
    words = ["parameters left out" if home == "none" else f"optimizer {training.name}"]
    words += ["states in the parameters' type"] if training.precision == "pure" else []
    if training.data > 1:
        between = ", without exchanges" if home in STATIC else f", {network / 1e9:g} GB/s between them"
        words += [f"{training.data} ranks, ZeRO {training.zero}{between}"]
    words += [f"{reserve:,} bytes in reserve"] if reserve else []
    return "".join(f", {each}" for each in words)


def _stays(homes: Mapping[str, str], host_speed: float | None) -> bool:
    """Whether parameters and states stay on the device; a host then updates nothing, and has no speed."""
    stays = States(parameters=homes["parameters"], states=homes["states"]).only_on_device
    if stays and host_speed is not None:
        raise ValueError("host_speed is that of updates at a host, but parameters and states stay on the device")
    return stays


def _with_host(link: float) -> Document:
    """Return the machine of a device with a host that holds activations."""
    return {"schema": "remat.instance/2", "machine": offloading_machine(link, 0)}


def _refuse_without_values(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} is for parameters that are values, which schedules move: give parameters device, host or any"
            )


def _check_values(work: Workload, training: Training, home: str) -> None:
    """Refuse what parameters that are values cannot express."""
    if any(part.amounts.trained * work.setting.element != part.amounts.weights for part in work.parts):
        raise ValueError(
            f"parameters {home!r} is for models that are trained as a whole; with lora or frozen, they are static"
        )
    if training.step not in ("", "fused"):
        raise ValueError(
            f"step {training.step!r} is for static parameters; parameters {home!r} are updated stage by stage"
        )
    if training.optimizer == "none":
        raise ValueError(f"optimizer none has no updates, so parameters are static memory, not {home}")
