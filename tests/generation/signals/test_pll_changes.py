import json
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.commands import refused
from helpers.commands import run as run_command
from helpers.dataset_files import read_rows as rows_in
from helpers.kept_answers import keys_in
from helpers.pages import commands, section
from helpers.reference import tag
from helpers.run_folders import copy_of
from helpers.tasks_here import TasksHere
from helpers.tiny_language_models import tiny_lm, tiny_tokenizer
from helpers.tiny_models import save, tiny_model

from generation import Config, build, generate, suggest
from generation.problems import on_disk as blocks
from generation.run_folder import SCORED, RunFolder
from generation.signals import pll_changes
from generation.signals.likelihoods import (
    CausalLM,
    item_of,
    neighbour_changes,
    pseudo_log_likelihoods,
)
from generation.signals.pll_changes import write_changes
from generation.suggestions.masked_lm import Input, MaskedLM
from generation.variants.signal_columns import zipf_frequency
from merge_dataset.card import render
from merge_dataset.checks import check_dataset
from merge_dataset.executors import Distribution
from merge_dataset.export import export_dataset
from merge_dataset.files import digest_of_file, read_json, read_record, write_record
from merge_dataset.schema import NLI
from merge_metric.models.checkpoints import load
from merge_metric.models.inspection import CAUSAL_LM, inspect

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "limit": 6, "suggestions_per_occurrence": 40, "min_replacements": 2, "device": "cpu",
}  # fmt: skip
KEY = ("seed_id", "word_class", "word", "replacement")
CHANGES = ["premise_pll_change", "hypothesis_pll_change"]


@pytest.fixture(scope="module")
def model() -> str:
    return str(tiny_model("roberta"))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, model: str) -> RunFolder:
    """A run in blocks of three problems, with signals of 50 texts at a time."""
    folder = tmp_path_factory.mktemp("pll") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 3)
        patch.setattr(pll_changes, "_TEXTS_AT_ONCE", 50)
        run = generate(Config.from_recipe("demo", run=str(folder), **SETTINGS))
        write_changes(run.path, "mlm", model)
    return run


@pytest.fixture
def run(scored: RunFolder, tmp_path: Path) -> RunFolder:
    return copy_of(scored, tmp_path / "run")


def test_settings_of_the_build_are_its_own(run: RunFolder, model: str) -> None:
    with pytest.raises(ValueError, match=r"expected settings of models, .*, got min_quality"):
        write_changes(run.path, "mlm", model, device="cpu", min_quality=0.5)


def changed(text: str, row: Mapping[str, str]) -> str:
    """The text with the replacement in place of each token of the word."""
    for token in reversed(tag(text)):
        if token.text == row["word"]:
            start, end = token.span
            text = text[:start] + row["replacement"] + text[end:]
    return text


def test_changes_of_both_texts(scored: RunFolder, model: str) -> None:
    rows, problems = rows_in(scored.signals), {r["seed_id"]: r for r in rows_in(scored.problems)}
    replacements = rows_in(scored.replacements)
    assert [[r[name] for name in KEY] for r in rows] == [
        [r[name] for name in KEY] for r in replacements
    ]
    mlm = MaskedLM.load(model, device="cpu")
    for row in rows[::10]:
        texts = [problems[row["seed_id"]][side] for side in ("premise", "hypothesis")]
        old, new = (
            pseudo_log_likelihoods(mlm, some)["pll"].to_numpy()
            for some in (texts, [changed(text, row) for text in texts])
        )
        assert [row[name] for name in CHANGES] == (new - old).astype(np.float32).tolist()
    made = read_json(scored.signals_made)
    assert (made["replacements"], made["windowed"]) == (len(rows), 0)
    assert made["mlm"] == {
        "name": "roberta", "revision": mlm.revision, "architecture": "RobertaForMaskedLM",
        "dtype": "float32", "device": "cpu",
    }  # fmt: skip
    assert made["sha256"] == digest_of_file(scored.signals)
    assert not list(scored.path.rglob("*.partial"))


