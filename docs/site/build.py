"""Build the site of the pages and of the Python API: `make docs`.

The pages stay where they are. Copies of them and of their pictures go into `build/site-pages`,
with a page of the API per package, and mkdocs makes `build/site` of these. It loads nothing from
elsewhere, so it can be read without a network, also without a server. A broken link is an error.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = ROOT / "build" / "site-pages"
SITE: Final = ROOT / "build" / "site"
PACKAGES: Final = ("merge_metric", "merge_dataset", "generation")

_LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_PICTURE: Final = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img src="([^"]+)"([^>]*)>\s*</picture>'
)
_REASONS: Final = re.compile(r"<!-- table of (\S+) (\w+) -->")
_OUTSIDE: Final = re.compile(
    r"<(?:script|img|source|iframe)\b[^>]*\b(?:src|srcset)=[\"']?(?:https?:)?//"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|icon))[^>]*\bhref=[\"']?(?:https?:)?//"
)


def pages() -> Iterator[Path]:
    """Yield the pages of the site."""
    for page in sorted(ROOT.rglob("*.md")):
        parts = page.relative_to(ROOT).parts
        if parts[0] == "build" or parts[0].startswith("."):
            continue
        if parts[0] in (*PACKAGES, "docs", "tests") or len(parts) == 1:
            yield page


def for_site(text: str, page: Path) -> str:
    """Leave of links to files that are no pages, such as code, their text.

    Pictures go by the site's own switch between light and dark, not by the browser's setting. Where
    a page names a list of reasons, `<!-- table of FILE CLASS -->`, its table stands.
    """

    def table(found: re.Match[str]) -> str:
        classes = ast.parse((page.parent / found[1]).read_text(encoding="utf-8")).body
        (listed,) = (c for c in classes if isinstance(c, ast.ClassDef) and c.name == found[2])
        entries = [entry.value.elts for entry in listed.body if isinstance(entry, ast.Assign)]
        rows = [[ast.literal_eval(text) for text in texts[:3]] for texts in entries]
        lines = [f"| `{name}` | {step} | {sentence} |" for name, step, sentence in rows]
        return "\n".join(["| reason | step | what is dropped |", "|---|---|---|", *lines])

    def follow(found: re.Match[str]) -> str:
        label, target = found.groups()
        name = target.partition("#")[0]
        is_page = not name or "://" in name or (page.parent / name).suffix in {".md", ".svg"}
        return found[0] if is_page else str(label)

    both = r'<img src="\2#only-light"\3>\n<img src="\1#only-dark"\3>'
    return _PICTURE.sub(both, _REASONS.sub(table, _LINK.sub(follow, text)))


def api_page(package: str) -> str:
    """Write the page on a package: its docstring, then its public names."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (
        ast.literal_eval(item.value)
        for item in tree.body
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "__all__"
    )
    options = {"show_root_heading": False, "members": names}
    return f"# {package}\n\n::: {package}\n    options: {json.dumps(options)}\n"


def build() -> int:
    """Copy the pages, run mkdocs on them, and look for what would be loaded from elsewhere."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in pages():
        copy = PAGES / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(for_site(page.read_text(encoding="utf-8"), page), encoding="utf-8")
    for picture in (ROOT / "docs").glob("*"):
        if picture.suffix in {".svg", ".webp"}:
            shutil.copy(picture, PAGES / "docs")
    (PAGES / "assets").mkdir()
    for asset in ("iframe-worker.js", "site.css"):
        shutil.copy(Path(__file__).with_name(asset), PAGES / "assets")
    (PAGES / "api").mkdir()
    for package in PACKAGES:
        (PAGES / "api" / f"{package}.md").write_text(api_page(package), encoding="utf-8")
    config = Path(__file__).with_name("mkdocs.yml")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    if code := subprocess.run(command, env=quiet, check=False).returncode:
        return code
    outside = [
        f"{file.relative_to(SITE)}: {result[0]}"
        for file in SITE.rglob("*.html")
        if (result := _OUTSIDE.search(file.read_text(encoding="utf-8")))
    ]
    sys.stdout.write("\n".join([*outside, f"{SITE / 'index.html'}: open it in a browser\n"]))
    return int(bool(outside))


if __name__ == "__main__":
    sys.exit(build())
