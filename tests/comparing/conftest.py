"""Fixtures for comparisons in real worker processes, with a plug-in of misbehaving algorithms."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager

import pytest

from remat.plugin import registry
from tests.cli.helpers import CHAIN

SOLVERS = '''
import contextlib, os, subprocess, sys, time
from remat.plugin.emit import run_in_order
from remat.plugin.proposal import ALL_SCHEDULES, Proposal
from remat.plugin.registry import Algorithm
from remat_algorithms.dag.keep_all import solve as keep_all


def good(problem, options, context):
    """Whatever is printed does not disturb the replies."""
    print("chatter on standard output", flush=True)
    return keep_all(problem, options, context)


def crash(problem, options, context):
    """Fail."""
    raise RuntimeError("something broke")


def die(problem, options, context):
    """Take the process along."""
    print("last words", file=sys.stderr, flush=True)
    os._exit(7)


def leave(problem, options, context):
    """End the program, as if all were well."""
    sys.exit(0)


def vanish(problem, options, context):
    """Take the process along without a word."""
    os._exit(9)


def spawn(problem, options, context):
    """Start another process, write down who is there, and wait for ever."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    with open(os.environ["NOTED"] + ".part", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.replace(file.name, os.environ["NOTED"])
    time.sleep(1000)


def flee(problem, options, context):
    """Start processes in sessions of their own, one of them an orphan, write down who is there, and wait or end."""
    sleep = [sys.executable, "-c", "import time; time.sleep(1000)"]
    child = subprocess.Popen(sleep, start_new_session=True)
    fork = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=-3).pid)"
    orphan = subprocess.run([sys.executable, "-c", fork, *sleep], stdout=-1, text=True, check=True)
    with open(os.environ["NOTED"] + ".part", "w") as file:
        file.write(f"{child.pid} {orphan.stdout.strip()}")
    os.replace(file.name, os.environ["NOTED"])
    time.sleep(1000)


def near(problem, options, context):
    """Have a schedule and a bound at once, and go on until somebody says that they will do."""
    order = keep_all(problem, options, context).steps.runs.tolist()
    steps = run_in_order(problem.graph, problem.machine, order[:1] + order)  # not the best: nothing is proved
    most = problem.no_recompute_time
    context.report(steps, makespan=most, bound=most * 0.9, scope=ALL_SCHEDULES)
    while not context.stopped:
        time.sleep(0.001)
    return Proposal(steps=steps, termination=context.termination)


def hang(problem, options, context):
    """Wait for ever in code that no exception interrupts."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


def hog(problem, options, context):
    """Fill the memory."""
    held = []
    while True:
        held.append(bytearray(b"x" * 2**24))


def lie(problem, options, context):
    """Claim what is not so."""
    proposal = keep_all(problem, options, context)
    return Proposal(steps=proposal.steps, makespan=1)


catalogue = [
    Algorithm(
        name=f"test-{name}",
        solver=f"misbehaving:{name}",
        kinds=("taskgraph",),
        summary="of a test",
        guarantee="heuristic",
    )
    for name in ("good", "crash", "die", "near", "hang", "hog", "lie", "spawn", "flee", "vanish", "leave")
]
'''


@pytest.fixture
def misbehaving(tmp_path):
    """Install algorithms that crash, die, hang, fill the memory and lie, here and in the workers."""
    with installed(tmp_path / "site"):
        yield


@contextmanager
def installed(site):
    """Install the misbehaving algorithms into a folder, and put that on the path."""
    metadata = site / "misbehaving-1.5.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text("[remat.algorithms]\nmisbehaving = misbehaving:catalogue\n")
    (metadata / "top_level.txt").write_text("misbehaving\n")
    (site / "misbehaving.py").write_text(SOLVERS)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(site))
        patched.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH")))))
        registry.refresh()
        yield
    registry.refresh()


@pytest.fixture
def folder(tmp_path):
    """A folder of small instances, one of them no instance, two with the same name and content."""
    root = tmp_path / "instances"
    documents = {
        "chains/tiny.json": CHAIN,
        "more/tiny.json": CHAIN,
        "trees/pair.json": {
            "schema": "remat.instance/1",
            "kind": "tree",
            "units": {"time": "unit", "memory": "unit"},
            "parent": [-1, 0, 0],
            "output_size": [1, 2, 3],
        },
    }
    for name, document in documents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
    (root / "chains" / "broken.json").write_text('{"schema": "remat.instance/1", "kind": ')
    return root
