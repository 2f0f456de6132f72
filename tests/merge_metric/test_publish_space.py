import json
import re
import sys
from types import SimpleNamespace

import pytest
from helpers.hub.publishing import STRANGER, Desk
from helpers.hub.repositories import Entry

from merge_dataset.hub.load_back import check_metric
from merge_metric.commands.publish import EXAMPLE
from merge_metric.register import SPACE, module_files
from merge_metric.seed_variant_accuracy.scoring import score

NAME = "somebody/seed_variant_accuracy"


def local() -> dict[str, bytes]:
    """All files in the metric's folder that git keeps."""
    return {path.name: path.read_bytes() for path in SPACE.iterdir() if path.is_file()}


FIGURES = {"seed_accuracy": 1.0, "variant_accuracy": 0.75, "seed_variant_accuracy": 0.5}
"""The figures of the example, computed by hand."""


@pytest.mark.slow
def test_publishing_and_again(desk: Desk) -> None:
    arguments = ("metric", NAME, "--private", "--yes", "--format", "json")
    result = desk.good(*arguments, verify=True)
    repo = desk.hub.repo("space", NAME)
    assert (repo.sdk, repo.private) == ("gradio", True)
    assert repo.history() == ["The metric of merge-nli", "initial commit"]
    published = repo.at()
    del published[".gitattributes"]
    assert published == local()
    done = result.value["done"]
    assert (done["revision"], done["figures"]) == (repo.branches["main"], FIGURES)
    loaded = {r.path.rpartition("/")[2] for r in desk.hub.requests if r.route == "resolve"}
    assert set(module_files()) - {"__init__.py"} <= loaded
    desk.hub.requests.clear()
    again = desk.good("metric", NAME, "--yes")
    assert f"main is at {repo.branches['main']}, as before" in again.out
    assert f'evaluate.load("{NAME}")' in again.out
    assert desk.written() == []


def test_modules_of_an_earlier_version_go(desk: Desk) -> None:
    repo = desk.hub.make("space", NAME, sdk="gradio")
    repo.add("main", {"old.py": Entry(b"", False), "logo.png": Entry(b"x", False)}, "Earlier")
    desk.good("metric", NAME, "--yes")
    assert set(repo.at()) == {"logo.png", *local()}


def test_space_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    example = {"arguments": EXAMPLE, "result": score(**EXAMPLE)}
    for changed, told in (
        ({"variant_accuracy": 0.5}, "of this version, got {'variant_accuracy': 0.5}"),
        ({"signature": "other"}, "of this version, got {'signature': 'other'}"),
    ):
        metric = SimpleNamespace(compute=lambda changed=changed, **given: score(**given) | changed)
        monkeypatch.setitem(sys.modules, "evaluate", SimpleNamespace(load=lambda _, m=metric: m))
        with pytest.raises(ValueError, match=re.escape(told)):
            check_metric(NAME, json.dumps(example))


def test_spaces_that_cannot_be(desk: Desk) -> None:
    text = desk.refused("metric", "somebody/sva")
    assert "expected a Space called OWNER/seed_variant_accuracy, got 'somebody/sva'" in text
    assert desk.hub.requests == []
    text = desk.refused("metric", NAME, "--yes", token=STRANGER, code=1)
    assert "You don't have the rights to create a space under the namespace" in text
    text = desk.refused("metric", NAME, "--yes", token=None, code=1)
    assert "your token is not accepted; run `hf auth login` again" in text
    assert desk.hub.repos == {}
    desk.hub.make("space", NAME, sdk="gradio")
    text = desk.refused("metric", NAME, "--private", "--yes")
    assert "to be private, it is public" in text
