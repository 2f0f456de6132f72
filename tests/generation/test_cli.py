import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused, run
from helpers.processes import PATIENCE
from typer.main import get_command
from typer.testing import CliRunner

from generation.cli import app
from generation.config import Config
from merge_dataset.commands.command_line import INTERRUPTED, STOPPED, is_stop
from merge_dataset.executors.plan import Distribution, Resources
from merge_metric.models.readiness import Machine

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_help_groups_the_commands() -> None:
    shown = run(code=2).output
    headings = ("Make a dataset", "Run models", "Measure", "Judge and check", "Share")
    places = [shown.index(f"─ {heading} ─") for heading in headings]
    assert places == sorted(places)
    parts = [shown[a:b] for a, b in zip(places, [*places[1:], len(shown)], strict=True)]
    named = [set(re.findall(r"^│ ([a-z]+) ", part, flags=re.MULTILINE)) for part in parts]
    assert {"demo", "generate"} <= named[0]
    assert {"models", "predict", "baseline"} == named[1]
    assert {"score", "compare", "analyse", "report"} == named[2]
    assert {"show", "check", "annotate", "agreement"} == named[3]
    assert {"register", "export", "publish"} == named[4]
    assert "─ Commands ─" not in shown
    assert "Start with: merge-nli demo" in shown
    for arguments in (["-h"], ["generate", "-h"], ["publish", "dataset", "-h"], ["check", "-h"]):
        assert "Usage:" in run(*arguments).stdout
    assert run("--version").stdout == f"merge-nli {version('merge-nli')}\n"


def commands_of(group: Any) -> Iterator[Any]:
    for each in (group.get_command(None, name) for name in group.list_commands(None)):
        yield from commands_of(each) if hasattr(each, "commands") else [each]


@pytest.mark.parametrize("command", [*commands_of(get_command(app))], ids=lambda each: each.name)
def test_long_help_has_headings(command: Any) -> None:
    options = [each for each in command.params if each.param_type_name == "option"]
    without = [each.name for each in options if each.rich_help_panel is None]
    assert without == []
    body = inspect.getsource(inspect.unwrap(command.callback)).partition('"""')[0]
    assert body.count("\n") <= 36, "a line for each option"


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        ("show --json", "no such option: --json; did you mean --format json?"),
        ("score p.parquet -f csv", "-f; did you mean --format?"),
        ("score p.parquet -o s.txt", "-o; did you mean > FILE for what goes to stdout, --out for"),
        ("export csv --output x", "--output; did you mean > FILE for what goes to stdout, --out"),
        ("generate --force", "--force; did you mean --overwrite?"),
        ("predict --gpu", "--gpu; did you mean --device cuda?"),
        ("score --gpu", "score -h` says more"),
        ("predict --batch-size 8", "--batch-size; did you mean --batch-tokens?"),
        ("show --seed 3", "--seed; did you mean --rng-seed?"),
        ("build runs/mine", "(runs/mine); did you mean the value of an option, such as"),
        ("evaluate p.parquet", "no such command 'evaluate'; did you mean predict, then score?"),
        ("scor p.parquet", "no such command 'scor'. did you mean 'score'?"),
        ("score --datset x", "--datset (possible options: --dataset); `"),
        ("score p --n-bootstrap x", "invalid value for '--n-bootstrap': "),
        ("report p.parquet", "missing option '--dataset'; `"),
    ],
)
def test_what_people_type(command: str, meant: str) -> None:
    told = refused(*command.split())
    assert (told.startswith("error: "), told.count("\n")) == (True, 1)
    assert meant.lower() in told.lower()


def test_completion_in_the_shell() -> None:
    words = {"_MERGE_NLI_COMPLETE": "complete_bash", "COMP_CWORD": "2"}
    for typed, expected in (("score --n", "--n-bootstrap"), ("analyse --ct", "--ct")):
        environment = {**words, "COMP_WORDS": f"merge-nli {typed}"}
        done = CliRunner().invoke(app, env=environment, prog_name="merge-nli")
        assert done.stdout.split() == [expected]


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    told = refused("demo", "--run", tmp_path, "--no-register")
    assert "needs tomli_w; run: pip install 'merge-nli[generation,predict,report]'" in told


