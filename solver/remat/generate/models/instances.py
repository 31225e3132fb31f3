"""Task graphs and pipelines of models whose configuration is known, and what chains share with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remat.errors import InstanceError
from remat.generate import check
from remat.generate.document import Document
from remat.generate.models.architecture import Model
from remat.generate.models.kernels import Kernels, Part, Setting, parts_of
from remat.generate.models.reading import read_model
from remat.generate.models.tuning import Tuning, read_tuning
from remat.generate.networks.operations import BYTES, Device, Operation, Tensor, roofline, stage
from remat.generate.networks.parameters import States
from remat.generate.networks.training import Network, training_graph
from remat.generate.options import MODEL_DEVICE
from remat.generate.pipeline import Cluster, pipeline_of

USUAL_SEQUENCE = 4096
"""Default number of tokens of a sequence, unless the model has fewer positions."""

MOST_CHUNKS = 2**20


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, what of it is trained, on which batch, on which device.

    Attributes
    ----------
    model, tuning, setting, device
    parts : sequence of Part
    """

    model: Model
    tuning: Tuning
    setting: Setting
    device: Device
    parts: Sequence[Part]

    @property
    def tied_trained(self) -> bool:
        """Whether the table that the head shares is trained."""
        prefix, stack = self.model.stacks()[0] if self.model.family != "whisper" else self.model.stacks()[-1]
        named = dict(stack.embeddings)
        return "embedding" in named and self.tuning.of(f"{prefix}embedding", named["embedding"]).trained

    def kernels(self, part: Part, at: str = "", memory: Tensor | None = None) -> Kernels:
        """Return the writer of a part's operations."""
        return Kernels(self.model, self.setting, part, at, memory, self.tied_trained)

    @property
    def chunked(self) -> bool:
        """Whether logits and loss are computed in chunks."""
        return self.setting.chunks > 1 and self.model.vocabulary > 0


def workload(
    *,
    config: str | Mapping[str, Any] | Model,
    batch: int = 1,
    sequence: int | None = None,
    dtype: str = "bf16",
    flash: bool = True,
    loss_chunks: int = 1,
    lora: str = "",
    frozen: str = "",
    quantize: str = "none",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = MODEL_DEVICE,
) -> Workload:
    """Return the workload of a configuration; ValueError for an option out of range (see `chain`)."""
    try:
        model = config if isinstance(config, Model) else read_model(config)
    except InstanceError as error:
        raise ValueError(f"config: {error}") from None
    check.choice("dtype", dtype, tuple(BYTES))
    tuning = read_tuning(lora, frozen, quantize)
    tuning.check(model)
    usual = min(USUAL_SEQUENCE, model.positions or USUAL_SEQUENCE)
    length = usual if sequence is None else check.integer("sequence", sequence, minimum=1, maximum=2**40)
    learned = any(name == "positions" for name, _ in model.decoder.embeddings) and model.decoder.kind == "tokens"
    if learned and length > model.positions:
        raise ValueError(f"sequence {length:,} is longer than the {model.positions:,} positions of {model.name}")
    setting = Setting(
        batch=check.integer("batch", batch, minimum=1, maximum=2**40),
        sequence=length,
        element=BYTES[dtype],
        flash=flash,
        chunks=check.integer("loss_chunks", loss_chunks, minimum=1, maximum=MOST_CHUNKS),
    )
    machine = roofline(dtype, flops, bandwidth, device)
    return Workload(model, tuning, setting, machine, parts_of(model, tuning, setting.element))


@dataclass(frozen=True, slots=True)
class Stages:
    """The stages of a workload, as a chain has them.

    Attributes
    ----------
    rows : list of dict
    parts : list of tuple of Part
        What each row is made of.
    source : int
        Bytes of the input.
    loss : dict
        Its time and workspace.
    """

    rows: list[Document]
    parts: list[tuple[Part, ...]]
    source: int
    loss: Document


