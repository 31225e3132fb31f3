"""Check a built site in a browser: internal links work, consoles stay silent, search finds pages.

``python -m tests.printed.site FOLDER`` opens it from files. Without a browser it only prints a message:
`tests.printed.links` follows the links in the files.
"""

import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from tests.browser import PROGRAM, Browser

WORDS = ("revolve", "minimum budget", "verifier")
"""The search terms."""

LINKS = "[...document.querySelectorAll('a[href], iframe[src]')].map(link => link.href || link.src)"

HITS = "[...document.querySelectorAll('.md-search-result__link')].map(link => link.href)"

TYPE = """(() => {
  const box = document.querySelector('.md-search__input');
  box.focus();
  box.value = %r;
  box.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}));
  box.dispatchEvent(new InputEvent('input', {bubbles: true}));
})()"""


def walked(browser, start):
    """Open every page that can be reached by links; return the pages, and what is wrong with them."""
    root = start.resolve().parent
    waiting, seen, wrong = [start.resolve().as_uri()], {}, []
    while waiting:
        address = waiting.pop()
        page, place = urldefrag(address)
        if page not in seen:
            path = Path(unquote(urlsplit(page).path))
            if not path.exists():
                wrong.append(f"{page}: no such page")
                seen[page] = set()
                continue
            browser.open(page)
            if path.suffix == ".html":
                browser.settle()
            wrong += [f"{path.relative_to(root)}: {error}" for error in browser.errors]
            seen[page] = set(browser.run("[...document.querySelectorAll('[id], [name]')].map(e => e.id || e.name)"))
            inside = [link for link in browser.run(LINKS) if link.startswith(root.as_uri())]
            waiting += [link for link in dict.fromkeys(inside) if urldefrag(link)[0] not in seen]
            seen[page, "links"] = inside
        if place and unquote(place) not in seen[page]:
            wrong.append(f"{page}: no place {place}")
    for key, links in list(seen.items()):
        if isinstance(key, tuple):
            for link in links:
                page, place = urldefrag(link)
                if place and unquote(place) not in seen.get(page, ()):
                    wrong.append(f"{key[0]}: {link}: no such place")
    return [key for key in seen if not isinstance(key, tuple)], sorted(set(wrong))


def found(browser, start, word):
    """Search for a word on the first page; return the addresses of the hits."""
    browser.open(start)
    browser.settle()
    browser.run(TYPE % word)
    return browser.wait(f"({HITS}).length && {HITS}", 30)


def main(arguments):
    """Walk, search, and print what is wrong; the exit code is 1 if anything is."""
    folder = Path(arguments[0])
    if PROGRAM is None:
        print("skipped: no Chromium here (apt install chromium); tests.printed.links has followed the links")
        return 0
    with Browser() as browser:
        pages, wrong = walked(browser, folder / "index.html")
        hits = {}
        for word in WORDS:
            try:
                hits[word] = found(browser, folder / "index.html", word)
            except RuntimeError as error:
                wrong.append(f"search for {word!r}: {error}")
        for word, listed in hits.items():
            page = urldefrag(listed[0])[0].partition("?")[0]
            if not Path(unquote(urlsplit(page).path)).exists():
                wrong.append(f"search for {word!r} leads to {listed[0]}")
    counts = ", ".join(f"{word!r} {len(listed)}" for word, listed in hits.items())
    print("\n".join([*wrong, f"{len(pages)} pages opened, {len(wrong)} things wrong; hits: {counts}"]))
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