def test_failed_tasks_are_no_misuse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    words = ("suggest", "--recipe", "demo", "--limit", 2, "--run", tmp_path / "run")
    told = run(*words, "--executor", "slurm", code=1).stderr
    assert "error: executor slurm: expected the command sbatch, found none" in told


def test_where_suggest_works_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        "generation.phases.suggest.suggest", lambda config, **more: asked.update(more)
    )
    options = "--executor slurm --tasks 9 --cpus-per-task 2 --gpus-per-task 1 --memory-gb 8 --time "
    options += "1:00:00 --partition gpu --sbatch gres=gpu:a100:1"
    arguments = ["suggest", "--recipe", "demo", *options.split(), "--setup", "module load cuda"]
    CliRunner().invoke(app, arguments)
    wanted = Resources(cpus=2, gpus=1, memory_gb=8, time="1:00:00", partition="gpu",
                       sbatch={"gres": "gpu:a100:1"}, setup="module load cuda")  # fmt: skip
    distribution = Distribution(executor="slurm", tasks=9, workers=1, resources=wanted)
    assert asked == {"overwrite": False, "distribution": distribution}


def test_options_of_another_executor_are_refused() -> None:
    """Options of another executor would have no effect; KEY=VALUE needs a value, too."""
    for executor, options, message in (
        ("slurm", ["--ray-address", "auto"], "--ray-address: expected with the executor ray"),
        ("local", ["--time", "1:00:00"], "--time: expected with the executor slurm"),
        ("ray", ["--partition", "gpu"], "--partition: expected with the executor slurm"),
        ("slurm", ["--sbatch", "gres"], "--sbatch: expected KEY=VALUE, got 'gres'"),
    ):
        words = ("suggest", "--recipe", "demo", "--executor", executor, *options)
        assert message in refused(*words)


def test_masked_lms_that_do_not_fit_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine = Machine("cpu", 1_000_000_000)
    monkeypatch.setattr("merge_metric.models.readiness.this_machine", lambda device: machine)
    words = ("suggest", "--recipe", "demo", "--limit", 2, "--run", tmp_path / "run")
    told = refused(*words, "--executor", "local", "--workers", 2)
    wanted = "of memory as float32, each of 2 tasks at a time has 500.0 MB: take fewer --workers"
    assert wanted in told
    assert not (tmp_path / "run" / "problems.parquet").exists()


@pytest.mark.parametrize(("command", "module"), [("suggest", "suggest"), ("generate", "build")])
def test_what_is_asked_reaches_the_settings(
    command: str, module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Config] = []
    made = {"suggest": "generation.phases.suggest.suggest"}.get(
        command, "generation.phases.build.generate"
    )
    monkeypatch.setattr(made, lambda config, **_: asked.append(config))
    arguments = [command, "--recipe", "demo", "--run", str(tmp_path)]
    CliRunner().invoke(app, [*arguments, "--masking", "joint"])
    CliRunner().invoke(app, arguments)
    assert [c.masking for c in asked] == ["joint", "single"]


def test_ctrl_c_says_what_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("generation.phases.suggest.suggest", stop)
    told = run("suggest", "--recipe", "demo", "--run", tmp_path / "run", code=130).stderr
    assert "what was finished is kept; the same command goes on from there" in told


