import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers.run_folders import copy_of

from generation import Config, build, generate, suggest
from generation.paraphrases.config import ParaphraseConfig
from generation.problems import on_disk as blocks
from generation.problems.on_disk import block_sizes
from generation.reasons import KEPT
from generation.run_folder import RunFolder
from generation.run_summary import fates_line, problem_fates
from generation.suggestions import store as store_module
from generation.variants.funnel import SUGGESTION_REASONS
from merge_dataset.files import (
    digest_of_file,
    partial_path,
    read_json,
    read_record,
    write_record,
)

LIMIT = 12
MADE = ("replacements", "exclusions", "seeds", "variants")


def demo_config(run: Path, **settings: object) -> Config:
    return Config.from_recipe("demo", run=str(run), limit=LIMIT, **settings)


def bytes_made(run: RunFolder) -> dict[str, str]:
    """Digests of all files that a build makes, and of all parts of the store."""
    paths = [getattr(run, name) for name in MADE] + sorted(run.store.rglob("*.parquet"))
    return {str(path.relative_to(run.path)): digest_of_file(path) for path in paths}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return generate(demo_config(tmp_path_factory.mktemp("run") / "base"))


def test_records_of_something_else(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "other")
    write_record(other.manifest, {"config": {}})
    with pytest.raises(ValueError, match=r"got one without eligible, .* build with --overwrite$"):
        build(other.path)
    write_record(other.suggested, {"mlms": {}})
    with pytest.raises(ValueError, match=r"got one without .*Run merge-nli suggest again$"):
        build(other.path)


def test_run_folder_holds_what_the_readme_says(run: RunFolder) -> None:
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        "config.toml", "manifest.json", "suggested.json", "suggestions", "problems.parquet",
        "questions", "stores", "replacements.parquet", "exclusions.parquet", "seeds.parquet",
        "variants.parquet",
    }  # fmt: skip
    assert not list(run.path.rglob("*.partial"))
    manifest = read_json(run.manifest)
    replacements = pq.read_table(run.replacements).to_pylist()
    for row in manifest["funnel"]:
        assert row["suggestions"] == sum(row[reason] for reason in SUGGESTION_REASONS) + row[KEPT]
        mine = [r for r in replacements if r["word_class"] == row["word_class"]]
        assert row["replacements"] == len(mine)
    variants = pq.read_table(run.variants).to_pylist()
    for word_class, count in manifest["eligible"].items():
        assert count == len({v["seed_id"] for v in variants if v["word_class"] == word_class})
    assert manifest["files"]["variants.parquet"] == digest_of_file(run.variants)
    assert manifest["mlms"][0]["revision"]
    assert manifest["tagger"].endswith("3.8.0")


def test_problems_are_counted_by_what_became_of_them(run: RunFolder) -> None:
    manifest = read_json(run.manifest)
    fates = problem_fates(run, manifest)
    excluded = pq.read_table(run.exclusions).to_pylist()
    eligible = set(pq.read_table(run.seeds)["seed_id"].to_pylist())
    of_none = {row["seed_id"] for row in excluded if row["reason"] == "no_shared_word"}
    few = {row["seed_id"] for row in excluded} - eligible - of_none
    few -= {row["seed_id"] for row in excluded if row["reason"] == "unlabelled"}
    assert fates == {
        "problems": 12, "eligible": len(eligible), "no_shared_word": len(of_none),
        "too_few_replacements": len(few),
    }  # fmt: skip
    assert f"12 problems: {len(eligible)} eligible, " in fates_line(fates, manifest)
    ablated = fates_line(fates, manifest | {"ablation": "union"})
    assert ablated.endswith(f"{len(few)} not eligible without the ablation")
    problems = set(pq.read_table(run.problems)["seed_id"].to_pylist())
    replaced = set(pq.read_table(run.replacements)["seed_id"].to_pylist())
    assert problems == replaced | {row["seed_id"] for row in excluded}
    assert {row["reason"] for row in excluded} <= {
        "no_shared_word", "no_replacement", "too_few_replacements", "unlabelled",
    }  # fmt: skip


