"""CSV schedules with the times of their stages, and sparse matrices."""

import io
import json
import os
import tempfile

import remat
from remat.bridges.matrix_market.importing import import_matrix
from remat.bridges.pipelining.actions import Kind, read_csv
from remat.bridges.pipelining.importing import import_csv
from remat.generate.sparse.ordering import ORDERINGS
from remat.solving.verifying import examine
from tests.fuzz.readers import seeds
from tests.fuzz.readers.targets import Target, instances

WHOLE = b"0F0,0F1,,0B0,0B1\n,1F0,1B0,1F1,1B1\n"
HALVES = b"0F0,0F1,0I0,0W0,0I1,0W1\n,1F0,1I0,1W0,1F1,1I1,1W1\n"
ACTIONS = b"0UNSHARD,0F0,0SEND_F0,,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,(1F0;1B0)OVERLAP_F_B,1SEND_B0\n"
LOOPED = b"0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n"
TIMES = {"stages": {"F": "1ms", "I": "1ms", "W": "1ms", "saved_size": "1GB"}, "hop": {"delay": "5us"}}

SMALL = 1000
"""Operations up to which an imported schedule is judged."""


def csv_orders():
    """Return the target of CSV schedules."""

    def read(data):
        rows = read_csv(io.BytesIO(data))
        imported = import_csv(io.BytesIO(data), TIMES)
        if sum(map(len, rows)) <= SMALL:
            examine(imported.instance, imported.schedule)

    return Target("csv-orders", read, (WHOLE, HALVES, ACTIONS, LOOPED), tuple(Kind), tree=False)


def stage_times():
    """Return the target of the times of stages."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "times.json")

    def read(data):
        with open(path, "wb") as file:
            file.write(data)
        imported = import_csv(io.BytesIO(HALVES), path)
        examine(imported.instance, imported.schedule)

    one = {"F": 1, "I": 2.5, "W": 1, "saved_size": "1GB", "output_size": 3, "parameter_size": 4}
    listed = {"stages": [one, one], "units": {"time": "ms"}, "transfers": "rendezvous", "hop": {"bandwidth": "1GB/s"}}
    words = ("stages", "hop", "transfers", "units", "F", "B", "I", "W", "F&B", "latency", *seeds.words())
    return Target("stage-times", read, seeds.encoded(TIMES, listed), words)


def matrix_market():
    """Return the target of sparse matrices."""
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "matrix.mtx")
    head = b"%%MatrixMarket matrix coordinate "
    arrow = b"".join(b"%d %d 1.5\n" % pair for k in range(2, 9) for pair in ((k, 1), (k, k), (k, k - 1)))
    seeds = (
        head + b"real general\n% a comment\n8 8 21\n" + arrow,
        head + b"pattern symmetric\n3 3 4\n1 1\n2 1\n3 2\n3 3\n",
        head + b"integer skew-symmetric\n3 3 2\n2 1 -4\n3 1 9\n",
        b"%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n",
    )
    words = ("%%MatrixMarket", "matrix", "coordinate", "array", "real", "complex", "pattern", "hermitian", "vector")

    def read(data):
        with open(path, "wb") as file:
            file.write(data)
        ordering = list(ORDERINGS)[len(data) % len(ORDERINGS)]
        document = import_matrix(path, ordering=ordering, relax=len(data) % 3, entry_bytes=8)
        instances.check(remat.load(json.loads(json.dumps(document))))

    return Target("matrix-market", read, seeds, words, tree=False)
