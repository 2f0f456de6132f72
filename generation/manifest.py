"""The manifest: what a build made, from what, with which counts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from generation.config import Config
from generation.run_folder import RunFolder
from generation.variants.changes import Fate
from generation.variants.funnel import KEPT, Funnel
from merge_dataset.files import digest_of, digests

_PACKAGES = (
    "datasets",
    "inflect",
    "numpy",
    "pyarrow",
    "spacy",
    "tokenizers",
    "torch",
    "transformers",
    "wordfreq",
)


def manifest_of(
    out: RunFolder,
    config: Config,
    suggested: Mapping[str, Any],
    *,
    signals: Mapping[str, Any] | None,
    tagger: str,
    funnel: Funnel,
    changes: Mapping[Fate, int] | None,
    eligible: Mapping[str, int],
    variants: int,
) -> dict[str, Any]:
    """What stands in `manifest.json`.

    Args:
        out: The folder with the build's files, which are digested.
        config: The settings of the build.
        suggested: What `suggest` left in `suggested.json`.
        signals: What `merge-nli signals` did, where the build has its outcome.
        tagger: Its name and version.
        funnel: What became of the suggestions.
        changes: What became of that which changes more than one word, where that may be.
        eligible: Word class → eligible seeds.
        variants: How many were drawn.
    """
    settings = config.output_settings()
    mlms = [{k: v for k, v in m.items() if k != "store"} for m in suggested["mlms"]]
    made_from = {
        "config": settings,
        "source_data": suggested["source_data"],
        "mlms": mlms,
        **({"signals": signals} if signals else {}),
        "tagger": tagger,
    }
    return {
        "source": config.source,
        "recipe": config.recipe,
        "ablation": config.ablation,
        "fingerprint": digest_of(made_from),
        **made_from,
        "packages": versions(*_PACKAGES),
        "problems": {
            **suggested["problems"],
            "unlabelled": len(suggested["problems"]["unlabelled"]),
        },
        "questions": suggested["questions"],
        "funnel": funnel.rows(),
        **({} if changes is None else {"changes": change_rows(changes)}),
        "eligible": {word_class: eligible.get(word_class, 0) for word_class in config.word_classes},
        "variants": variants,
        "files": digests(
            {
                path.name: path
                for path in (out.replacements, out.exclusions, out.seeds, out.variants)
            }
        ),
    }


def change_rows(changes: Mapping[Fate, int]) -> list[dict[str, Any]]:
    """One record per kind and word class: how many were kept, and how many rejected for what."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for (what, word_class, fate), count in sorted(changes.items()):
        row = rows.setdefault((what, word_class), {"what": what, "word_class": word_class, KEPT: 0})
        row[fate] = count
    return list(rows.values())


def versions(*packages: str) -> dict[str, str]:
    """Installed versions of packages by name."""
    return {name: version(name) for name in packages}