@pytest.mark.slow(but=("64",))
@pytest.mark.parametrize("batch_tokens", [64, 4096])
def test_batch_size_changes_no_byte(run: RunFolder, tmp_path: Path, batch_tokens: int) -> None:
    other = generate(demo_config(tmp_path / "other", batch_tokens=batch_tokens))
    assert bytes_made(other) == bytes_made(run)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_blocks_and_workers_change_no_byte(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    other = copy_of(run, tmp_path / "blocks")
    monkeypatch.setattr(blocks, "BLOCK", 5)
    suggest(demo_config(other.path))
    assert block_sizes(other.problems) == [5, 5, 2]
    build(other.path, workers=workers)
    assert bytes_made(other) == bytes_made(run)
    assert read_json(other.manifest)["funnel"] == read_json(run.manifest)["funnel"]


@pytest.mark.slow
def test_a_longer_run_scores_only_what_is_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    suggest(demo_config(tmp_path / "run").overlaid(None, {"limit": 6}))
    store = RunFolder(tmp_path / "run").store
    before = {path: digest_of_file(path) for path in store.rglob("parts/*.parquet")}
    suggest(demo_config(tmp_path / "run"))
    after = {path: digest_of_file(path) for path in store.rglob("parts/*.parquet")}
    assert before.items() < after.items()
    rows = [
        key
        for path in after
        for key in pq.read_table(path, columns=["sentence", "span"]).to_pylist()
    ]
    assert len(rows) == len({(row["sentence"], *row["span"]) for row in rows})


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("split", "train", "split none, which .*, got train"),
        ("revision", "main", "revision none"),
        ("data", "more.jsonl", "source|data none"),
        ("label_map", {"yes": "entailment"}, "label_map none, which .*, got yes=entailment"),
        ("mlms", ("other",), "mlms .*bert-tiny-mlm, which .*, got other"),
        ("ask_all", False, "ask_all True"),
    ],
)
def test_a_build_changes_nothing_that_suggest_did(
    run: RunFolder, tmp_path: Path, name: str, value: object, shown: str
) -> None:
    """The setting would be ignored, but recorded in the manifest."""
    other = copy_of(run, tmp_path / "other")
    before = bytes_made(other)
    with pytest.raises(ValueError, match=shown):
        build(other.path, into="mine", **{name: value})
    assert bytes_made(other) == before
    assert not (other.path / "mine").exists()


def test_masked_lms_in_common_are_counted(run: RunFolder, tmp_path: Path) -> None:
    built = build(copy_of(run, tmp_path / "run").path, into="common", common_mlms=True)
    rows = pq.read_table(built.variants).to_pylist()
    counts = [row.pop("common_mlm_count") for row in rows]
    assert rows == pq.read_table(run.variants).to_pylist()
    assert counts == [len({*row["premise_mlms"]} & {*row["hypothesis_mlms"]}) for row in rows]


def ablated(run: RunFolder, name: str, to: Path) -> list[dict[str, object]]:
    folder = build(copy_of(run, to).path, ablation=name)
    assert folder.path == to / name
    return pq.read_table(folder.replacements).to_pylist()


def keys(rows: list[dict[str, object]]) -> set[tuple[object, ...]]:
    return {(row["seed_id"], row["word_class"], row["word"], row["replacement"]) for row in rows}


@pytest.mark.slow
def test_ablations_contain_each_other_as_they_must(run: RunFolder, tmp_path: Path) -> None:
    """D13: paper ⊆ union, pos, prob; pos and prob ⊆ none; no masked LM runs again."""
    paper = keys(pq.read_table(run.replacements).to_pylist())
    sets = {
        name: keys(ablated(run, name, tmp_path / name))
        for name in ("paper", "union", "pos", "prob", "none")
    }
    assert sets["paper"] == paper
    assert paper < sets["union"]
    assert paper < sets["pos"] < sets["none"]
    assert paper < sets["prob"] < sets["none"]


@pytest.mark.slow
def test_ablations_have_the_papers_seeds_and_letters(run: RunFolder, tmp_path: Path) -> None:
    """D13: `scrambled` shuffles letters; A.2: the seeds are equal, though more are eligible."""
    paper = pq.read_table(run.replacements).to_pylist()
    scrambled = ablated(run, "scrambled", tmp_path / "scrambled")
    letters = {(r["seed_id"], r["word"], "".join(sorted(str(r["replacement"])))) for r in paper}
    assert {
        (r["seed_id"], r["word"], "".join(sorted(str(r["replacement"])))) for r in scrambled
    } == letters
    assert len(keys(scrambled) & keys(paper)) < len(paper) / 10
    folder = build(copy_of(run, tmp_path / "none").path, ablation="none")
    pairs = {
        name: {(v["seed_id"], v["word_class"]) for v in pq.read_table(f.variants).to_pylist()}
        for name, f in (("base", run), ("none", folder))
    }
    assert pairs["none"] == pairs["base"]


def test_ablation_needs_a_build_first(tmp_path: Path) -> None:
    suggest(demo_config(tmp_path / "run"))
    with pytest.raises(FileNotFoundError, match="keeps the seeds that are eligible without it"):
        build(tmp_path / "run", ablation="union")


def test_nothing_eligible_says_how_many_there_were(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "strict")
    with pytest.raises(
        ValueError, match=r"no seed has 5000 .*the most is \d+; add masked LMs"
    ) as error:
        build(other.path, min_replacements=5000, overwrite=True)
    counts = Counter(
        (row["seed_id"], row["word_class"])
        for row in pq.read_table(run.replacements, columns=["seed_id", "word_class"]).to_pylist()
    )
    of_seeds = Counter[str]()
    for (seed, _), count in counts.items():
        of_seeds[seed] = max(of_seeds[seed], count)
    most = max(of_seeds.values())
    assert f"the most is {most};" in str(error.value)
    said = str(error.value).partition("lower `min_replacements`: ")[2]
    for limit, seeds in re.findall(r"(\d+) gives (\d+) seed", said):
        assert sum(count >= int(limit) for count in of_seeds.values()) == int(seeds)
    assert said.startswith(f"{most} gives ")
    assert re.search(r"words with the most replacements: \w+ → \w+, \w+, \w+, … \(\d+\), ",
                     str(error.value))  # fmt: skip
    assert bytes_made(other) == bytes_made(run)
    assert other.manifest.is_file()


