"""Fuzz all readers with broken documents, one target per reader, against each reader's guarantees.

``python -m tests.fuzz.readers --seconds 600`` (``make fuzz-readers FUZZ_SECONDS=600``) runs the targets one after the
other, each in a separate process. With atheris installed, coverage guides the mutations; without it, they are drawn
from a seed. A reader raises `remat.RematError` or no exception. Its message is one line of at most 300
characters. A document of up to 60 kB takes at most 3 s of CPU time and 1 GiB of memory. A document that can be read
survives its next stage.
"""

LARGEST_DOCUMENT = 60_000
"""Bytes of a document."""

LONGEST_MESSAGE = 300
"""Characters of a message, as promised; not imported from what is tested."""

SECONDS = 3.0
"""CPU time of a document."""

MEMORY = 2**30
"""Bytes that a document may take beyond what the process has."""
