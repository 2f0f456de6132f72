"""`merge-nli signals --neighbours` against plain reading, and builds that need its scores."""

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import run as run_command
from helpers.dataset_files import read_rows as rows_in
from helpers.run_folders import copy_of
from helpers.tasks_here import TasksHere
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import tiny_model

from generation import Config, build, generate, suggest
from generation.run_folder import SCORED, RunFolder
from generation.signals import pll_changes
from generation.signals.likelihoods import item_of, neighbour_changes
from generation.signals.pll_changes import write_changes
from generation.suggestions.masked_lm import Input, MaskedLM
from merge_dataset.executors import Distribution
from merge_dataset.files import read_json

SETTINGS: dict[str, Any] = {
    "limit": 6, "suggestions_per_occurrence": 40, "min_replacements": 2, "device": "cpu",
}  # fmt: skip
KEY = ("seed_id", "word_class", "word", "replacement")


def plainly(mlm: MaskedLM, text: str, spans: list[tuple[int, int]]) -> list[float]:
    """Sum log P of each word near a span, word by word and token by token."""
    (encoding,) = mlm.encode([text])
    words = [match.span() for match in re.finditer(r"\w+(?:['’-]\w+)*|[^\w\s]", text)]
    touched = [any(a < end and start < b for a, b in spans) for start, end in words]
    result = []
    for n, (start, end) in enumerate(words):
        near = any(touched[other] and abs(n - other) <= 3 for other in range(len(words)))
        if touched[n] or not near:
            continue
        tokens = [i for i, (a, b) in enumerate(encoding.offsets)
                  if a < end and start < b and not encoding.special_tokens_mask[i]]  # fmt: skip
        total = 0.0
        for place, token in enumerate(tokens):
            ids = [mlm.mask_id if i in tokens[place:] else t for i, t in enumerate(encoding.ids)]
            total += float(
                mlm.log_probs([Input(0, tuple(ids), token, encoding.ids[token], False)])[0]
            )
        result.append(total)
    return result


