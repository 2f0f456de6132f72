"""Conventions of the project that a program can check; CONTRIBUTING.md has all of them."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("generation", "merge_dataset", "merge_metric")


@cache
def modules(*folders: str) -> dict[Path, ast.Module]:
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


NO_OPENING = re.compile(r"(Of|What|Whatever|Which|Who|Whose|Those|Such|The same)\b")
"""Words with which no description begins, as it is a sentence or a separate noun phrase."""

ALIKE = {
    "config.py": "settings of a run",
    "register.py": "makes something load by its bare name",
    "registry.py": "what a room's members register with",
}
"""Files of the same name in several rooms, with the same meaning in each."""

LONGEST_MODULE, LONGEST_FUNCTION = 600, 60


def descriptions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of all docstrings, including those below constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            if text := ast.get_docstring(node):
                yield getattr(node, "lineno", 1), text
            for before, item in zip(node.body, node.body[1:], strict=False):
                if (
                    isinstance(before, ast.Assign | ast.AnnAssign)
                    and isinstance(item, ast.Expr)
                    and isinstance(item.value, ast.Constant)
                    and isinstance(item.value.value, str)
                ):
                    yield item.lineno, item.value.value


def test_descriptions_are_plain() -> None:
    """A first line is independent: "Yield block results", not "Of all blocks"."""
    result = [
        (str(path), *description)
        for path, tree in modules(*PACKAGES).items()
        for description in descriptions(tree)
    ]
    assert len(result) > 1000
    of_tests = [  # not parsed, which would take seconds
        (str(path.relative_to(ROOT)), number, line.strip().removeprefix('"""'))
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if line.lstrip().startswith('"""')
    ]
    assert len(of_tests) > 1000
    result += of_tests
    odd = [f"{path}:{line}: {text[:60]}" for path, line, text in result if NO_OPENING.match(text)]
    assert odd == []


def test_a_file_name_means_one_thing() -> None:
    """A name is in one room, and maybe also among the commands that run it."""
    places = defaultdict(list)
    for path in modules(*PACKAGES):
        if path.name not in {"__init__.py", *ALIKE} and "templates" not in path.parts:
            places[path.name, path.parent.name == "commands"].append(str(path.parent))
    again = {name: folders for (name, _), folders in places.items() if len(folders) > 1}
    assert set(again) <= {"publish.py"}, "one command for each package that publishes"


def test_nothing_is_too_long() -> None:
    for path, tree in modules(*PACKAGES).items():
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        assert lines <= LONGEST_MODULE, path
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                first = node.body[min(1, len(node.body) - 1)]  # after the docstring
                size = (node.end_lineno or 0) - first.lineno
                assert size <= LONGEST_FUNCTION, f"{path}: {node.name} has {size} lines"


def test_text_has_an_encoding() -> None:
    """Without one, it is the machine's own: on Windows often cp1252."""
    for path, tree in modules(*PACKAGES).items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = (
                call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
            )
            given = {word.arg for word in call.keywords}
            reads = isinstance(call.func, ast.Attribute) and name in ("read_text", "write_text")
            is_program = name in ("run", "Popen") and given & {"text", "universal_newlines"}
            if reads or is_program:
                assert "encoding" in given, f"{path}:{call.lineno}: {ast.unparse(call)}"