def test_a_build_joins_them(run: RunFolder) -> None:
    before = read_json(run.manifest)
    built = build(run.path)
    of_key = {tuple(r[n] for n in KEY): [r[n] for n in CHANGES] for r in rows_in(run.signals)}
    for row in rows_in(built.replacements):
        assert [row[name] for name in CHANGES] == of_key[tuple(row[n] for n in KEY)]
    for row in rows_in(built.variants):
        key = tuple(row[{"word": "original"}.get(name, name)] for name in KEY)
        assert [row[name] for name in CHANGES] == of_key[key]
    after = read_json(built.manifest)
    made = read_record(run.signals_made)
    assert after["signals"] == {name: made[name] for name in made if name != "problems"}
    assert "signals" not in before
    assert before["fingerprint"] != after["fingerprint"]
    assert before["variants"] == after["variants"]


def test_a_build_inside_the_run(run: RunFolder, model: str) -> None:
    union = build(run.path, ablation="union")
    own = {tuple(row[n] for n in KEY) for row in rows_in(run.signals)}
    for row in rows_in(union.replacements):
        known = tuple(row[name] for name in KEY) in own
        assert all((row[name] is not None) == known for name in CHANGES)
    cure = (
        f"build once without `min_pll_change`, run `merge-nli signals --run {run.path} --of union "
        f"--mlm MODEL`, then this command with --overwrite"
    )
    with pytest.raises(ValueError, match=rf"found none for .* of some problems; {re.escape(cure)}"):
        build(run.path, ablation="union", min_pll_change=-100.0, overwrite=True)
    # The earlier build is still there.
    write_changes(run.path, "mlm", model, of="union")
    again = build(run.path, ablation="union", min_pll_change=-100.0, overwrite=True)
    assert all(row[name] is not None for row in rows_in(again.replacements) for name in CHANGES)
    assert read_json(again.manifest)["signals"]["replacements"] > len(own)


def letters_of(folder: RunFolder) -> set[tuple[str, ...]]:
    return {
        (*(row[n] for n in KEY[:3]), *("".join(sorted(w)) for w in row["replacement"].split()))
        for row in rows_in(folder.replacements)
    }


def two_problems(folder: Path) -> dict[str, Any]:
    """Settings for problems with articles and with a family of forms."""
    data = folder / "two.csv"
    data.write_text(
        "id,premise,hypothesis,label\n"
        "boy,A boy and an old man wait for an artist.,"
        "The boy and the artist see an old man.,neutral\n"
        "cat,The cat sleeps here; it was sleeping there before.,A cat sleeps.,entailment\n"
    )
    return {"source": "two", "data": str(data), "min_replacements": 1}


def test_limits_before_shuffling_where_more_changes(tmp_path: Path, model: str) -> None:
    given = two_problems(tmp_path)
    given |= {"families": "inflect", "repair_articles": True}
    run = generate(Config.from_recipe("demo", run=str(tmp_path / "run"), **given))
    with pytest.raises(ValueError, match=re.escape(
        f"signals.parquet, found none; build once without `min_pll_change`, run `merge-nli signals "
        f"--run {run.path} --mlm MODEL`, then"
    )):  # fmt: skip
        build(run.path, ablation="scrambled", min_pll_change=-5.0)
    write_changes(run.path, "mlm", model)
    limits = {"min_pll_change": float(np.median([r[CHANGES[0]] for r in rows_in(run.signals)]))}
    limits["min_zipf_frequency"] = 3.0
    strict = letters_of(build(run.path, into="strict", **limits))
    assert strict < letters_of(run)
    assert letters_of(build(run.path, ablation="scrambled", **limits)) == strict
    with pytest.raises(ValueError, match="scrambled: expected a build without scrambled letters"):
        write_changes(run.path, "mlm", model, of="scrambled")


