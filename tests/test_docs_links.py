"""Links between the documents lead to pages and headings that exist, and each page belongs to one of four kinds."""

import os
import re
import subprocess

import pytest

from tests import places

KINDS = {"tutorials", "how-to", "reference", "explanation"}
PAGES = [
    *(places.ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "instances/README.md")),
    *sorted(places.DOCS.rglob("*.md")),
]


def prose(page):
    """Return the text of a page without its fenced blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def headings(page):
    """Return the anchors of the headings of a page, as GitHub and the site derive them."""
    lines = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r" +", "-", re.sub(r"[^\w\- ]", "", line.lower()).strip()) for line in lines}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(places.ROOT).as_posix())
def test_links_lead_to_pages_and_headings(page):
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)\s#]*)(#[^)]*)?\)", prose(page)):
        if "://" in target:
            continue
        found = page.parent / target if target else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor[1:] not in headings(found)):
            wrong.append(target + anchor)
    assert not wrong


def test_each_page_has_a_kind_and_a_place_in_the_navigation():
    navigation = (places.ROOT / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    for page in places.DOCS.rglob("*.md"):
        path = page.relative_to(places.DOCS).as_posix()
        assert path.split("/")[0] in KINDS, f"{path} is in none of the four folders"
        assert f": {path}\n" in navigation, f"{path} is missing in site/mkdocs.yml"


def test_pages_that_sources_name_exist():
    """Messages, docstrings and tests name pages by their path."""
    command = [
        "git",
        "grep",
        "-hoE",
        r"docs/[a-z_/.0-9-]+\.md",
        "--",
        "solver",
        "algorithms",
        "site",
        "CONTRIBUTING.md",
    ]
    done = subprocess.run(command, cwd=places.ROOT, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        pytest.skip("no git checkout")
    named = set(done.stdout.split())
    assert named
    assert [name for name in sorted(named) if not os.path.exists(places.ROOT / name)] == []
