"""One target in this process: mutate, read, judge, until time or documents are over."""

import json
import os
import random
import re
import sys
import time
from contextlib import suppress

from tests.fuzz.readers import LARGEST_DOCUMENT
from tests.fuzz.readers.mutation import mutated
from tests.fuzz.readers.reduction import reduced
from tests.fuzz.readers.targets import target

KEPT = 500
"""Documents that are mutated again: seeds, and those that were read although they are mutations."""


NOTED = 1000
"""Documents after which the figures of a run are written down: the process may be ended."""


class Run:
    """Counts documents, and writes the first document of each finding, reduced, to a file.

    Parameters
    ----------
    name : str
        Of the target.
    seconds : float or None
    documents : int or None
        Limits of the run; None: no limit.
    folder : Path
        Where findings are written.
    """

    def __init__(self, name, *, seconds, documents, folder):
        self.target = target(name)
        from tests.fuzz.readers.judging import Judge  # imports remat, which may have to be instrumented

        self.judge = Judge(self.target)
        self.seconds, self.most, self.folder = seconds, documents, folder
        self.began = time.monotonic()
        self.findings = {}
        self.corpus = list(self.target.seeds)
        folder.mkdir(parents=True, exist_ok=True)
        self._current = os.open(folder / f"{name}.current", os.O_WRONLY | os.O_CREAT)

    @property
    def over(self):
        """Whether the run has had its time, or its documents."""
        late = self.seconds is not None and time.monotonic() - self.began > self.seconds
        return late or (self.most is not None and self.judge.documents >= self.most)

    def look(self, data):
        """Read one document; return whether it was read without an error."""
        data = data[:LARGEST_DOCUMENT]
        # Save the document first, in case the process dies.
        os.pwrite(self._current, data, 0)
        os.ftruncate(self._current, len(data))
        refused = self.judge.refused
        found = self.judge(data)
        if self.judge.documents % NOTED == 0:
            (self.folder / f"{self.target.name}.figures").write_text(json.dumps(self.report()), encoding="utf-8")
        if found is not None:
            self._note(data, found)
        return found is None and self.judge.refused == refused

    def keep(self, data, source):
        """Mutate a document later, too; it takes the place of another one that is no seed."""
        if len(self.corpus) < KEPT:
            self.corpus.append(data)
        elif len(self.target.seeds) < KEPT:
            self.corpus[source.randrange(len(self.target.seeds), KEPT)] = data

    def _note(self, data, found):
        self.findings[found.cause] = self.findings.get(found.cause, 0) + 1
        if self.findings[found.cause] > 1:
            return
        documents, refused = self.judge.documents, self.judge.refused
        small = reduced(data, self.judge, found.cause)
        self.judge.documents, self.judge.refused = documents, refused
        path = self.folder / (self.target.name + "-" + re.sub(r"[^\w-]+", "-", found.cause)[:100])
        path.write_bytes(small)
        print(f"{self.target.name}: {found.cause}: {found.text[:300]}\n  {path}: {small[:200]!r}", flush=True)

    def report(self):
        """Return the figures of the run."""
        seconds = time.monotonic() - self.began
        return {
            "target": self.target.name,
            "documents": self.judge.documents,
            "refused": self.judge.refused,
            "seconds": round(seconds, 1),
            "findings": self.findings,
        }


def run_plainly(run, seed):
    """Draw mutations from a seed; the same number of documents is the same documents."""
    source = random.Random(f"{run.target.name} {seed}")
    for data in run.target.seeds:
        run.look(data)
    while not run.over:
        data = mutated(source.choice(run.corpus), source, run.target.words, tree=run.target.tree)
        if run.look(data):
            run.keep(data, source)
    return run.report()


def run_guided(run, seed, corpus):
    """Let atheris choose the documents that are mutated; ends the process."""
    import atheris

    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(run.target.seeds):
        (corpus / f"seed{number}").write_bytes(data)

    def mutate(data, most, number):
        # What opens new paths is mostly refused: half of the documents come from those that are read.
        source = random.Random(number)
        match source.randrange(4):
            case 0:
                return atheris.Mutate(data, most)
            case 1 | 2:
                data = source.choice(run.corpus)
        return mutated(data, source, run.target.words, tree=run.target.tree)[:most]

    kept = random.Random(seed)

    def one(data):
        if run.look(data):
            run.keep(data, kept)
        if run.over:
            print(json.dumps(run.report()), flush=True)
            os._exit(0)

    flags = [f"-max_len={LARGEST_DOCUMENT}", f"-seed={seed + 1}", "-rss_limit_mb=0", "-timeout=60", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *flags, "-print_final_stats=0", str(corpus)], one, custom_mutator=mutate)
    atheris.Fuzz()


def instrumented(name):
    """Import what a target needs so that atheris sees which branches are taken; whether atheris is installed."""
    try:
        import atheris
    except ImportError:
        return False
    with atheris.instrument_imports(include=["remat"], enable_loader_override=False):
        known = target(name)
        for data in known.seeds:  # some modules are imported when they are first used; the run judges
            with suppress(Exception):
                known.read(data)
    return True