def test_pandas_is_imported_for_others_alone(tmp_path: Path) -> None:
    ids = '{"variant_id": "%s", "seed_id": "a", "label": 0, "prediction": 0}'
    (tmp_path / "a.jsonl").write_text("\n".join(ids % name for name in "abc"), encoding="utf-8")
    program = """if True:
        import sys
        from contextlib import suppress
        from generation.__main__ import main
        sys.argv = ["merge-nli", "score", "a.jsonl", "--format", "csv"]
        with suppress(SystemExit):
            main()
        print("pandas" in sys.modules)
        import pandas, pyarrow
        frame = pandas.DataFrame({"text": ["a", None], "number": [1.5, 2]})
        print(pyarrow.Table.from_pandas(frame).to_pandas().equals(frame))
        print(pyarrow.array(frame["text"]).to_pylist())"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-3:] == ["False", "True", "['a', None]"]


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer.main", "merge_metric.commands.score"])
def test_ctrl_c_while_a_command_is_imported(module: str) -> None:
    program = f"""if True:
        import os, signal, sys
        from generation.__main__ import main
        signal.signal(signal.SIGINT, signal.default_int_handler)
        class Stop:
            @staticmethod
            def find_spec(name, *_):
                if name == {module!r}:
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Stop)
        sys.argv = ["merge-nli", "score", "-h"]
        main()"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", f"\n{STOPPED}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "ends"),
    [
        ("in a destructor", INTERRUPTED),
        ("in a query", INTERRUPTED),
        ("in an import", INTERRUPTED),
        ("after", 0),
    ],
)
def test_ctrl_c_where_python_or_a_library_swallows_it(when: str, ends: int) -> None:
    program = f"""if True:
        import atexit, os, signal, sys, threading, time
        from generation.__main__ import main
        from generation.cli import app
        from merge_dataset.commands.command_line import user_errors
        from merge_dataset.engine import connect
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def press():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)
        class Destroyed:
            def __del__(self):
                press()
        @app.command("stay")
        @user_errors()
        def stay() -> None:
            if {when!r} == "in a destructor":
                Destroyed()
                time.sleep({PATIENCE})
            elif {when!r} == "in an import":
                try:
                    press()
                except KeyboardInterrupt as error:
                    said = "<built-in function import> returned a result with an exception set"
                    raise SystemError(said) from error
            elif {when!r} == "in a query":
                threading.Timer(0.2, press).start()
                with connect() as connection:
                    # Some seconds: on a busy machine DuckDB may notice it only at the end.
                    connection.sql("SELECT max(hash(a.i, b.i)) FROM range(10000000) a(i), "
                                   "range(100) b(i)").to_arrow_table()
            else:
                atexit.register(press)
        sys.argv = ["merge-nli", "stay"]
        main()"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    said = f"\n{STOPPED}\n" if ends else ""
    assert (done.returncode, done.stdout, done.stderr) == (ends, "", said)


def test_errors_that_lead_to_themselves_are_no_ctrl_c() -> None:
    error = OSError("round")
    error.__cause__ = error
    assert not is_stop(error)


def test_outputs_are_looked_at_before_the_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("generation.phases.build.generate", None)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.tex").touch()
    words = ("generate", "--recipe", "demo", "--run", tmp_path / "run")
    told = refused(*words, "--out", tmp_path / "thesis")
    assert "holds chapter.tex; name another folder" in told
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_trial_says_so(tmp_path: Path) -> None:
    data, out = tmp_path / "mine.jsonl", tmp_path / "data"
    pairs = [("A man rides a horse in a park.", "A man is on a horse.", "entailment"),
             ("Two dogs run on a beach.", "The dogs sleep.", "contradiction")]  # fmt: skip
    rows = [{"premise": p, "hypothesis": h, "label": label} for p, h, label in pairs]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    options = ("--source", "mine", "--data", data, "--run", tmp_path / "run", "--out", out)
    done = run("generate", "--recipe", "try", *options)
    assert "This dataset is a trial" in done.stdout
    assert "**This dataset is a trial" in (out / "README.md").read_text()
    answers, page = tmp_path / "majority.parquet", tmp_path / "report.md"
    run("baseline", "majority", "--dataset", out, "--out", answers)
    run("report", answers, "--dataset", out, "--n-bootstrap", 0, "--out", page)
    assert "This dataset is a trial" in page.read_text()
