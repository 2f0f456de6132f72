from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.commands import run as run_command
from helpers.one_problem import FakeTagger
from helpers.pages import commands, section
from helpers.reference import Span, cased_like, keeps_class, shared, slow_mlm, tag
from helpers.run_folders import copy_of
from helpers.tagged_texts import sentence
from helpers.tiny_models import tiny_model

from generation import Config, build, suggest
from generation.problems import on_disk as blocks
from generation.problems.on_disk import block_sizes, read_block
from generation.problems.tagging import TaggedProblems
from generation.records import Scores, Seed, SharedWord
from generation.run_counts import PASSED, count_passed, count_run
from generation.run_folder import RunFolder
from generation.suggestions import questions
from generation.suggestions.vocabulary import ATTACHED, OTHER, WHOLE, Vocabulary
from generation.variants import grammar
from generation.variants.equation import Lexicon, Words
from generation.variants.reasons import NOT_IN_VOCABULARY
from merge_dataset.files import digest_of_file, read_record
from merge_metric.analyses import analyse, run_folders

CLASSES = ("noun", "verb", "adjective")
K = 30

PROBLEMS = """\
premise\thypothesis\tlabel
A man and a man sleep near the dog.\tA man sleeps and the dog sleeps.\tentailment
The small child is playing with small balls.\tA small child plays.\tneutral
The dog has run home.\tThe dog will run and is running.\tcontradiction
Two boys swim.\tNobody is there.\tneutral
A girl really smiles.\tA girl really frowns.\tentailment
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on five problems in blocks of two, with two tiny masked LMs."""
    folder = tmp_path_factory.mktemp("counts")
    (folder / "problems.tsv").write_text(PROBLEMS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 2)
        patch.setattr(questions, "BLOCK", 4)
        config = Config.from_recipe(
            "paper-v2",
            run=str(folder / "run"),
            source="s",
            data=str(folder / "problems.tsv"),
            mlms=(str(tiny_model("bert-cased")), str(tiny_model("roberta"))),
            suggestions_per_occurrence=K,
            min_replacements=1,
            device="cpu",
        )
        made = suggest(config)
    count_run(made.path)
    return made


def passed(model: Path, text: str, span: Span, word: str) -> dict[str, int] | None:
    """Apply each filter alone, to one suggestion at a time; None for an unknown word."""
    mlm = slow_mlm(model)
    if mlm.suggestions(text, span, [span], K, False) is None:
        return None
    place = mlm.locate(text, span)
    ids = list(mlm.tokenizer(text)["input_ids"])
    assert place is not None
    original, ids[place] = ids[place], mlm.tokenizer.mask_token_id
    scores = mlm._logits[place, *ids]
    ranked = sorted(range(len(scores)), key=lambda number: -scores[number])[:K]
    result = Counter(suggestions=len(ranked))
    for number in ranked:
        part = mlm._pieces[number]
        read = mlm.read(part)[0]
        is_word = (
            number not in mlm.tokenizer.all_special_ids
            and read.isalpha()
            and mlm.is_whole_word(part, mlm._pieces[original])
        )
        same = is_word and keeps_class(text, word, cased_like(read.lower(), word), "coarse")
        more = scores[number] > scores[original]
        result += Counter(whole_words=is_word, same_class=same, more_probable=more)
        result += Counter(both=same and more)
    return dict(result)


def test_table_5_by_hand() -> None:
    """Six suggestions for "boy", of which two are no nouns, and one is no word.

    Whole words: man, run, boy, dog, nice. Nouns: man, boy, dog. Above the original: man, run, ##s.
    """
    texts = ("boy", "man", "run", "s", "dog", "nice", "")
    kinds = np.array([WHOLE, WHOLE, WHOLE, ATTACHED, WHOLE, WHOLE, OTHER], np.int8)
    scores = Scores(
        original=np.array([0, -1], np.int32),
        original_logit=np.array([2.0, np.nan], np.float32),
        log_normalizer=np.zeros(2, np.float32),
        tokens=np.array([[1, 2, 3, 0, 4, 5], [-1] * 6], np.int32),
        logits=np.array([[3.0, 2.5, 2.2, 2.0, 1.0, 0.5], [np.nan] * 6], np.float32),
        windowed=np.zeros(2, np.bool_),
    )
    tags = {"run": "VB", "nice": "JJ"}
    tagged, vocabulary = sentence("A/DT boy/NN runs/VBZ ./."), Vocabulary(texts, kinds)
    problems = TaggedProblems(
        [Seed(seed_id="s:1", source="s", texts=(tagged.text,) * 2, label="neutral")],
        {tagged.text: tagged},
        {"s:1": [SharedWord("boy", "noun", ((1,), (1,)))]},
    )
    counts = count_passed(
        Words.of(problems, Lexicon.of({"mlm": vocabulary}), Config()),
        {"mlm": (scores, vocabulary)},
        FakeTagger(lambda place, word: (tags.get(word, "NNS"),)),  # type: ignore[arg-type]
        tag_match="coarse",
    )
    assert dict(zip(PASSED, counts[0, 0].tolist(), strict=True)) == {
        "suggestions": 6, "whole_words": 5, "same_class": 3, "more_probable": 3, "both": 1,
    }  # fmt: skip
    assert counts[0, 1].tolist() == [0] * 5  # not in the vocabulary


