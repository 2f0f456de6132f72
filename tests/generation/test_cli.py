import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused, run
from helpers.hub.commands import TOKEN, Console, console, serve
from helpers.hub.layouts import PAPER_MLMS, PAPER_MODELS
from helpers.paraphrasing import write_problems
from helpers.processes import PATIENCE
from helpers.tiny_classifiers import tiny_classifier
from helpers.tiny_models import tiny_model
from typer.main import get_command
from typer.testing import CliRunner

from generation.cli import app
from merge_dataset.commands.command_line import INTERRUPTED, STOPPED, is_stop
from merge_dataset.executors import Distribution
from merge_metric.models.readiness import Machine, read_presets

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
    assert {"show", "check", "annotate", "judge", "agreement"} == named[3]
    assert {"register", "export", "publish"} == named[4]
    assert "─ Commands ─" not in shown
    assert "Start with: merge-nli demo" in shown
    for arguments in (["-h"], ["generate", "-h"], ["publish", "dataset", "-h"], ["check", "-h"]):
        assert "Usage:" in run(*arguments).stdout
    assert run("--version").stdout == f"merge-nli {version('merge-nli')}\n"


@pytest.mark.parametrize("name", ["generate", "suggest", "build", "paraphrase", "score"])
def test_help_is_short_and_help_all_is_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    group: Any = get_command(app)
    options = [p for p in group.get_command(None, name).params if p.opts[0].startswith("--")]
    for flag, declared in (("-h", [o for o in options if not o.hidden]), ("--help-all", options)):
        lines = run(name, flag).stdout.splitlines()
        shown = set(re.findall(r"^│ [* ]*(--[a-z-]+)", "\n".join(lines), flags=re.MULTILINE))
        assert shown - {"--help", "--help-all"} == {o.opts[0] for o in declared} - {"--help-all"}
        assert any("--help-all" in line for line in lines)
        if name in ("generate", "paraphrase") and flag == "-h":
            assert len(lines) <= 60
        if (name, flag) == ("generate", "-h"):
            looked_for = "source data label-column recipe run out mlm lm word-classes subsamples "
            looked_for += "min-replacements min-quality class-quality device workers overwrite"
            assert {f"--{option}" for option in looked_for.split()} <= shown


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_no_room_for_what_is_shown(flag: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    with full.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "generation", flag], stdout=out, stderr=subprocess.PIPE,
            encoding="utf-8", timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert re.fullmatch(r"error: the output: no space left on device; [^\n]+\n", done.stderr)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tomli_w", None)
    told = refused("demo", "--run", tmp_path, "--no-register")
    assert "needs tomli_w; run: pip install 'merge-nli[generation,predict,report]'" in told


def test_where_suggest_works_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(
        "generation.phases.suggest.suggest", lambda config, **more: asked.update(more)
    )
    options = "--executor slurm --tasks 9 --cpus-per-task 2 --gpus-per-task 1 --memory-gb 8 --time "
    options += "1:00:00 --partition gpu --sbatch gres=gpu:a100:1"
    arguments = ["suggest", "--recipe", "demo", *options.split(), "--setup", "module load cuda"]
    CliRunner().invoke(app, arguments)
    distribution = Distribution(
        executor="slurm", tasks=9, cpus=2, gpus=1, memory_gb=8, time="1:00:00", partition="gpu",
        sbatch={"gres": "gpu:a100:1"}, setup="module load cuda",
    )  # fmt: skip
    assert asked == {"overwrite": False, "distribution": distribution}


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


