"""Record joint graphs for the tests that have no PyTorch: `python -m tests.torch.record`."""

import json

import torch

import remat.torch
from tests import places
from tests.torch import models

RECORDED = (models.mlp, models.conv, models.shared, models.named, models.attention)
FOLDER = places.ROOT / "tests" / "data" / "torch"


def main():
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    for factory in RECORDED:
        module, args, kwargs = models.make(factory)
        document = remat.torch.capture(module, *args, **kwargs).recording.to_document()
        lines = [json.dumps(node, separators=(",", ":")) for node in document.pop("nodes")]
        head = json.dumps(document)[:-1]
        (FOLDER / f"{factory.__name__}.json").write_text(head + ', "nodes": [\n' + ",\n".join(lines) + "\n]}\n")


if __name__ == "__main__":
    main()