@pytest.mark.slow
def test_each_filter_by_itself(run: RunFolder) -> None:
    expected: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    seeds = [
        seed for n in range(len(block_sizes(run.problems))) for seed in read_block(run.problems, n)
    ]
    for kind in ("bert-cased", "roberta"):
        for seed in seeds:
            for word, word_class in shared(seed, CLASSES, None):
                for field, text in zip(("premise", "hypothesis"), seed.texts, strict=True):
                    for span in [token.span for token in tag(text) if token.text == word]:
                        here = expected[kind, word_class, field]
                        counts = passed(tiny_model(kind), text, span, word)
                        here += Counter(occurrences=1, **(counts or {NOT_IN_VOCABULARY: 1}))
    record = read_record(run.counts)
    assert len(record["filters"]) == len(expected) == 12
    for row in record["filters"]:
        key = tuple(row.pop(name) for name in ("mlm", "word_class", "field"))
        assert {name: n for name, n in row.items() if n} == dict(expected[key]), key
    assert sum(row["both"] for row in record["filters"]) > 0


@pytest.mark.slow
def test_workers_and_repetition_leave_the_same_bytes(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = copy_of(run, tmp_path / "again")
    before = [digest_of_file(path) for path in (again.counts, again.shared_words)]
    build(again.path)
    manifest = again.manifest.read_bytes()
    again.counts.unlink()
    config = replace(Config.read(again.config), workers=2)
    monkeypatch.setattr(Config, "read", lambda path: config)
    shown = run_command("analyse", "filters", "--run", again.path).stdout
    assert "Suggestions that each filter by itself lets pass" in shown
    assert [digest_of_file(path) for path in (again.counts, again.shared_words)] == before
    assert again.manifest.read_bytes() == manifest


@pytest.mark.slow
def test_what_is_missing_or_changed_is_told(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    folder = copy_of(run, tmp_path / "run")

    def analysed(**more: Any) -> str:
        caplog.clear()
        with caplog.at_level("INFO"):
            told = run_command("analyse", "filters", "--run", folder.path, **more).stderr
        return told + caplog.text

    suggested, counts = folder.suggested.read_bytes(), folder.counts.read_bytes()
    assert "counting" not in analysed()
    folder.suggested.write_bytes(suggested + b" ")  # counts of other suggestions are made anew
    assert "counting what each filter lets pass" in analysed()
    assert folder.counts.read_bytes() != counts
    folder.suggested.write_bytes(suggested)
    analysed()
    assert folder.counts.read_bytes() == counts
    words = folder.shared_words.read_bytes()
    folder.shared_words.write_bytes(words[:-1])
    assert "counting" in analysed()  # counts whose files changed, too
    assert folder.shared_words.read_bytes() == words
    folder.counts.unlink()
    with monkeypatch.context() as alone:  # a program that does not make runs
        alone.setattr(run_folders, "MAKERS", {})
        with pytest.raises(FileNotFoundError, match="run: merge-nli analyse filters --run"):
            analyse("filters", (), run=folder.path)
    monkeypatch.setattr(grammar, "find_spec", lambda name: None)
    record = count_run(folder.path)
    assert not record["other_forms"]
    assert "lemminflect is not installed" in caplog.text
    forms = pq.ParquetFile(folder.shared_words).read()["other_forms"].to_pylist()
    assert forms == [None] * 8


@pytest.mark.slow
def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in commands(section("merge_metric/analyses.md", "Of the data itself")):
        result = run_command(*command)
    assert {path.name for path in tmp_path.glob("*.svg")} == {"table5.svg", "figure11.svg"}
    assert "Figures on 100 random draws of 10 seeds" in result.stdout