@pytest.mark.parametrize(
    ("end", "code", "told"),
    [("lambda: print('said')", 0, ""), ("lambda: sys.exit(2)", 2, ""),
     ("lambda: sys.exit('why')", 1, "why\n")],
)  # fmt: skip
def test_a_process_ends_with_the_code_once_all_is_said_and_done(
    end: str, code: int, told: str
) -> None:
    program = f"""if True:
        import atexit, sys, threading, time
        from generation import __main__ as program
        def think():
            time.sleep(0.5)
            print("thought")
        atexit.register(print, "done", end="")
        threading.Thread(target=think).start()
        program.main = {end}
        program.run()"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (code, told)
    assert done.stdout == ("" if code else "said\n") + "thought\ndone"


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
        from merge_dataset.commands.command_line import command
        from merge_dataset.engine import connect
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def press():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0)
        @app.command("stay")
        @command()
        def stay() -> None:
            if {when!r} == "in an import":
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
    message = f"\n{STOPPED}\n" if ends else ""
    assert (done.returncode, done.stdout, done.stderr) == (ends, "", message)


def test_errors_that_lead_to_themselves_are_no_ctrl_c() -> None:
    error = OSError("round")
    error.__cause__ = error
    assert not is_stop(error)


NAMELESS = ("LABEL_0", "LABEL_1", "LABEL_2")


def models(*words: object, code: int = 0) -> list[dict[str, Any]]:
    done = run("models", *words, "--device", "cpu", "--format", "json", code=code)
    return list(json.loads(done.stdout)["rows"])


def test_what_lies_in_folders() -> None:
    named, nameless = tiny_classifier("bart"), tiny_classifier("xlnet", NAMELESS)
    result = models(named, tiny_model("roberta"), "--recipe", "demo")
    assert [item["kind"] for item in result] == ["sequence classifier", "masked LM", "masked LM"]
    assert [item["labels"] for item in result] == ["e,n,c (id2label)", None, None]
    assert {(item["weights"], item["tokenizer"]) for item in result} == {
        ("safetensors", "tokenizer.json")
    }
    assert result[2]["name"] == "bert-tiny-mlm"
    for item in result:
        assert (item["download_bytes"], item["loading"], item["wrong"]) == (0, "", "")
        assert item["memory_bytes"] == 600_000_000 + 2 * 4 * item["parameters"]
    for order, told in (("c,e,n", "c,e,n (given)"), ("seeds", "from the seeds")):
        (item,) = models(nameless, "--label-order", order)
        assert (item["labels"], bool(item["loading"])) == (told, order == "seeds")


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Machine("cpu", 500_000_000)
    monkeypatch.setattr("merge_metric.models.readiness.this_machine", lambda device: small)
    (result,) = models(tiny_model("roberta"), code=1)
    assert result["wrong"] == (
        "needs about 600.4 MB of memory as float32, cpu has 500.0 MB: take another machine, or "
        "--dtype bfloat16"
    )


def test_suggest_tells_all_that_is_wrong_first(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "data.jsonl", [("1", "A girl runs.", "A girl moves.", "-")])
    folder = tmp_path / "run"
    for command in ("suggest", "generate"):
        told = refused(command, "--source", "snli", "--data", data, "--run", folder,
                       "--mlm", "nobody/nothing", "--mlm", tiny_model("roberta"),
                       "--mlm", tiny_classifier("bart"))  # fmt: skip
        lines = told.strip().splitlines()
        assert lines[-4] == "error: 2 of 3 models cannot be used as they are:"
        assert lines[-3].startswith("  nobody/nothing: HF_HUB_OFFLINE is set")
        assert "expected an architecture that ends in …ForMaskedLM" in lines[-2]
        assert lines[-1] == "`merge-nli models` shows what is there"
        assert not folder.exists()


def test_paraphrase_tells_of_both_models(tmp_path: Path) -> None:
    problems = [("1", "A girl runs.", "A girl moves.", "entailment")]
    data = write_problems(tmp_path / "data.jsonl", problems)
    told = refused(
        *("paraphrase", "--model", tiny_classifier("xlnet", NAMELESS), "--generator", "a/b"),
        *("--source", "snli", "--data", data, "--run", tmp_path / "run"),
    )
    lines = told.strip().splitlines()
    assert lines[-3] == "error: 2 of 2 models cannot be used as they are:"
    assert lines[-2].startswith("  a/b: HF_HUB_OFFLINE is set")
    assert "nothing says which class is which label" in lines[-1]
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def shop() -> Iterator[Console]:
    """A Hub with imitations of all models that recipes and presets name."""
    with console() as made:
        for name, layout in {**PAPER_MLMS, **PAPER_MODELS}.items():
            serve(made.hub, name, layout)
        yield made


ALL = ("models", "--preset", "paper", "--recipe", "paper-v2", "--device", "cpu")


@pytest.mark.slow
def test_the_papers_models_on_a_hub(shop: Console) -> None:
    done = shop.run(*ALL, "--format", "json", token=TOKEN)
    assert done.code == 0, done.out
    told = json.loads(done.out)
    result = {row["model"]: row for row in told["rows"]}
    assert set(result) == {*PAPER_MLMS, *PAPER_MODELS}
    assert "(roberta-base-mnli)" in told["notes"][0]
    by_seeds = {p.model for p in read_presets("paper") if p.label_order == "seeds"}
    for name, layout in PAPER_MODELS.items():
        labels = result[name]["labels"]
        if layout.task == "lm":
            assert labels is None
        elif name in by_seeds:
            assert labels == "from the seeds"
        else:
            assert labels == (
                f"{layout.order} (documented)" if layout.order else "c,n,e (id2label)"
            )
    for value in result.values():
        assert value["wrong"] == ""
        assert value["commit"]
        assert value["download_bytes"] > 0
        assert value["loading"].startswith("downloads ")


@pytest.mark.slow
def test_gated_and_not_downloaded(shop: Console) -> None:
    done = shop.run(*ALL, "--only", "LLM,BERT-B-M")
    assert done.code == 1
    text = " ".join(done.out.split())
    assert text.count("the model is gated: ask for access at https://huggingface.co/") == 2
    shop.forget()
    offline = shop.run(*ALL, offline=True)
    assert offline.code == 1
    assert offline.out.splitlines()[0] == "26 models, 26 cannot be used as they are"
    assert offline.out.count("HF_HUB_OFFLINE is set") == 26
    assert shop.hub.requests == []


@pytest.mark.slow
def test_words_that_a_masked_lm_does_not_know(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = []
    for name, more in (("few", ""), ("many", " 猫 犬")):
        texts = [(f"{n}", f"A dog runs{more}.", f"The dog sleeps{more}.", "neutral") for n in "123"]
        data = write_problems(tmp_path / f"{name}.jsonl", texts)
        done = run("suggest", "--source", "snli", "--data", data, "--run", tmp_path / name,
                   "--mlm", tiny_model("bert-uncased"), "--format", "json")  # fmt: skip
        recorded.append(json.loads(done.stdout)["mlms"][0].get("unknown_tokens"))
        assert caplog.text.count("are unknown to its tokenizer, as in '猫', '犬") == bool(more)
    few, many = recorded
    assert few is None
    assert (many["texts"], many["unknown"]) == (2, 4)
    assert many["tokens"] > 4
