"""Run and compare the blocks of pages: ``python -m tests.printed [PAGE ...] [--slow] [--write] [--jobs N]``."""

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import places
from tests.printed.running import QUICK, Tally, check


def pages() -> list[Path]:
    """Return the pages whose blocks are checked."""
    first = [places.ROOT / name for name in ("README.md", "CONTRIBUTING.md", "instances/README.md")]
    return [*first, *sorted(places.DOCS.rglob("*.md"))]


def main(arguments: list[str] | None = None) -> int:
    """Check pages; the exit code is 1 where any block differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.printed", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="all, if none is named")
    parser.add_argument("--slow", action="store_true", help="run the blocks marked slow, too")
    parser.add_argument("--write", action="store_true", help="put what is printed into the pages")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count() or 1), help="pages at a time")
    chosen = parser.parse_args(arguments)
    listed = [page.resolve() for page in chosen.pages] or pages()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(chosen.jobs) as pool:

        def run(page: Path) -> Tally:
            folder = Path(scratch, page.parent.name + "-" + page.stem)
            folder.mkdir()
            return check(page, folder, slow=chosen.slow, rewrite=chosen.write)

        tallies = list(pool.map(run, listed))
    for tally in tallies:
        _report(tally)
    wrong = sum(len(tally.wrong) for tally in tallies)
    skipped = sum(len(tally.skipped) for tally in tallies)
    print(
        f"{sum(tally.run for tally in tallies)} blocks run, {sum(tally.compared for tally in tallies)} outputs "
        f"compared, {skipped} skipped, {wrong} differences, {time.monotonic() - started:.0f} s"
    )
    return 1 if wrong else 0


def _report(tally: Tally) -> None:
    page = os.path.relpath(tally.page, places.ROOT)
    print(f"{page}: {tally.run} run, {tally.compared} compared")
    for line, reason in tally.skipped:
        print(f"  {page}:{line}: skipped: {reason}")
    for seconds, line in sorted(tally.slowest, reverse=True)[:3]:
        if seconds > QUICK:
            print(f"  {page}:{line}: {seconds:.0f} s")
    for line, why in tally.wrong:
        print(f"  {page}:{line}: DIFFERS\n" + "\n".join(f"      {part}" for part in why.rstrip().split("\n")))


if __name__ == "__main__":
    sys.exit(main())