@pytest.mark.slow
def test_damaged_vocabulary_is_noticed_and_made_again(run: RunFolder, tmp_path: Path) -> None:
    """A flipped bit would turn the same suggestions into other words."""
    other = copy_of(run, tmp_path / "vocabulary")
    (path,) = other.store.rglob("vocabulary.*.parquet")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected a sound vocabulary, found none; run: merge-nli"):
        build(other.path)
    generate(demo_config(other.path))
    assert bytes_made(other) == bytes_made(run)


def test_what_is_refused_before_a_model_runs(tmp_path: Path) -> None:
    """The error names classes and problems; provenance could not distinguish equal names."""
    row = '{"sentence1": "Hello there.", "sentence2": "Nobody knew.", "gold_label": "neutral"}'
    (tmp_path / "one.jsonl").write_text(row, encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected a noun or verb or adjective shared .* in 1 pr"):
        suggest(demo_config(tmp_path / "run", source="one", data=str(tmp_path / "one.jsonl")))
    with pytest.raises(ValueError, match="expected different names, got 'bert-tiny-mlm'"):
        suggest(demo_config(tmp_path, mlms=("bert-tiny-mlm", "bert-tiny-mlm")))


def test_nothing_made_otherwise_is_replaced_without_a_word(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "other")
    before = bytes_made(other)
    refused: list[tuple[Callable[..., object], str]] = [
        (partial(build, other.path, min_replacements=3), "min_replacements: 20 there, 3 now"),
        (partial(suggest, demo_config(other.path, masking="joint")), "masking: single there, jo"),
        (partial(generate, demo_config(other.path, subsamples=2)), "subsamples: 10 there, 2 now"),
        (partial(generate, demo_config(other.path, mlms=("bert-base",))), "bert-base now"),
    ]
    for command, differing in refused:
        with pytest.raises(FileExistsError, match=rf"{differing}.* or replace it with --overwrite"):
            command()
    record = read_record(other.suggested)
    changed = {**record, "source_data": {**record["source_data"], "sha256": "0" * 64}}
    write_record(other.suggested, changed)
    with pytest.raises(FileExistsError, match="the problems that were read: others there"):
        suggest(demo_config(other.path))
    write_record(other.suggested, record)
    assert bytes_made(other) == before
    assert read_json(other.manifest) == read_json(run.manifest)
    suggest(demo_config(other.path))
    assert other.manifest.is_file()


@pytest.mark.parametrize(
    "name",
    [
        "problems.parquet", "config.toml", "suggested.json", "questions/questions.json",
        "questions/keys.bin", "questions/shards/0-0.parquet",
    ],
)  # fmt: skip
def test_what_was_changed_in_between_is_not_built_on(
    run: RunFolder, tmp_path: Path, name: str
) -> None:
    other = copy_of(run, tmp_path / "other")
    content = bytearray((other.path / name).read_bytes())
    content[-30] ^= 1
    (other.path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name.rpartition('/')[2]}.* got (other|an error)"):
        build(other.path)
    assert bytes_made(other) == bytes_made(run)


def test_one_command_at_a_time(run: RunFolder, tmp_path: Path) -> None:
    other = copy_of(run, tmp_path / "other")
    left = partial_path(other.variants), partial_path(other.candidates)
    left[0].touch()
    left[1].mkdir()
    foreign = partial_path(other.path / "predictions.parquet")
    foreign.touch()
    for command in (suggest, generate):
        with other.locked(), ThreadPoolExecutor(1) as pool:
            refused = pool.submit(command, demo_config(other.path)).exception(timeout=60)
        assert isinstance(refused, BlockingIOError)
        assert "another command is at work in this folder" in str(refused)
    build(other.path)
    assert not any(path.exists() for path in left)
    assert foreign.exists()
    assert bytes_made(other) == bytes_made(run)


@pytest.mark.slow
def test_an_unfinished_suggest_is_not_taken_for_the_one_before(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copy_of(run, tmp_path / "unfinished")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store_module.SuggestionStore, "fill", killed)
        with pytest.raises(KeyboardInterrupt):
            suggest(demo_config(other.path, word_classes=("noun",)), overwrite=True)
    for ablation in (None, "union"):
        with pytest.raises(FileNotFoundError, match="expected suggestions in"):
            build(other.path, ablation=ablation)


def test_a_folder_of_paraphrases_is_left_alone(tmp_path: Path) -> None:
    settings = ParaphraseConfig(generator="g", model="m").to_toml()
    (tmp_path / "config.toml").write_text(settings, encoding="utf-8")
    with pytest.raises(ValueError, match="got one of paraphrases; name another with --run"):
        suggest(demo_config(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
    assert (tmp_path / "config.toml").read_text(encoding="utf-8") == settings