def stages_of(work: Workload) -> Stages:
    """Return the stages: embedding (with the frozen blocks before everything that is trained), blocks, head."""
    rows: list[Document] = []
    parts: list[tuple[Part, ...]] = []
    source = 0
    memory = None
    x = Tensor("x", 0)
    for number in range(len(work.model.stacks())):
        own = [part for part in work.parts if part.stack == number]
        kernels = work.kernels(own[0], "embedding.")
        first = kernels.source()
        source += first.size
        x, operations, still = kernels.embedding(first), kernels.made, [own[0]]
        blocks = [part for part in own[1:] if part is not work.parts[-1]]
        while blocks and blocks[0].block and not x.differentiable and not blocks[0].amounts.trained and memory is None:
            for index in range(blocks[0].repeat):
                more = work.kernels(blocks[0], f"frozen{len(still)}.{index}.")
                x = more.block(x)
                operations = [*operations, *more.made]
            still.append(blocks.pop(0))
        row = stage(name=own[0].name, operations=operations, device=work.device, input_gradient=False)
        rows.append(row if x.differentiable else row | _without_backward(own[0].name))
        parts.append(tuple(still))
        for part in blocks:
            read = Tensor("x", x.size, x.differentiable)
            kernels = work.kernels(part, memory=memory)
            made = kernels.block(read) if part.block is not None else kernels.norm("norm", read)
            shared = () if memory is None else (memory,)
            row = stage(name=part.name, operations=kernels.made, device=work.device, repeat=part.repeat, outside=shared)
            if not made.differentiable:
                row |= _without_backward(part.name)
            rows.append(row)
            parts.append((part,))
            x = made
        if number == 0 and len(work.model.stacks()) > 1:
            # Nothing of a chain: its gradient is what fitting adds.
            memory = Tensor("memory", x.size, differentiable=False)
    head = work.parts[-1]
    kernels = work.kernels(head)
    output = kernels.head(Tensor("x", x.size, x.differentiable), chunked=work.chunked)
    if kernels.made:
        rows.append(stage(name="head", operations=kernels.made, device=work.device))
        parts.append((head,))
    return Stages(rows, parts, source, _loss(work, kernels, output.size))


def _without_backward(name: str) -> Document:
    """Return the fields of a stage before everything that is trained."""
    return {"name": name, "backward_time": 0, "saved_size": 0, "backward_workspace": 0, "gradient_size": 0}


def _loss(work: Workload, kernels: Kernels, output: int) -> Document:
    """Return the loss: read the logits, write and read probabilities, write the gradient; in chunks with products."""
    workspace, flops = kernels.loss()
    if flops:  # logits, the gradient of their input, and of the weights
        learns = (
            work.tied_trained
            if work.model.tied
            else any(
                kernels.part.treatments[name].trained for name in ("head", "decoder") if name in kernels.part.weights
            )
        )
        time = work.device.time((3 if learns else 2) * flops, 2 * output)
        time += work.device.time(0, 4 * workspace * work.setting.chunks)
        return {"time": time, "workspace": workspace}
    return {"time": work.device.time(0, 2 * output + 2 * workspace), "workspace": workspace}


def one_stack(model: Model) -> None:
    """Refuse a model with an encoder and a decoder."""
    if model.encoder is not None:
        raise ValueError(f"config: {model.name} has an encoder and a decoder, which are no chain; generate a dag of it")


def name_of(work: Workload, dtype: str) -> str:
    """Return what an instance of a workload is called."""
    setting, tuning = work.setting, work.tuning
    words = [
        work.model.name,
        f"b{setting.batch}",
        f"s{setting.sequence}",
        dtype,
        "flash" if setting.flash else "scores",
    ]
    words += [f"lora{tuning.rank}"] if tuning.rank else []
    words += [tuning.packed] if tuning.packed else []
    words += [f"chunks{setting.chunks}"] if work.chunked else []
    return "_".join(words).replace("-", "_")


def described(work: Workload, dtype: str) -> str:
    """Return what an instance of a workload is."""
    model, device = work.model, work.device
    trained = sum(part.repeat * part.amounts.trained for part in work.parts)
    some = "" if trained == model.parameters else f", {trained:,} trained"
    return (
        f"{model.name} ({model.family}), {work.setting.batch} x {work.setting.sequence} tokens, {dtype}, "
        f"{model.parameters:,} parameters{some}; fused kernels, roofline times at {device.flops / 1e12:g} TFLOP/s and "
        f"{device.bandwidth / 1e12:g} TB/s"
    )


# --- task graphs ------------------------------------------------------------------------------------------------------


