"""Fuzz separate machine files, and clusters of pipelines."""

import io

import remat
from remat.documents import read_document
from remat.instance import load_machine
from remat.instance.lowering import lower, machine_of
from remat.solving.problem_setup import make_problem
from remat.units import Units
from tests.fuzz.readers import seeds
from tests.fuzz.readers.targets import Target, instances


def machine():
    """Return the target of `--machine` files."""
    plain = {"memories": [{"name": "device"}], "processors": [{"name": "p", "memory": "device", "count": 3}]}
    on_machine = remat.load(seeds.graph() | {"inputs": ["x"], "machine": None})

    def read(data):
        model = load_machine(io.BytesIO(data), Units())
        model.build().to_document()
        problem = make_problem(on_machine, machine=model)
        lower(on_machine, problem.machine)

    return Target("machine", read, seeds.encoded(seeds.machine(), plain), seeds.words())


def cluster():
    """Return the target of the key `cluster` of a pipeline."""
    hop = {
        "devices": [{"name": "gpu", "count": 4}],
        "levels": [{"devices": 2}, {"delay": 1}],
        "transfers": "rendezvous",
    }

    def read(data):
        document = read_document(io.BytesIO(data), "machine")
        loaded = remat.load(seeds.pipeline(units={}, cluster=document))
        instances.check(loaded)
        machine_of(loaded)

    return Target("cluster", read, seeds.encoded(seeds.cluster(), hop), seeds.words())
