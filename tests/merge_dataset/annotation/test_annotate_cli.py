import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import refused, run
from helpers.judged import fill_in
from helpers.pages import commands

from merge_dataset.annotation import read_session

README = (Path(__file__).parents[3] / "merge_dataset/annotation/README.md").read_text("utf-8")


def test_drawing_a_sample(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    text = run("annotate", dataset, "--out", out, "--per-class", 2, "--annotator", "ann").stdout
    written = ("guidelines.md", "label-studio.json", "label-studio.xml", "answers/ann.csv")
    assert text.splitlines() == [
        f"{out}: 6 variants", "  snli noun: 2 of 6", "  snli verb: 2 of 3",
        "  snli adjective: 2 of 2", *(f"  {out / name}: written" for name in written),
        f"Next: fill in tables in {out / 'answers'}, or export there from Label Studio; then "
        f"merge-nli agreement {out}",
    ]  # fmt: skip
    more = ("annotate", "--out", out, "--annotator", "ann", "--annotator", "bo")
    told = json.loads(run(*more, "--format", "json").stdout)
    assert told.pop("written") == [str(out / "answers/bo.csv")]
    description = json.loads((out / "session.json").read_text())
    del description["digest"]
    assert told == description


def test_paraphrases_and_replacements_are_not_mixed(
    dataset: Path, paraphrases: Path, tmp_path: Path
) -> None:
    assert dataset == paraphrases
    words = ("annotate", dataset, "--out", tmp_path / "mixed", "--config", "snli")
    told = refused(*words, "--config", "snli_paraphrases")
    assert "got snli_paraphrases and snli_nouns, snli_verbs, snli_adjectives; make a" in told
    assert not (tmp_path / "mixed").exists()


def as_label_studio(tasks: Path, path: Path) -> None:
    """Write an export of Label Studio in which the first task is judged good."""
    task: dict[str, Any] = json.loads(tasks.read_text(encoding="utf-8"))[0]
    results = [
        {"from_name": name, "value": {"choices": ["5"]}} for name in ("fluency", "reasoning")
    ]
    task["annotations"] = [{"completed_by": 1, "result": results}]
    path.write_text(json.dumps([task]), encoding="utf-8")


@pytest.mark.slow
def test_the_readme_runs(
    dataset: Path,
    paraphrases: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The page's commands, then a table filled in and an export of Label Studio."""
    monkeypatch.chdir(tmp_path)
    for words in commands(README):
        if words[0] == "annotate":  # uses of answers are tested in tests/merge_metric/agreement
            run(*words)
    as_label_studio(Path("study/label-studio.json"), Path("study/answers/export.json"))
    for session, text in (
        ("study", {"fluency": 5, "reasoning": 4}),
        ("pairs", {"equivalent": "yes"}),
    ):
        rows = [{"variant_id": name, **text} for name in read_session(Path(session)).items]
        fill_in(Path(session, "answers/ann.csv"), rows)
    (tree,) = re.findall(r"^study/\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    names = {path.name for path in Path("study").rglob("*") if not path.name.startswith(".")}
    names |= {"Qwen3-8B.parquet"}  # of `judge`, which has tests of its own
    assert names == set(re.findall(r"^ +([\w.-]+)", tree, re.MULTILINE))
    (code,), (printed,) = (
        re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
        for language in ("python", "text")
    )
    capsys.readouterr()
    exec(code, {})
    assert capsys.readouterr().out == printed
