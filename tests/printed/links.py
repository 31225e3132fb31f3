"""Every link of a built site leads somewhere: ``python -m tests.printed.links FOLDER``."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

NOWHERE = "404.html"
"""The page for missing addresses; its links are relative to the site's root."""


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.anchors |= {name for key in ("id", "name") if (name := given.get(key))}
        self.links += [link for key in ("href", "src") if (link := given.get(key))]


def broken(folder: Path) -> list[str]:
    """Return the links of all pages that lead nowhere, each with its page; those to other sites are left alone."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html")) if path.name != NOWHERE}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{path.relative_to(folder.resolve())}: {link}: no such file")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{path.relative_to(folder.resolve())}: {link}: no such place")
    return found


def main(arguments: list[str]) -> int:
    """Print broken links; the exit code is 1 if there are any."""
    folder = Path(arguments[0])
    found = broken(folder)
    pages = sum(1 for _ in folder.rglob("*.html"))
    print("\n".join([*found, f"{pages} pages, {len(found)} broken links"]))
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
