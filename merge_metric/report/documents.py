"""The report as Markdown, LaTeX and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from merge_metric.report.columns import definitions
from merge_metric.report.evidence import Configuration, Evidence
from merge_metric.report.facts import dataset_facts, model_text
from merge_metric.report.findings import findings
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.tables import seed_rows, tables
from merge_metric.seed_variant_accuracy.signature import VERSION
from merge_metric.tables import PACKAGES


def render_markdown(evidence: Evidence, sources: Sequence[SourceSeeds]) -> str:
    """Tables, findings and how it was measured, in GitHub's Markdown."""
    parts = [f"# MERGE report: {_plain(evidence.title)}", *_markdown_findings(evidence)]
    parts += ["## Tables", *(table.to_markdown() for table in tables(evidence, sources))]
    terms = definitions(
        replacements=evidence.has_replacements, paraphrases=evidence.has_paraphrases
    )
    parts += ["## Definitions", _list(terms), "## How it was measured"]
    for configuration in evidence.configurations:
        parts.append(f"### {configuration.name}")
        parts += [f"`{signature}`" for signature in configuration.signatures]
        if len(configuration.signatures) > 1:
            parts.append("The models were not all scored on the same seeds: do not compare them.")
    for name, facts in evidence.provenance.items():
        parts += [f"### Data of {name}", _list(dataset_facts(facts))]
    parts += ["### Models", _list(_models(evidence)), f"Made by merge-nli {VERSION}."]
    return "\n\n".join(parts) + "\n"


def render_latex(evidence: Evidence, sources: Sequence[SourceSeeds]) -> str:
    """The tables, to be put into a document that loads `tables.PACKAGES`."""
    head = [
        f"% MERGE report: {_comment(evidence.title)}",
        f"% Made by merge-nli {VERSION}. Needs {' '.join(PACKAGES)}.",
    ]
    for configuration in evidence.configurations:
        head += [f"% {configuration.name}: {sig}" for sig in configuration.signatures]
    found = [table.to_latex() for table in tables(evidence, sources)]
    return "\n\n".join(["\n".join(head), *found]) + "\n"


def render_json(evidence: Evidence, sources: Sequence[SourceSeeds]) -> str:
    """Everything: results as `scoring.score` gives them, and every seed, hardest first."""
    whole = {
        "title": evidence.title,
        "version": VERSION,
        "models": [
            {"name": model.name, "files": list(model.files), "description": dict(model.description)}
            for model in evidence.models
        ],
        "configurations": [
            {
                "name": c.name,
                "results": _by_model(evidence, c),
                "comparison": c.comparison and c.comparison.as_dict(),
            }
            for c in evidence.configurations
        ],
        "classes": [table.as_dict() for each in evidence.classes for table in each.tables],
        "provenance": evidence.provenance,
        "seeds": [row for source in sources for row in seed_rows(evidence, source)],
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _by_model(evidence: Evidence, configuration: Configuration) -> dict[str, Mapping[str, Any]]:
    pairs = zip(evidence.names, configuration.results, strict=True)
    return {name: result for name, result in pairs if result}


# --- Markdown ---


def _markdown_findings(evidence: Evidence) -> Iterator[str]:
    for configuration in evidence.configurations:
        yield f"## {configuration.name}"
        sentences = findings(evidence.names, configuration.results)
        yield "\n".join(f"- {_plain(sentence)}" for sentence in sentences)


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- **{_plain(term)}**: {_plain(text)}" for term, text in pairs)


def _models(evidence: Evidence) -> list[tuple[str, str]]:
    return [
        (
            model.name,
            f"predictions {', '.join(model.files)}; "
            + (model_text(model.description) or "the file does not say what made it"),
        )
        for model in evidence.models
    ]


def _plain(text: str) -> str:
    r"""Text in which Markdown sees no marks.

    >>> print(_plain("a_b <i>"))
    a\_b \<i\>
    """
    return "".join(f"\\{c}" if c in "\\`*_|<>[]#" else c for c in " ".join(text.split()))


# --- LaTeX ---


def _comment(text: str) -> str:
    return " ".join(text.split())
