"""A fault: one place of the source, and its faulty replacement."""

from dataclasses import dataclass

from tests import places


@dataclass(frozen=True)
class Fault:
    """A single fault.

    Attributes
    ----------
    file : str
        Below the root of the checkout.
    right, wrong : str
        The original text, which occurs exactly once, and its replacement.
    breaks : str
        What no longer holds.
    tests : tuple of str
        Files, or tests by their node id: the module's own.
    """

    file: str
    right: str
    wrong: str
    breaks: str
    tests: tuple[str, ...]

    @property
    def name(self):
        """The file, without what all files have in common, and what breaks."""
        short = self.file.removesuffix(".py").removeprefix("solver/remat/").removeprefix("algorithms/remat_algorithms/")
        return f"{short}: {self.breaks}"

    def applied_to(self, text):
        """Return the text of the file with the fault.

        Raises
        ------
        ValueError
            If the text to replace does not occur exactly once.
        """
        found = text.count(self.right)
        if found != 1:
            raise ValueError(f"stale fault ({self.name}): its text occurs {found} times in {self.file}:\n{self.right}")
        return text.replace(self.right, self.wrong)


def faults_of(folder, tests, listed):
    """Make faults of (file, right, wrong, breaks) or (.., tests) rows; files below a folder, the tests of all."""
    return [
        Fault(f"{folder}/{file}", right, wrong, breaks, *(more or (tests,)))
        for file, right, wrong, breaks, *more in listed
    ]


def text_of(file):
    """Return a file's text as it stands in the checkout."""
    return (places.ROOT / file).read_text(encoding="utf-8")
