"""Links of a site that lead nowhere are found."""

from tests.printed.links import broken, main

PAGE = """<a href="b.html">b</a> <a href="b.html#there">there</a> <a href="#here">here</a> <h1 id="here">Here</h1>
<a href="https://example.org/x">elsewhere</a> <img src="c%20d.png">"""


def test_broken_links_are_found(tmp_path, capsys):
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.html").write_text('<a name="there"></a><a href="a.html">a</a>')
    (tmp_path / "c d.png").write_bytes(b"")
    (tmp_path / "404.html").write_text('<a href="/nowhere.html">x</a>')
    assert broken(tmp_path) == []
    assert main([str(tmp_path)]) == 0
    (tmp_path / "b.html").write_text('<a href="gone.html">a</a><a href="a.html#gone">a</a>')
    assert broken(tmp_path) == [
        "a.html: b.html#there: no such place",
        "b.html: gone.html: no such file",
        "b.html: a.html#gone: no such place",
    ]
    assert main([str(tmp_path)]) == 1
    assert "3 pages, 3 broken links" in capsys.readouterr().out