def test_more_than_one_word(tmp_path: Path, model: str) -> None:
    given = two_problems(tmp_path)
    run = generate(Config.from_recipe("demo", run=str(tmp_path / "run"), **given))
    settings: dict[str, Any] = {"families": "inflect", "repair_articles": True}
    build(run.path, into="repaired", **settings)
    write_changes(run.path, "mlm", model, of="repaired")
    repaired = build(run.path, into="repaired", **settings)
    seeds = {row["seed_id"]: row for row in rows_in(repaired.seeds)}
    more = [row for row in rows_in(repaired.variants) if " " in row["original"]]
    assert {len(row["original"].split()) for row in more} == {2}
    assert {row["original"].split()[1] for row in more} >= {"sleeping", "an"}
    mlm = MaskedLM.load(model, device="cpu")
    for row in more[::5]:
        old, new = (
            pseudo_log_likelihoods(mlm, [item["premise"], item["hypothesis"]])["pll"].to_numpy()
            for item in (seeds[row["seed_id"]], row)
        )
        assert [row[name] for name in CHANGES] == (new - old).astype(np.float32).tolist()
        rarest = min(map(zipf_frequency, row["replacement"].split()))
        assert row["zipf_frequency"] == np.float32(rarest)
    assert all(row["article_fits"] is not False for row in rows_in(repaired.replacements))
    limit = float(np.median([row[CHANGES[0]] for row in more]))
    strict = build(run.path, into="repaired", **settings, min_pll_change=limit, overwrite=True)
    kept = rows_in(strict.replacements)
    assert any(" " in row["word"] for row in kept)
    assert all(min(row[name] for name in CHANGES) >= limit for row in kept)


