"""Pages of the site that are made from elsewhere: the README, the commands, the public names, pictures.

mkdocs calls these functions (`site/mkdocs.yml`, ``hooks``). Links of the README and its like are those of the
repository; here they lead to pages of the site, or are left as text where a file is no page.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "build" / "gallery"
PYTHON = ROOT / ".venv" / "bin" / "python"
"""The interpreter that has remat: the site's own environment has not."""

MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "instances/README.md": "instances.md",
}
"""Files of the repository that are pages of the site, by another name."""

CHAIN, LOOP = "solve example:resnet50 -b 1.4GB -a rotor", "solve example:heterogeneous -b 20"
GALLERY = (
    (
        "An interactive page of a schedule",
        "zoom, point at a step, search",
        "plan.html",
        "solve example:resnet50 -b 1GiB -a rotor",
    ),
    (
        "Memory of a chain over time",
        "bytes by kind, and the tasks that run",
        "chain.svg",
        "solve example:resnet50 -b 1GiB",
    ),
    ("Stages of a chain", "kept and recomputed stages", "stages.svg", f"{CHAIN} --view stages"),
    ("Values of a chain", "one band per value, with its size as height", "values.svg", f"{CHAIN} --view values"),
    ("Reversal of a time loop", "sweeps over a time loop of unequal steps", "reversal.svg", f"{LOOP} --view reversal"),
    (
        "Storage levels of a time loop",
        "checkpoints in three memories",
        "levels.svg",
        "solve example:three_levels --view stages",
    ),
    ("A time-memory curve", "knee and minimum budget", "curve.svg", "sweep example:gpt2s --points 12"),
    (
        "Devices of a pipeline",
        "1F1B on four devices",
        "pipeline.svg",
        "solve example:uniform_p4 -a 1f1b --view devices",
    ),
    ("Execution order of a tree", "the order of the nodes", "tree.svg", "solve example:random_n200 --view tree"),
)
"""Title, text, file and command of the pictures."""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures that are made."""
    made = {name: (ROOT / source).read_text("utf-8") for source, name in MOVED.items()}
    made |= {"reference/commands.md": _commands(), "gallery.md": _gallery()}
    made["reference/api.md"] = _api("remat", "This page lists what programs that call `remat` import.")
    made["reference/plugin.md"] = _api("remat.plugin", "This page lists what authors of algorithms import.")
    made |= {"reference/every-algorithm.md": _printed("-m", "tests.plugin.catalogue_page")}
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for picture in sorted([*PICTURES.glob("*.svg"), *PICTURES.glob("*.html")]):
        files.append(File.generated(config, f"images/gallery/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Leave out the comments that say how blocks are tested; lead links to pages of the site."""
    text = re.sub(r"^ *<!-- .* -->$", "", markdown, flags=re.MULTILINE)
    source = next((old for old, new in MOVED.items() if new == page.file.src_uri), f"docs/{page.file.src_uri}")
    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s#]*)(#[^)]*)?\)", lambda match: _link(match, source, files), text)


