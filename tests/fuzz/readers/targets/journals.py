"""Fuzz journals of comparisons, and the figures drawn from them."""

import json
import os
import tempfile

from remat.comparing.cells import Answer, Cell, Job, Outcome
from remat.comparing.comparison import Comparison
from remat.comparing.journal import SCHEMA_1, Journal
from remat.comparing.report import tables
from tests.fuzz.readers.targets import Target

ANSWERS = (
    Answer(outcome=Outcome.FEASIBLE, makespan=41, peak_memory={"memory": 7}, steps=3, seconds=0.5, lower_bound=40),
    Answer(outcome=Outcome.CRASHED, detail="died — ünïcode"),
    Answer(outcome=Outcome.OPTIMAL, makespan=0.125, lower_bound=0.125, overhead=0.0, no_recompute_time=0.1),
    Answer(outcome=Outcome.INFEASIBLE, least_budget=7, least_needed=8, scope="all schedules", floor=3),
)


def journal():
    """Return the target."""
    # Every journal goes to the disk when it is closed: better one in memory.
    folder = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    path = os.path.join(folder, "journal.jsonl")
    with Journal(path) as opened:
        for number, answer in enumerate(ANSWERS):
            opened.add(f"key{number}", answer, {"instance": "x"})
    with open(path, "rb") as file:
        signed = file.read()
    lines = [{"key": f"key{number}", "answer": answer.to_dict()} for number, answer in enumerate(ANSWERS)]
    # Of the first schema, whose lines have no checksums: those that a mutation changes are read, too.
    unsigned = b'{"schema":"%b"}\n' % SCHEMA_1.encode() + b"".join(json.dumps(line).encode() + b"\n" for line in lines)

    jobs = [_job(number) for number in range(4)]

    def compare(answers):
        cells = [Cell(job=jobs[number % 4], answer=answer) for number, answer in enumerate(answers)]
        comparison = Comparison(cells=tuple(cells), notes=())
        repr(comparison)
        tables.to_csv(comparison)
        tables.to_markdown(comparison)
        json.loads(tables.to_json(comparison))

    def read(data):
        with open(path, "wb") as file:
            file.write(data)
        with Journal(path) as opened:
            answers = list(opened.answers.items())
            opened.add("another", ANSWERS[0], {})
        with Journal(path) as opened:
            assert len(opened.answers) >= len(answers), "answers are lost"
        for _, answer in answers:
            json.dumps(answer.to_dict())
        compare(tuple(answer for _, answer in answers))

    words = (*Answer.__slots__, *Outcome, "key", "answer", "schema", "sum")
    return Target("journal", read, (signed, unsigned, b""), words, tree=False)


def _job(number):
    units = {"time_unit": "ms", "memory_unit": "B"}
    about = {"instance": f"x{number // 2}", "source": "x.json", "family": "", "digest": "sha256:0", "kind": "chain"}
    asked = {
        "algorithm": f"a{number % 2}",
        "version": "1",
        "options": {},
        "budget": "8GB",
        "capacity": 8,
        "seed": number,
    }
    return Job(key=f"key{number}", **units, **about, **asked)
