import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from merge_dataset.commands.command_line import (
    Format,
    Given,
    OptionsOf,
    command,
    parse_assignments,
    write_result,
)
from merge_dataset.settings import (
    REQUIRED,
    check_settings,
    from_mapping,
    parse_pairs,
    setting,
    setting_of,
    to_mapping,
)

runner = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    width: int = setting(80, "Columns.", commands="draw print", panel="Paper", minimum=10)
    colour: Literal["none", "all"] | None = setting(None, "Which colours.", commands="draw")
    margin: float = setting(0.5, "Inches.", commands="draw", option="--edge")
    grid: bool = setting(False, "Draw lines.", commands="draw", option="--grid")
    frame: bool = setting(True, "Draw a frame.", commands="draw")
    fonts: tuple[str, ...] = setting(
        (), "A font; may be repeated.", commands="draw", option="--font", members=("serif", "mono")
    )
    names: Mapping[str, str] = setting(
        {},
        "Other names.",
        commands="draw",
        option="--name",
        parse=partial(parse_pairs, form="old=new"),
        repeated=True,
        omit_if_default=True,
    )
    figure: str = setting(REQUIRED, "On top.", commands="draw", metavar="TEXT")
    dpi: int | None = setting(None, "Only in files.", minimum=1, affects_output=False)
    kind: str = setting("plain", "Of the drawing.", written_first=True)

    __post_init__ = check_settings


def app_of(annotation: Any) -> typer.Typer:
    app = typer.Typer(rich_markup_mode="rich")

    def show(*, given: Given, output: Format = "json") -> None:
        write_result(output, given, *map(str, given))

    show.__annotations__["given"] = annotation
    app.command()(command()(show))
    return app


DRAW = app_of(Annotated[Given, OptionsOf(Drawing, "draw")])
DRAW_WITH_DEFAULTS = app_of(Annotated[Given, OptionsOf(Drawing, "draw", defaults=True)])


def given(app: typer.Typer, arguments: str) -> dict[str, Any]:
    result = runner.invoke(app, arguments.split())
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_options_give_what_was_said_and_no_more() -> None:
    assert given(DRAW, "--figure t") == {"figure": "t"}
    arguments = "--figure t --width 90 --colour all --edge 0 --grid --no-frame --font serif"
    assert given(DRAW, f"{arguments} --font mono --name a=b --name c=") == {
        "figure": "t", "width": 90, "colour": "all", "margin": 0.0, "grid": True, "frame": False,
        "fonts": ["serif", "mono"], "names": {"a": "b", "c": ""},
    }  # fmt: skip
    assert given(DRAW_WITH_DEFAULTS, "--figure t --width 90") == {
        "figure": "t", "width": 90, "margin": 0.5, "grid": False, "frame": True,
    }  # fmt: skip
    app = app_of(Annotated[Given, OptionsOf(Drawing, "print")])
    assert given(app, "--width 12") == {"width": 12}
    assert runner.invoke(app, ["--edge", "1"]).exit_code == 2
    assert runner.invoke(DRAW, ["--figure", "t", "--dpi", "100"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "Missing option '--figure'"),
        ("--figure t --width 9", "Invalid value for '--width'"),
        ("--figure t --colour some", "'some' is not one of 'none', 'all'"),
        ("--figure t --name ab", "error: --name: expected old=new, got 'ab'"),
        ("--figure t --no-grid", r"No such option:? '?--no-grid"),
    ],
)
def test_wrong_options(arguments: str, message: str) -> None:
    result = runner.invoke(DRAW, arguments.split())
    assert result.exit_code == 2
    assert re.search(message, result.stderr)


def help_of(app: typer.Typer) -> str:
    """Return the help in one line, with kinds of values as newer releases of Typer write them."""
    shown = " ".join(runner.invoke(app, ["--help"]).stdout.split()).replace(" <bool>", "")
    shown = re.sub(r"\[(\w+(\|\w+)+)\]", r"<\1>", shown)
    return shown.replace("INTEGER RANGE", "<int range>").replace(" FLOAT ", " <float> ")


def test_help_shows_what_is_declared() -> None:
    shown = help_of(DRAW)
    for text in ("Paper", "--width <int range> [x>=10] Columns.", "--edge <float> Inches.",
                 "--grid Draw lines.", "--frame --no-frame", "<none|all> Which colours.",
                 "--figure TEXT On top. [required]"):  # fmt: skip
        assert text in shown
    assert "Columns. [default" not in shown
    assert shown.index("─ Output") < shown.index("--edge") < shown.index("─ Paper")
    assert shown.index("─ Paper") < shown.index("--width")
    shown = help_of(DRAW_WITH_DEFAULTS)
    assert "Columns. [default: 80]" in shown
    assert "Inches. [default: 0.5]" in shown


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 9}, "width: expected at least 10, got 9"),
        ({"dpi": 0}, "dpi: expected at least 1 or nothing, got 0"),
        ({"width": "9"}, "width: expected a whole number, got '9'"),
        ({"colour": "non"}, r"colour: expected one of .*; did you mean 'none'\?"),
        ({"fonts": ("sans",)}, "fonts: expected one of .*, got 'sans'"),
        ({"fonts": (1,)}, "fonts: expected a list of strings"),
        ({"names": {"a": 1}}, "names: expected a table of strings"),
        ({"widht": 9}, r"settings: expected one of .* got 'widht'; did you mean 'width'\?"),
    ],
)
def test_wrong_values(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        from_mapping(Drawing, {"figure": "t", **values})


def test_settings_as_they_are_written() -> None:
    plain = Drawing(figure="t")
    assert list(to_mapping(plain)) == ["kind", "width", "colour", "margin", "grid", "frame",
                                       "fonts", "figure", "dpi"]  # fmt: skip
    assert "dpi" not in to_mapping(plain, affects_output=True)
    used = Drawing(figure="t", names={"a": "b"}, fonts=("mono",))
    assert to_mapping(used)["names"] == {"a": "b"}
    assert from_mapping(Drawing, {**to_mapping(used), "fonts": ["mono"]}) == used
    assert Drawing(figure="t").names is not Drawing(figure="t").names


def test_a_setting_of_another_class() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Poster:
        width: int = setting_of(Drawing, "width", commands="hang", help="Metres.")
        names: Mapping[str, str] = setting_of(Drawing, "names", omit_if_default=False)

        __post_init__ = check_settings

    assert to_mapping(Poster()) == {"width": 80, "names": {}}
    with pytest.raises(ValueError, match="width: expected at least 10, got 9"):
        Poster(width=9)
    app = app_of(Annotated[Given, OptionsOf(Poster, "hang")])
    shown = help_of(app)
    assert "--width <int range> [x>=10] Metres." in shown
    assert "--name" not in shown


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=3", 3), ("a = [1, 2]", [1, 2]), ("a=some words", "some words"), ("a='b'", "b")],
)
def test_assignments(text: str, value: Any) -> None:
    assert parse_assignments([text, "b=true"]) == {"a": value, "b": True}