SHIM = re.compile(r"https://[^\"']*/iframe-worker/shim")
"""What the theme loads from elsewhere, so that search works in files; it is `site/worker.js` here."""


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Leave nothing that would be loaded from elsewhere."""
    return SHIM.sub(f"{'../' * page.url.count('/')}assets/worker.js", output)


def on_post_build(config: Any) -> None:
    """Put what pages load beside them; the page for what is not there, too."""
    site = Path(config["site_dir"])
    shutil.copy(ROOT / "site" / "worker.js", site / "assets" / "worker.js")
    nowhere = site / "404.html"
    nowhere.write_text(SHIM.sub("assets/worker.js", nowhere.read_text("utf-8")), "utf-8")


def _link(match: re.Match[str], source: str, files: Files) -> str:
    picture, label, target, anchor = match[1], match[2], match[3], match[4] or ""
    if not target or "://" in target:
        return match[0]
    path = os.path.normpath(os.path.join(os.path.dirname(source), target))
    name = MOVED.get(path, MOVED.get(f"{path}/README.md", path.removeprefix("docs/")))
    if files.get_file_from_path(name) is None:
        return label
    page = MOVED.get(source, source.removeprefix("docs/"))
    return f"{picture}[{label}]({os.path.relpath(name, os.path.dirname(page) or '.')}{anchor})"


def _remat(*arguments: str) -> str:
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    done = subprocess.run(
        [PYTHON, "-m", "remat", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def _printed(*arguments: str) -> str:
    done = subprocess.run([PYTHON, *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _commands() -> str:
    """Return a page of what ``--help`` says."""
    text = [
        "# Every command",
        "",
        "What `remat COMMAND --help` prints.",
        "",
        "```text",
        _remat("--help").rstrip(),
        "```",
        "",
    ]
    listed = re.findall(r"^  ([a-z]+)  ", _remat("--help").partition("Commands:")[2], re.MULTILINE)
    for command in listed:
        text += [f"## remat {command}", "", "```text", _remat(command, "--help").rstrip(), "```", ""]
    return "\n".join(text)


FURTHER = (
    "remat.building.common.Common",
    "remat.building.chain.ChainArguments",
    "remat.building.dag.DagArguments",
    "remat.building.pipeline.PipelineArguments",
    "remat.solving.decisions.values.Stay",
    "remat.solving.result.Answer",
    "remat.verifier.report.Peak",
    "remat.verifier.report.Profile",
)
"""What docstrings of public names refer to."""


def _api(module: str, about: str) -> str:
    """Return a page of the public names of a module; mkdocstrings fills it from their docstrings."""
    code = (
        f"import inspect, {module} as module, types, typing\n"
        "for name in module.__all__:\n"
        "    what = inspect.unwrap(getattr(module, name))\n"
        "    if inspect.isclass(what) or inspect.isfunction(what):\n"
        "        print(name, f'{what.__module__}.{what.__qualname__}')\n"
        "    elif isinstance(what, types.UnionType):\n"
        "        print(name, *(part.__name__ for part in typing.get_args(what)))\n"
    )
    listed = [line.split() for line in _printed("-c", code).splitlines()]
    names = [(line[0], line[1]) for line in listed if len(line) == 2]
    unions = [(line[0], line[1:]) for line in listed if len(line) > 2]
    text = [f"# {module}", "", about, "", "## Functions", ""]
    text += [f"::: {path}\n" for name, path in names if name[0].islower()]
    text += ["## Classes", ""]
    text += [f"::: {path}\n" for name, path in names if name[0].isupper()]
    text += [f"### {name}\n\nAny of {', '.join(f'`{part}`' for part in parts)}.\n" for name, parts in unions]
    if module == "remat":
        text += ["## Further arguments and parts of results", ""]
        text += [f"::: {path}\n" for path in FURTHER]
    return "\n".join(text)


FRAME = "width: 100%; height: 40rem; border: 1px solid #8884; border-radius: .3rem"


def _gallery() -> str:
    """Draw the pictures, and return their page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    text = ["# Gallery", "", "Each picture below the command that draws it.", ""]
    for title, about, name, command in GALLERY:
        if not (PICTURES / name).exists():
            _remat(*command.split(), "-q", "--plot", str(PICTURES / name))
        text += [f"## {title}", "", f"{about.capitalize()}.", "", f"    remat {command} --plot {name}", ""]
        opened = (
            f"[Open it](images/gallery/{name}).",
            f'<iframe src="images/gallery/{name}" title="{title}" style="{FRAME}"></iframe>',
        )
        shown = opened if name.endswith(".html") else (f"![{title}](images/gallery/{name})",)
        text += [line for part in shown for line in (part, "")]
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit("mkdocs runs this: make docs")
