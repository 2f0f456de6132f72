"""Try sdist, wheel and each extra (or those of WORD…) from a clean clone: `make test-release`."""

import sys
import tomllib
from collections.abc import Sequence
from typing import Final

from bounds import run

BASE: Final = "base"
DEMO: Final = "demo"

CONTENTS: Final = ("check-wheel-contents", "--ignore", "W002,W009")
"""W002, W009: both tokenizers have the same settings; there are three packages by design."""

IMPORT: Final = """
import importlib
import re
import sys
from importlib import metadata

def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()

extra = sys.argv[1]
wanted = [line for line in metadata.requires("merge-nli") if f'extra == "{extra}"' in line]
modules = metadata.packages_distributions()
for requirement in wanted:
    name = plain(re.match(r"[\\w.-]+", requirement)[0])
    homes = [m for m, names in modules.items() if name in map(plain, names) and m.isidentifier()]
    assert homes, f"{requirement} brings no module"
    for home in homes:
        importlib.import_module(home)
print(f"{len(wanted)} requirements imported")
"""


def main(words: Sequence[str]) -> int:
    run.PLACE.mkdir(exist_ok=True)
    run.make_distributions()
    files = [str(file) for file in sorted(run.DIST.iterdir()) if file.name != ".gitignore"]
    good = True
    for check in (("twine", "check", "--strict", *files), (*CONTENTS, str(run.wheel()))):
        done = run.call("uv", "tool", "run", *check, cwd=run.CLONE)
        run.say(done.stdout + done.stderr)
        good = good and done.returncode == 0
    project = tomllib.loads((run.CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = [BASE, *project["optional-dependencies"], DEMO]
    if unknown := set(words) - set(known):
        run.say(f"expected names out of {', '.join(known)}, got {', '.join(sorted(unknown))}")
        return 2
    outcomes = [try_extra(name) for name in known if name in (words or known)]
    return 0 if good and all(outcomes) else 1


def try_extra(name: str) -> bool:
    extras = {BASE: [], DEMO: run.demo_extras()}.get(name, [name])
    place = run.PLACE / f"release-{name}"
    wheel = f"{run.wheel()}[{','.join(extras)}]" if extras else str(run.wheel())
    run.uv("venv", "--quiet", "--clear", "--python", sys.executable, str(place))
    run.uv("pip", "install", "--quiet", "-c", "constraints.txt", wheel, into=place)
    run.uv("pip", "check", into=place)
    commands, folder = place / "bin", run.new_folder(place.name)
    python, ours = str(commands / "python"), str(commands / "merge-nli")
    tried = {
        BASE: [[ours, "demo"]],  # whose message says what is missing
        DEMO: [[ours, "demo"], [ours, "check", "merge-nli"]],
    }.get(name, [[python, "-c", IMPORT, name]])
    codes = [2] if name == BASE else [0] * len(tried)
    good = True
    for command, code in zip([[ours, "--version"], *tried], [0, *codes], strict=True):
        done = run.call(*command, cwd=folder)
        if done.returncode != code:
            good = False
            run.say(f"{' '.join(command[:2])}: exit code {done.returncode}, expected {code}")
            run.say(done.stdout[-2000:] + done.stderr[-2000:])
    run.say(f"{name}: {'good' if good else 'failed'}")
    return good


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