def dag(
    *,
    config: str = "gpt2",
    batch: int = 1,
    sequence: int | None = None,
    dtype: str = "bf16",
    flash: bool = True,
    lora: str = "",
    frozen: str = "",
    quantize: str = "none",
    keep_gradients: bool = True,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = MODEL_DEVICE,
) -> Document:
    """Return the training step of a configured model as a task graph, kernel by kernel.

    Parameters
    ----------
    config, batch, sequence, dtype, flash, lora, frozen, quantize, flops, bandwidth, device
        As of `chain`; models with an encoder and a decoder, too.
    keep_gradients : bool
        Whether the gradients of parameters stay to the end.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; parameters are static memory. ValueError for an option out of range.
    """
    given = {"config": config, "batch": batch, "sequence": sequence, "dtype": dtype, "flash": flash}
    given |= {"lora": lora, "frozen": frozen, "quantize": quantize}
    work = workload(**given, flops=flops, bandwidth=bandwidth, device=device)  # type: ignore[arg-type]
    operations: list[Operation] = []
    inputs: list[Tensor] = []
    memory, x = None, None
    for number in range(len(work.model.stacks())):
        prefix = work.model.stacks()[number][0]
        for index, part in enumerate(_single(part for part in work.parts[:-1] if part.stack == number)):
            kernels = work.kernels(part, f"{prefix}{index - 1}." if index else f"{prefix}embedding.", memory)
            if index == 0:
                inputs.append(kernels.source())
                x = kernels.embedding(inputs[-1])
            else:
                assert x is not None
                x = kernels.block(x) if part.block is not None else kernels.norm("norm", x)
            operations += kernels.made
        memory = x
    assert x is not None
    kernels = work.kernels(work.parts[-1], "head.")
    kernels.head(x)
    operations += kernels.made
    network = Network(
        operations,
        inputs[0],
        kernels.loss()[0],
        work.setting.element,
        name_of(work, dtype) + "_graph",
        described(work, dtype).partition(";")[0],
    )
    made = training_graph(network, work.device, keep_gradients=keep_gradients, in_place=True)
    weights = sum(part.repeat * part.amounts.weights for part in work.parts)
    made["static_memory"] = weights
    made["description"] = described(work, dtype) + ", joint forward and backward graph"
    made["inputs"] = [tensor.name for tensor in inputs]
    made["values"] += [{"id": tensor.name, "size": tensor.size} for tensor in inputs[1:]]
    return made


def _single(parts: Any) -> Iterator[Part]:
    """Yield each part as often as it repeats."""
    for part in parts:
        for _ in range(part.repeat):
            yield part


# --- pipelines --------------------------------------------------------------------------------------------------------


def pipeline(
    *,
    config: str = "gpt2",
    devices: int = 4,
    micro_batches: int = 8,
    batch: int = 1,
    sequence: int | None = None,
    dtype: str = "bf16",
    flash: bool = True,
    loss_chunks: int = 1,
    lora: str = "",
    frozen: str = "",
    quantize: str = "none",
    optimizer: str = "adam",
    master: bool | None = None,
    accumulation: str = "same",
    link: str = "300GB/s",
    latency: str = "0s",
    node: int | None = None,
    network: str = "25GB/s",
    memory: str | None = None,
    split: bool = True,
    transfers: str = "overlap",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = MODEL_DEVICE,
) -> Document:
    """Return the training step of a configured model on several devices.

    Parameters
    ----------
    config, batch, sequence, dtype, flash, loss_chunks, lora, frozen, quantize, optimizer, master, accumulation
        As of `chain`; `batch` is that of a micro-batch.
    flops, bandwidth, device
        As of `chain`.
    devices, micro_batches, link, latency, node, network, memory, split, transfers
        As of `remat.generate.pipeline.transformer`.

    Returns
    -------
    dict
        Kind ``pipeline``, seconds and bytes; ValueError for an option out of range.
    """
    given = {"config": config, "batch": batch, "sequence": sequence, "dtype": dtype, "flash": flash}
    given |= {"loss_chunks": loss_chunks, "lora": lora, "frozen": frozen, "quantize": quantize}
    work = workload(**given, flops=flops, bandwidth=bandwidth, device=device)  # type: ignore[arg-type]
    one_stack(work.model)
    states = States(optimizer=optimizer, master=master, accumulation=accumulation)
    stages = stages_of(work)
    element = work.setting.element
    rows: list[Document] = []
    for row, parts in zip(stages.rows, stages.parts, strict=True):
        count = len(parts) > 1  # frozen blocks in one row with the embedding
        weights = sum(part.amounts.weights * (part.repeat if count else 1) for part in parts)
        own = parts[0].amounts
        sizes = {
            "parameter_size": weights,
            "parameter_gradient_size": states.gradient_bytes(element) * own.trained,
            "optimizer_size": states.state_bytes(element, own.trained, own.factors),
        }
        rows.append(row | (sizes if optimizer != "none" and weights else {}))
    cluster = Cluster(devices, link, latency, network, node, memory, transfers)
    chain_of = {
        "name": name_of(work, dtype),
        "description": described(work, dtype) + f", optimizer {optimizer}",
        "stages": rows,
        "loss": stages.loss,
    }
    return pipeline_of(chain_of, cluster, micro_batches, split=split)