def test_nothing_is_scored_twice(
    run: RunFolder, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[str] = []

    def counted(mlm: Any, texts: Sequence[str]) -> Any:
        scored.extend(texts)
        return pseudo_log_likelihoods(mlm, texts)

    scheme, head, _ = pll_changes.KINDS["mlm"]
    monkeypatch.setitem(pll_changes.KINDS, "mlm", (scheme, head, counted))
    (answers,) = run.likelihoods.rglob("*.answers")
    keys = keys_in(answers.parent)
    signals = run.signals.read_bytes()
    write_changes(run.path, "mlm", model)
    assert scored == []
    answers.write_bytes(answers.read_bytes()[:-9])
    lost = len(keys) - len(keys_in(answers.parent))
    run.signals.unlink()
    write_changes(run.path, "mlm", model)
    assert len(scored) == lost > 0
    assert keys_in(answers.parent) == keys
    assert run.signals.read_bytes() == signals


def test_only_masked_lms_read_without_padding(
    run: RunFolder, model: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = ("signals", "--run", run.path, "--unpadded")
    told = refused(*asked, "--lm", folder)
    assert told == "error: --unpadded: expected with --mlm, got it with --lm\n"
    run_command(*asked, "--mlm", model)  # on a CPU
    assert "roberta: warning: `unpadded` changes nothing" in caplog.text


def test_answers_that_tasks_lost_are_missing(
    run: RunFolder, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    TasksHere(monkeypatch)
    score = pll_changes.score_task

    def lose(folder: Path, task: str) -> Any:
        made = score(folder, task)
        for answers in run.likelihoods.rglob("*.answers"):
            answers.write_bytes(answers.read_bytes()[:-9])
        return made

    monkeypatch.setattr(pll_changes, "score_task", lose)
    two = Distribution(executor="local", tasks=2)
    with pytest.raises(ValueError, match=r"are missing; run: merge-nli signals"):
        write_changes(run.path, "mlm", model, distribution=two)


def test_signals_of_other_problems(run: RunFolder) -> None:
    table = pq.ParquetFile(run.problems).read()
    place = table.schema.get_field_index("premise")
    other = pa.array([f"{text} Indeed." for text in table["premise"].to_pylist()])
    with pq.ParquetWriter(run.problems, pq.read_schema(run.problems)) as writer:
        writer.write_table(table.set_column(place, "premise", other))
    record = read_record(run.suggested)
    record["files"]["problems.parquet"] = digest_of_file(run.problems)
    write_record(run.suggested, record)
    with pytest.raises(ValueError, match="got other contents; run merge-nli signals again"):
        build(run.path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A causal LM's folder."""
    save(tiny_lm("llama"), tiny_tokenizer("llama"), tmp_path / "tiny-lm")
    return tmp_path / "tiny-lm"


def test_a_causal_lm_scores_too(run: RunFolder, folder: Path, tmp_path: Path) -> None:
    options = ("--device", "cpu", "--format", "json")
    made = json.loads(run_command("signals", "--run", run.path, "--lm", folder, *options).stdout)
    assert (made["lm"]["name"], made["scheme"]) == ("tiny-lm", "log-likelihood-2")
    assert "mlm" not in made
    lm = CausalLM(load(inspect(folder, CAUSAL_LM), device="cpu", dtype="float32"))
    problems = {row["seed_id"]: row for row in rows_in(run.problems)}
    for row in rows_in(run.signals)[:5]:
        before = problems[row["seed_id"]]["premise"]
        (change,) = lm.changes([item_of(before, [], changed(before, row), [])])["pll"].to_pylist()
        assert row["premise_pll_change"] == np.float32(change)
    build(run.path, overwrite=True)
    export_dataset(run.path, tmp_path / "data")
    assert "Causal language model of the changes of log-likelihood" in render(tmp_path / "data")
    assert check_dataset(tmp_path / "data") == []


def test_commands_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = section("generation/signals.md", "Signals")
    for command in commands(text):
        result = run_command(*command)
    assert re.match(r"demo:\S+  demo  \w+\n  premise  .*\n  hypothesis  .*\n", result.stdout)
    columns = set(re.findall(r"`([a-z_]+)`", "".join(re.findall(r"^\| `.*?\|", text, re.M))))
    grammar = {"form_attested", "number_agrees", "determiner_fits", "in_compound"}
    grammar |= {"mean_rank", "neighbour_change"}
    assert columns == {"log_odds", *NLI.signals, *grammar, "quality"}


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
def filtered(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose masked LM scored all rows that could reach the quality, 20 at a time."""
    folder = tmp_path_factory.mktemp("clean") / "run"
    settings = SETTINGS | {"scored_by": "mlms", "min_quality": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pll_changes, "_TEXTS_AT_ONCE", 20)
        return generate(Config.from_recipe("demo", run=str(folder), **settings))


@pytest.fixture
def clean(filtered: RunFolder, tmp_path: Path) -> RunFolder:
    return copy_of(filtered, tmp_path / "run")


def test_a_run_that_wants_scores(clean: RunFolder) -> None:
    changes = {tuple(r[n] for n in KEY): r["neighbour_change"] for r in
               rows_in(clean.named(SCORED).neighbours)}  # fmt: skip
    kept = rows_in(clean.variants)
    assert kept
    for row in kept:
        assert row["quality"] >= np.float32(0.3)
        assert tuple(row[{"word": "original"}.get(n, n)] for n in KEY) in changes
    files = [clean.variants, clean.replacements, clean.named(SCORED).neighbours]
    before = [path.read_bytes() for path in files]
    (made,) = read_json(clean.manifest)["neighbours"]["mlms"]
    assert (made["name"], made["scheme"]) == ("bert-tiny-mlm", "neighbours-3")
    (answers,) = clean.likelihoods.rglob("*.answers")
    answers.write_bytes(answers.read_bytes()[: answers.stat().st_size // 2])
    generate(Config.read(clean.config).overlaid(None, {"run": str(clean.path)}))
    assert [path.read_bytes() for path in files] == before
    # All rows scored, and then the limit: the same variants.
    everything = build(clean.path, into="all", scored_by="", min_quality=0.0)
    write_changes(clean.path, "neighbours", of="all")
    again = build(everything.path.parent, into="all", overwrite=True)
    assert {r["variant_id"] for r in rows_in(again.variants)} == {r["variant_id"] for r in kept}


def test_a_causal_lm_scores_what_can_reach_the_quality(folder: Path, tmp_path: Path) -> None:
    more = {"scored_by": "lm", "lm": str(folder), "min_quality": 0.5, "run": str(tmp_path / "run")}
    run = generate(Config.from_recipe("demo", **SETTINGS, **more))
    kept = rows_in(run.variants)
    assert kept
    assert all(row["quality"] >= np.float32(0.5) for row in kept)
    assert read_json(run.manifest)["signals"]["lm"]["name"] == "tiny-lm"
    # All rows scored, and then the limit: the same variants from more questions.
    everything = build(run.path, into="all", scored_by="", min_quality=0.0)
    write_changes(run.path, "lm", str(folder), of="all")
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


def test_scores_that_are_missing_are_an_error(clean: RunFolder) -> None:
    missing = r"the changes .* build once without `scored_by` and with `min_quality` 0, .*ghbours`"
    with pytest.raises(ValueError, match=f"expected for `scored_by` {missing}"):
        build(clean.path, min_quality=0.2, min_replacements=1, into="loose")
    build(clean.path, scored_by="", min_quality=0.0, min_replacements=1, into="loose")
    write_changes(clean.path, "neighbours", of="loose")
    build(clean.path, min_quality=0.2, min_replacements=1, into="loose", overwrite=True)
    shutil.rmtree(clean.named(SCORED).path)
    with pytest.raises(ValueError, match=r"scored_by: expected scores by the masked LMs, .*none"):
        build(clean.path, overwrite=True)


def test_which_scores_are_taken(clean: RunFolder) -> None:
    before = clean.variants.read_bytes()
    write_changes(clean.path, "neighbours")
    build(clean.path, overwrite=True)
    assert clean.variants.read_bytes() == before
    config = Config.read(clean.config)
    more = {"run": str(clean.path), "mlms": (*config.mlms, str(tiny_model("bert-cased")))}
    suggest(config.overlaid(None, more), overwrite=True)
    with pytest.raises(ValueError, match=r"by the masked LMs, .*, found those by bert-tiny-mlm;"):
        build(clean.path, overwrite=True)


def test_words_are_scored_whose_letters_are_shuffled(clean: RunFolder) -> None:
    shuffled = build(clean.path, into="shuffled", scramble=True)
    before = Counter((row["seed_id"], row["word"]) for row in rows_in(clean.replacements))
    result = Counter((row["seed_id"], row["word"]) for row in rows_in(shuffled.replacements))
    assert result
    assert result <= before
    again = Config.read(clean.config).overlaid(None, {"run": str(clean.path), "scramble": True})
    generate(again, overwrite=True)
    assert clean.variants.read_bytes() == shuffled.variants.read_bytes()
    with pytest.raises(ValueError, match="expected for `scored_by` the changes of every"):
        build(clean.path, into="looser", min_quality=0.0, min_replacements=1)


def test_in_tasks_and_by_command(
    clean: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored = clean.named(SCORED)
    before = scored.neighbours.read_bytes()
    shutil.rmtree(clean.path / "likelihoods")
    with monkeypatch.context() as patch:
        TasksHere(patch)
        two = Distribution(executor="local", tasks=2)
        write_changes(clean.path, "neighbours", of=SCORED, distribution=two)
    assert scored.neighbours.read_bytes() == before
    known = {path: path.read_bytes() for path in tmp_path.rglob("*.answers")}
    done = run_command("signals", "--run", clean.path, "--of", SCORED, "--neighbours")
    assert re.match(r"[0-9,]+ replacements, .* scored by bert-tiny-mlm; 0 longer", done.stdout)
    assert scored.neighbours.read_bytes() == before
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.answers")} == known
