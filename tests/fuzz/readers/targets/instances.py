"""Instances: load, digest, the document and back, the task graph of small ones."""

import io
import json

import remat
from remat.instance import digest, instance_document
from remat.instance.lowering import lower, machine_of
from tests.fuzz.readers import seeds
from tests.fuzz.readers.targets import Target

SMALL = 2000
"""Stages, steps, tasks or nodes up to which an instance is lowered."""


def instance():
    """Return the target."""
    return Target("instance", read, seeds.instances(), seeds.words())


def read(data):
    """Read an instance."""
    check(remat.load(io.BytesIO(data)))


def check(loaded):
    """Run the usual operations on an instance."""
    first = digest(loaded)
    document = instance_document(loaded)
    again = remat.load(json.loads(json.dumps(document, allow_nan=False)))
    assert digest(again) == first, "another digest after a round trip"
    repr(loaded)
    machine = machine_of(loaded)
    machine.to_document()
    if size_of(loaded) <= SMALL:
        lower(loaded, machine)


def size_of(loaded):
    """Return about how many tasks an instance has."""
    if loaded.kind == "pipeline":
        return loaded.length * loaded.micro_batches * 3
    if loaded.kind == "dag":
        return len(loaded.tasks) * (loaded.samples_seen or 1)
    return (loaded.length or 0) * (4 if loaded.is_chain else 1)
