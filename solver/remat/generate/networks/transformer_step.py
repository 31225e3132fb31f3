"""The training step of a transformer as a task graph, kernel by kernel, over any number of micro-batches."""

from __future__ import annotations

from remat.generate import check
from remat.generate.devices import DEFAULT, HOST_LINK
from remat.generate.document import Document
from remat.generate.networks.micro_batch import MicroBatch
from remat.generate.networks.operations import BYTES, roofline
from remat.generate.networks.step import MOST_LAYERS, Setting, training_step
from remat.generate.networks.transformer import PRESETS, SHAPE, architecture


def transformer_step(
    *,
    preset: str = "gpt2-small",
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    feedforward: int | None = None,
    key_heads: int | None = None,
    dropout: bool | None = None,
    batch: int = 1,
    micro_batches: int = 1,
    dtype: str = "bf16",
    flash: bool = True,
    parameters: str = "none",
    gradients: str | None = None,
    optimizer: str = "adam",
    link: float = HOST_LINK,
    host_speed: float = 1 / 16,
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return the training step of a transformer as a task graph that runs one micro-batch after the other.

    Parameters
    ----------
    preset, layers, hidden, heads, sequence, vocabulary, feedforward, key_heads, dropout, dtype, flash
        As for `remat.generate.networks.transformer.transformer`.
    batch : int
        Sequences in a micro-batch.
    micro_batches : int
        Forwards and backwards before the parameters change.
    parameters : {"none", "static", "host"}
        Left out; bytes that always lie there; or values that begin and must end at the host, with updates that read
        their gradients and the optimizer's states, which lie there, too.
    gradients : {"none", "accumulate"}, optional
        Dropped as they come; or added up in place over the micro-batches: in buffers that are there from the start, or,
        with parameters at the host, in what the first micro-batch makes. Default: accumulate where parameters are at
        the host, else none.
    optimizer : {"adam", "sgd", "none"}
        What an update reads, where parameters are at the host.
    link, host_speed : float
        Bytes/s each way to the host, and its speed at updates (the device's is 1), where parameters are at the host.
    flops, bandwidth : float, optional
        Default: those of the device for `dtype`.
    device : str
        A name of the shipped table.

    Returns
    -------
    dict
        Kind ``dag``, seconds and bytes; ``tasks`` and ``values`` are `Rows`.

    Raises
    ------
    ValueError
        A parameter out of range, sizes beyond 2^62 bytes, or more than 10^7 tasks.
    """
    check.choice("preset", preset, tuple(PRESETS))
    check.choice("dtype", dtype, tuple(BYTES))
    given = (layers, hidden, heads, sequence, vocabulary, feedforward, key_heads)
    model = architecture(preset, dict(zip(SHAPE, given, strict=True)), dropout)
    check.integer("layers", model.layers, maximum=MOST_LAYERS)
    many = check.integer("batch", batch, minimum=1)
    machine = roofline(dtype, flops, bandwidth, device)
    once = MicroBatch(model, batch=many, element=BYTES[dtype], flash=flash, device=machine)
    setting = Setting(micro_batches, parameters, gradients, optimizer, link, host_speed)
    base = preset if model == PRESETS[preset] else f"transformer_l{model.layers}_h{model.hidden}"
    return training_step(once, setting, base=base, what="Transformer", dtype=dtype)
