"""Fuzz schedules as read by `verify`, `show` and warm starts."""

import io
import json
from contextlib import suppress

import remat
from remat.documents import read_document
from remat.instance import digest
from remat.instance.lowering import lower, machine_of
from remat.schedule.document import KEYS
from remat.solving.problem_setup import make_problem
from remat.solving.verifying import examine
from remat.solving.warm_start import read_warm_start
from tests.fuzz.readers import seeds
from tests.fuzz.readers.judging import check_message
from tests.fuzz.readers.targets import Target

STEPS = (
    "run",
    "copy",
    "drop",
    "from",
    "to",
    "start",
    "on",
    "bytes",
    "after",
    "paired",
    "memory",
    "F0.0",
    "B1.0",
    "W0.1",
)
SOLVES = (
    ("chain", "keep-all", {}),
    ("chain", "revolve", {}),
    ("graph", "keep-all", {}),
    ("graph", "offload-greedy", {}),
    ("pipeline", "1f1b", {}),
    ("tensor", "1f1b", {}),
    ("stream", "auto", {"time_limit": 1}),
    ("samples", "auto", {"time_limit": 1}),
    ("adjoint", "store-all", {}),
)


def _instances():
    found = {
        "chain": seeds.chain(),
        "graph": seeds.graph(),
        "samples": seeds.samples(),
        "adjoint": {"schema": "remat.instance/3", "kind": "adjoint", "name": "adjoint", "steps": 6},
    }
    found |= {document["name"]: document for document in seeds.pipelines()[2:4]}
    return {name: remat.load(document) for name, document in {**found, "pipeline": seeds.pipeline()}.items()}


def schedule():
    """Return the target."""
    instances = _instances()
    documents = []
    for name, algorithm, more in SOLVES:
        with suppress(remat.RematError):
            result = remat.solve(instances[name], algorithm=algorithm, seed=1, **more)
            document = json.loads(json.dumps(result.to_dict()))
            documents.append(document)
            if "steps" in document:
                documents.append({key: document[key] for key in ("schema", "instance", "steps")})
                documents.append(
                    {"schema": document["schema"], "machine": machine_of(instances[name]).to_document()}
                    | {"instance": {"name": name}, "steps": [_bare(step) for step in document["steps"]]}
                )

    def read(data):
        document = read_document(io.BytesIO(data), "schedule")
        about = document.get("instance") if isinstance(document, dict) else None
        name = about.get("name") if isinstance(about, dict) else None
        instance = instances[name if isinstance(name, str) and name in instances else "chain"]
        examined = examine(instance, io.BytesIO(data), any_instance=True)
        # What `verify` prints of broken rules quotes the document, too.
        for violation in examined.report.violations:
            assert not (wrong := check_message(str(violation))), wrong
        for note in examined.report.notes:
            assert not (wrong := check_message(note)), wrong
        if examined.report.ok:
            again = examined.as_result().to_dict()
            json.dumps(again, allow_nan=False)
        if isinstance(about, dict):
            about["digest"] = digest(instance)
        if "machine" not in document:
            read_warm_start(make_problem(instance), document)

    names = (*STEPS, *(key for keys in KEYS.values() for key in keys), *instances)
    for instance in instances.values():
        graph = lower(instance, machine_of(instance))
        names += (*graph.tasks[:8], *graph.values[:8])
    return Target("schedule", read, seeds.encoded(*documents), names)


def _bare(step):
    return {key: value for key, value in step.items() if key != "start"}
