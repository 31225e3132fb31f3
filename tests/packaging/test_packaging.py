"""Files of a release: the README for an index, the conda recipe, the citation."""

import importlib.util
import re
import tomllib

from tests.places import ROOT

ABOUT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONDA = {"ortools": "ortools-python", "matplotlib": "matplotlib-base"}
"""Names that packages have in conda-forge."""


def hook():
    spec = importlib.util.spec_from_file_location("packaging_readme", ROOT / "packaging" / "readme.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_of_an_index_has_no_links_to_files():
    text = hook().readme()
    assert re.findall(r"\]\((?!https?://)[^)]*\)", text) == []
    assert "<!--" not in text
    assert "PyTorch (docs/how-to/pytorch.md)" in text
    assert "$ remat solve example:resnet50" in text


def test_with_a_home_links_lead_there():
    text = hook().for_an_index("![p](docs/p.svg) [a](docs/a.md#b) [c](https://x.org/) [d](#e)", "https://h.org/m/")
    expected = "![p](https://h.org/m/docs/p.svg) [a](https://h.org/m/docs/a.md#b) [c](https://x.org/) [d](#e)"
    assert text == expected


def test_the_conda_recipe_asks_for_the_same():
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text("utf-8")
    listed = dict(re.findall(r"^    - ([a-z-]+) ([><=.,0-9]+)$", recipe, re.MULTILINE))
    extras = [one for name in ("plot", "sparse", "dask") for one in ABOUT["optional-dependencies"][name]]
    for requirement in (*ABOUT["dependencies"], *extras):
        name, bound = re.fullmatch(r"([a-z-]+)(.*)", requirement).groups()
        assert listed.pop(CONDA.get(name, name)) == bound, requirement
    assert listed.pop("python") == ABOUT["requires-python"]
    assert set(listed) == {"hatchling"}
    assert f"remat = {ABOUT['scripts']['remat']}" in recipe


def test_the_citation_has_the_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\nversion: {ABOUT['version']}\n" in citation