PAIRS = [
    ("A set of youths is singing.", [(2, 5)], "A group of youths is singing.", [(2, 7)]),
    ("Boys' bikes, boys and toys.", [(13, 17)], "Boys' bikes, cats and toys.", [(13, 17)]),
    ("An owl sees an owl.", [(0, 2), (3, 6), (12, 14), (15, 18)],
     "A cat sees a cat.", [(0, 1), (2, 5), (11, 12), (13, 16)]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert-cased", "roberta", "albert"])
def test_the_word_that_falls_most(family: str) -> None:
    mlm = MaskedLM.load(tiny_model(family), device="cpu")
    items = [item_of(*pair) for pair in PAIRS]
    result = neighbour_changes(mlm, items)
    for (old, before, new, after), change in zip(PAIRS, result["pll"].to_numpy(), strict=True):
        falls = np.subtract(plainly(mlm, new, after), plainly(mlm, old, before))
        assert change == pytest.approx(falls.min(), abs=1e-5)
    assert not result["windowed"].to_numpy().any()
    alone = [neighbour_changes(mlm, [item])["pll"].to_numpy()[0] for item in items]
    assert result["pll"].to_pylist() == alone
    mlm.batch_tokens = 8
    assert neighbour_changes(mlm, items[::-1])["pll"].to_pylist() == alone[::-1]
    assert np.isnan(
        neighbour_changes(mlm, [item_of("Go", [(0, 2)], "Run", [(0, 3)])])["pll"].to_numpy()
    ).all()


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose masked LM scored all rows that could reach the quality, 20 at a time."""
    folder = tmp_path_factory.mktemp("clean") / "run"
    settings = SETTINGS | {"scored_by": "mlms", "min_quality": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pll_changes, "_TEXTS_AT_ONCE", 20)
        return generate(Config.from_recipe("demo", run=str(folder), **settings))


@pytest.fixture
def run(clean: RunFolder, tmp_path: Path) -> RunFolder:
    return copy_of(clean, tmp_path / "run")


@pytest.mark.slow
def test_a_run_that_wants_scores(run: RunFolder) -> None:
    changes = {tuple(r[n] for n in KEY): r["neighbour_change"] for r in
               rows_in(run.named(SCORED).neighbours)}  # fmt: skip
    kept = rows_in(run.variants)
    assert kept
    for row in kept:
        assert row["quality"] >= np.float32(0.3)
        assert tuple(row[{"word": "original"}.get(n, n)] for n in KEY) in changes
    files = [run.variants, run.replacements, run.named(SCORED).neighbours]
    before = [path.read_bytes() for path in files]
    (made,) = read_json(run.manifest)["neighbours"]["mlms"]
    assert (made["name"], made["scheme"]) == ("bert-tiny-mlm", "neighbours-3")
    (answers,) = run.likelihoods.rglob("*.answers")
    answers.write_bytes(answers.read_bytes()[: answers.stat().st_size // 2])
    generate(Config.read(run.config).overlaid(None, {"run": str(run.path)}))
    assert [path.read_bytes() for path in files] == before
    # All rows scored, and then the limit: the same variants.
    everything = build(run.path, into="all", scored_by="", min_quality=0.0)
    write_changes(run.path, "neighbours", of="all")
    again = build(everything.path.parent, into="all", overwrite=True)
    assert {r["variant_id"] for r in rows_in(again.variants)} == {r["variant_id"] for r in kept}


@pytest.mark.slow
def test_a_causal_lm_scores_what_can_reach_the_quality(tmp_path: Path) -> None:
    lm = tmp_path / "tiny-lm"
    tiny_lm("llama").save_pretrained(lm)
    tiny_tokenizer("llama").save_pretrained(lm)
    more = {"scored_by": "lm", "lm": str(lm), "min_quality": 0.5, "run": str(tmp_path / "run")}
    run = generate(Config.from_recipe("demo", **SETTINGS, **more))
    kept = rows_in(run.variants)
    assert kept
    assert all(row["quality"] >= np.float32(0.5) for row in kept)
    assert read_json(run.manifest)["signals"]["lm"]["name"] == "tiny-lm"
    # All rows scored, and then the limit: the same variants from more questions.
    everything = build(run.path, into="all", scored_by="", min_quality=0.0)
    write_changes(run.path, "lm", str(lm), of="all")
    again = build(run.path, into="all", scored_by="", overwrite=True)
    assert {r["variant_id"] for r in rows_in(again.variants)} == {r["variant_id"] for r in kept}
    scored, alike = rows_in(run.named(SCORED).signals), rows_in(everything.signals)
    assert len(scored) < len(alike)
    # The premise is read only where the hypothesis leaves a chance.
    of_all = {tuple(row[name] for name in KEY): row for row in alike}
    for row in scored:
        expected = dict(of_all[tuple(row[name] for name in KEY)])
        if not row["complete"]:
            assert row["premise_pll_change"] is None
            expected |= {"complete": False, "premise_pll_change": None}
        assert row == expected
    assert 0 < sum(row["complete"] for row in scored) < len(scored)
    other = Config.from_recipe("demo", **SETTINGS, **more | {"lm": str(tmp_path / "other-lm")})
    with pytest.raises(FileExistsError, match="lm: tiny-lm there, other-lm now"):
        generate(other)
    shutil.rmtree(run.named(SCORED).path)
    with pytest.raises(ValueError, match=r"scores by .*tiny-lm, found .*no"):
        build(run.path, overwrite=True)


@pytest.mark.slow
def test_scores_that_are_missing_are_an_error(run: RunFolder) -> None:
    missing = r"the changes .* build once without `scored_by` and with `min_quality` 0, .*ghbours`"
    with pytest.raises(ValueError, match=f"expected for `scored_by` {missing}"):
        build(run.path, min_quality=0.2, min_replacements=1, into="loose")
    build(run.path, scored_by="", min_quality=0.0, min_replacements=1, into="loose")
    write_changes(run.path, "neighbours", of="loose")
    build(run.path, min_quality=0.2, min_replacements=1, into="loose", overwrite=True)
    shutil.rmtree(run.named(SCORED).path)
    with pytest.raises(ValueError, match=r"scored_by: expected scores by the masked LMs, .*none"):
        build(run.path, overwrite=True)


@pytest.mark.slow
def test_which_scores_are_taken(run: RunFolder) -> None:
    before = run.variants.read_bytes()
    write_changes(run.path, "neighbours")
    build(run.path, overwrite=True)
    assert run.variants.read_bytes() == before
    config = Config.read(run.config)
    more = {"run": str(run.path), "mlms": (*config.mlms, str(tiny_model("bert-cased")))}
    suggest(config.overlaid(None, more), overwrite=True)
    with pytest.raises(ValueError, match=r"by the masked LMs, .*, found those by bert-tiny-mlm;"):
        build(run.path, overwrite=True)


@pytest.mark.slow
def test_words_are_scored_whose_letters_are_shuffled(run: RunFolder) -> None:
    shuffled = build(run.path, into="shuffled", scramble=True)
    before = Counter((row["seed_id"], row["word"]) for row in rows_in(run.replacements))
    result = Counter((row["seed_id"], row["word"]) for row in rows_in(shuffled.replacements))
    assert result
    assert result <= before
    again = Config.read(run.config).overlaid(None, {"run": str(run.path), "scramble": True})
    generate(again, overwrite=True)
    assert run.variants.read_bytes() == shuffled.variants.read_bytes()
    with pytest.raises(ValueError, match="expected for `scored_by` the changes of every"):
        build(run.path, into="looser", min_quality=0.0, min_replacements=1)


@pytest.mark.slow
def test_in_tasks_and_by_command(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = run.named(SCORED)
    before = scored.neighbours.read_bytes()
    shutil.rmtree(run.path / "likelihoods")
    with monkeypatch.context() as patch:
        TasksHere(patch)
        two = Distribution(executor="local", tasks=2)
        write_changes(run.path, "neighbours", of=SCORED, distribution=two)
    assert scored.neighbours.read_bytes() == before
    known = {path: path.read_bytes() for path in tmp_path.rglob("*.answers")}
    done = run_command("signals", "--run", run.path, "--of", SCORED, "--neighbours")
    assert re.match(r"[0-9,]+ replacements, .* scored by bert-tiny-mlm; 0 longer", done.stdout)
    assert scored.neighbours.read_bytes() == before
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.answers")} == known
