"""Networks of several chains that meet in one loss: Siamese ones, and two of different kinds."""

from __future__ import annotations

from remat.generate import check
from remat.generate.devices import DEFAULT
from remat.generate.document import SECONDS_AND_BYTES, Document, document
from remat.generate.networks.images import FLOAT32
from remat.generate.networks.operations import BYTES, Operation, Tensor, check_stages, roofline, stage
from remat.generate.networks.resnet import resnet
from remat.generate.networks.transformer import transformer


def siamese(
    *,
    branches: int = 2,
    depth: str = "18",
    image: int = 224,
    batch: int = 32,
    embedding: int = 128,
    dtype: str = "fp32",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return equal ResNets, one for each image of a pair (or a triplet), whose embeddings one loss compares.

    Parameters
    ----------
    branches : int
        Images that are compared: 2 of a pair, 3 of a triplet.
    depth, image, batch, dtype, flops, bandwidth, device
        As of the chain.
    embedding : int
        Width of what is compared.

    Returns
    -------
    dict
        Kind ``join``, seconds and bytes, activations alone; ValueError for a parameter out of range.
    """
    count = check.integer("branches", branches, minimum=1)
    check.integer("embedding", embedding, minimum=1)
    chain = resnet(
        depth=depth,
        image=image,
        batch=batch,
        classes=embedding,
        dtype=dtype,
        flops=flops,
        bandwidth=bandwidth,
        device=device,
    )
    machine = roofline(dtype, flops, bandwidth, device)
    compared = count * chain["stages"][-1]["output_size"]
    return _join(
        name=f"siamese_resnet{depth}_x{count}_b{batch}_{image}_{dtype}",
        description=(
            f"{count} equal ResNet-{depth}, {batch} images of {image}x{image} each, embeddings of {embedding}, "
            f"{dtype}; published layer table, roofline times at {machine.flops / 1e12:g} TFLOP/s and "
            f"{machine.bandwidth / 1e12:g} TB/s"
        ),
        chains=[_branch(chain, f"image {number}") for number in range(1, count + 1)],
        # Distances row by row: the compared embeddings are read once, and their gradients are written once.
        loss={"time": machine.time(0, 2 * compared), "workspace": FLOAT32 * batch},
    )


def cross_modal(
    *,
    depth: str = "50",
    image: int = 224,
    layers: int = 12,
    hidden: int = 512,
    heads: int = 8,
    sequence: int = 77,
    vocabulary: int = 49408,
    batch: int = 32,
    embedding: int = 512,
    dtype: str = "bf16",
    flops: float | None = None,
    bandwidth: float | None = None,
    device: str = DEFAULT,
) -> Document:
    """Return a ResNet for images and a transformer for texts, with one contrastive loss (as Radford et al. 2021).

    Parameters
    ----------
    depth, image
        Hyper-parameters of the ResNet.
    layers, hidden, heads, sequence, vocabulary
        Hyper-parameters of the transformer, tiled attention; its last position is projected to the embedding.
    batch : int
        Pairs of an image and a text.
    embedding : int
        Width of what is compared: each image with each text.
    dtype, flops, bandwidth, device
        As of the chains.

    Returns
    -------
    dict
        Kind ``join``, seconds and bytes, activations alone; ValueError for a parameter out of range.
    """
    check.integer("embedding", embedding, minimum=1)
    common = {"batch": batch, "dtype": dtype, "flops": flops, "bandwidth": bandwidth, "device": device}
    images = resnet(depth=depth, image=image, classes=embedding, **common)  # type: ignore[arg-type]
    texts = transformer(
        layers=layers,
        hidden=hidden,
        heads=heads,
        sequence=sequence,
        vocabulary=vocabulary,
        parameters="none",
        **common,  # type: ignore[arg-type]
    )
    machine, width = roofline(dtype, flops, bandwidth, device), BYTES[dtype]
    x, output = Tensor("x", texts["stages"][-2]["output_size"]), Tensor("embedding", batch * embedding * width)
    project = Operation(
        "project", (x,), (output,), (x,), flops=2 * batch * hidden * embedding, weights=hidden * embedding * width
    )
    # The projection replaces the head of the language model and its loss.
    texts["stages"][-1] = stage(name="projection", operations=[project], device=machine)
    scores = FLOAT32 * batch * batch
    compared = 2 * output.size
    return _join(
        name=f"cross_modal_resnet{depth}_l{layers}_h{hidden}_b{batch}_{dtype}",
        description=(
            f"ResNet-{depth} for {batch} images of {image}x{image}, transformer of {layers} layers, hidden {hidden}, "
            f"for {batch} x {sequence} tokens, embeddings of {embedding}, {dtype}; published formulas, roofline times "
            f"at {machine.flops / 1e12:g} TFLOP/s and {machine.bandwidth / 1e12:g} TB/s"
        ),
        chains=[_branch(images, "images"), _branch(texts, "texts")],
        # One product of all pairs, and two for the gradients.
        loss={
            "time": machine.time(6 * batch * batch * embedding, 2 * compared + 4 * scores),
            "workspace": 2 * scores,
        },
    )


def _branch(chain: Document, name: str) -> Document:
    return {"name": name, "input_size": chain["input_size"], "stages": chain["stages"]}


def _join(*, name: str, description: str, chains: list[Document], loss: Document) -> Document:
    check_stages([each for chain in chains for each in chain["stages"]], 0, "make the batch or the image smaller")
    made = document(
        kind="join",
        name=name,
        description=description,
        units=SECONDS_AND_BYTES,
        chains=chains,
        loss=loss,
        input_gradient=False,
    )
    return made | {"schema": "remat.instance/3"}
