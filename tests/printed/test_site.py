"""The walk over a built site finds what is wrong with it."""

from tests.browser import Browser, needs_browser
from tests.printed.site import walked


@needs_browser
def test_what_a_walk_finds(tmp_path):
    (tmp_path / "index.html").write_text(
        "<h1 id=top>one</h1><a href='two.html#there'>1</a><a href='two.html#nowhere'>2</a><a href='three.html'>3</a>"
        "<a href='https://elsewhere.example/'>4</a>"
    )
    (tmp_path / "two.html").write_text(
        "<h2 id=there>two</h2><script>undefinedThing()</script><a href='index.html'>1</a><img src='none.png'>"
    )
    with Browser() as browser:
        pages, wrong = walked(browser, tmp_path / "index.html")
    assert sorted(page.rpartition("/")[2] for page in pages) == ["index.html", "three.html", "two.html"]
    told = "\n".join(wrong)
    assert "three.html: no such page" in told
    assert "two.html#nowhere: no such place" in told
    assert "undefinedThing is not defined" in told
    assert "none.png" in told
    assert "#there" not in told
    assert "elsewhere" not in told
