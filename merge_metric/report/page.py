"""The report as one HTML file: it opens from disk, and can reach nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

import jinja2
from markupsafe import Markup, escape

from merge_dataset.provenance import PARAPHRASES
from merge_metric.comparison import DECISIVE, Comparison
from merge_metric.report import columns
from merge_metric.report.columns import Column, Result, cell, interval, number
from merge_metric.report.embed import embed
from merge_metric.report.evidence import Configuration, Evidence, Part, joined
from merge_metric.report.facts import dataset_facts, model_text
from merge_metric.report.findings import findings
from merge_metric.report.panels import lines
from merge_metric.report.seeds import SourceSeeds
from merge_metric.report.styles import style
from merge_metric.report.tables import FEW
from merge_metric.seed_variant_accuracy.signature import VERSION

STYLES: Final = ("uPlot.min.css", "report.css")
SCRIPTS: Final = ("uPlot.iife.min.js", "report.js", "curves.js", "problems.js")
"""In the order in which they run; each on its own."""

Row = Mapping[str, Any]
"""Of a table."""

HEAT_STEPS: Final = 9

SHIFT_KEYS: Final = (
    "jsd_changed",
    "jsd_unchanged",
    "ks_changed",
    "ks_unchanged",
    "sigma_seeds",
    "sigma_changed",
    "sigma_unchanged",
)


def render_page(evidence: Evidence, sources: Sequence[SourceSeeds], sampled: str) -> str:
    """The report as HTML.

    Args:
        evidence: What was measured.
        sources: The problems, with the variants to be shown.
        sampled: A sentence on which variants these are.
    """
    stylesheet = "\n".join(map(_asset, STYLES))
    scripts = [_asset(name) for name in SCRIPTS]
    low, high = heat_range(evidence)
    data = embed(evidence, sources) | {
        "styles": [_plain_style(i) for i in range(len(evidence.models))],
        "heatSteps": HEAT_STEPS,
    }
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            evidence=evidence,
            few=len(evidence.models) <= FEW,
            version=VERSION,
            policy=content_policy(scripts, [stylesheet]),
            style=stylesheet,
            scripts=scripts,
            uplot_licence=_asset("uPlot.LICENSE"),
            data=data,
            sampled=sampled,
            headline_columns=columns.HEADLINE,
            breakdown_columns=columns.BREAKDOWN,
            matching=columns.MATCHING,
            seed=columns.SEED,
            sv90=columns.sv_column(90),
            relaxed=columns.RELAXED,
            strict=columns.STRICT,
            lede=lede(evidence),
            definitions=columns.definitions(
                replacements=evidence.has_replacements,
                paraphrases=evidence.has_paraphrases,
                is_nli=evidence.is_nli,
            ),
            shift_keys=SHIFT_KEYS,
            heat_range=(low, high),
            heat_parts=heat_parts,
            heat_step=lambda result: heat_step(result, low, high),
            dataset_facts={
                name: dataset_facts(facts) for name, facts in evidence.provenance.items()
            },
            mlm_names=_mlm_names(evidence),
            paraphrasers=_paraphrasers(evidence),
            model_text=lambda model: model_text(model.description),
            signed=lambda configuration, signature: _signed(evidence, configuration, signature),
            is_best=is_best,
            findings=findings,
            lines=lines,
            style_of=style,
            comparison_rows=comparison_rows,
            decisive=DECISIVE,
            cell=cell,
            number=number,
            interval=interval,
            fraction=lambda value: "–" if value is None else f"{value:.3f}",
            labels=evidence.labels,
        )
    )


def lede(evidence: Evidence) -> str:
    """What seeds and variants are, according to the kinds of variants that there are."""
    text = f"{columns.seed_is(is_nli=evidence.is_nli)[:-1]}. Each of its variants "
    replaces = "replaces one word that premise and hypothesis share by another that fits both"
    if not evidence.is_nli:
        replaces = "replaces one word that its texts share by another that fits all of them"
    paraphrases = "paraphrases its hypothesis as a whole"
    if not evidence.has_paraphrases:
        text += replaces
    elif evidence.has_replacements:
        text += f"{replaces}, or {paraphrases}"
    else:
        text += paraphrases
    return (
        f"{text}; the gold label stays. A model that solves a seed by understanding it solves its "
        f"variants too."
    )


def content_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """A content security policy under which only these texts run and nothing is loaded."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(_source_hash, scripts))}",
            f"style-src {' '.join(map(_source_hash, styles))}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def heat_parts(configuration: Configuration) -> list[Part]:
    """All variants of a configuration, and those of each word class."""
    return [part for part in configuration.parts() if part.kind != "label"]


def heat_range(evidence: Evidence) -> tuple[int, int]:
    """From where to where the colours of the matching thresholds go, in percent."""
    values = [
        value
        for configuration in evidence.configurations
        for part in heat_parts(configuration)
        for result in part.results
        if result and (value := cell(result, columns.MATCHING).value) is not None
    ]
    low, high = (int(bound // 10 * 10) for bound in (min(values), max(values) + 9.999))
    return low, max(high, low + 10)


def heat_step(result: Result | None, low: int, high: int) -> str:
    """The class of a cell's colour: h0, the palest, to h8."""
    value = cell(result, columns.MATCHING).value if result else None
    if value is None:
        return "none"
    return f"h{min(HEAT_STEPS - 1, int(HEAT_STEPS * (value - low) / (high - low)))}"


def comparison_rows(
    comparison: Comparison,
) -> list[tuple[Row, list[Row | None]]]:
    """Models, the best first: row of the ranking, and its pairs with the second to the last.

    None where the other model is no worse.
    """
    models = comparison.models.rows
    pairs = {(pair["a"], pair["b"]): pair for pair in comparison.pairs.rows}
    return [
        (row, [pairs.get((row["model"], other["model"])) for other in models[1:]]) for row in models
    ]


def is_best(results: Sequence[Result | None], result: Result, column: Column) -> bool:
    """Whether a figure, as shown, is the best of several models."""
    scored = [each for each in results if each]
    values = [round(v, 1) for r in scored if (v := cell(r, column).value) is not None]
    mine = cell(result, column).value
    if mine is None or len(scored) < 2:
        return False
    return round(mine, 1) == (min(values) if column.falling else max(values))


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("merge_metric.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_function"] = _compact_json
    environment.policies["json.dumps_kwargs"] = {}
    environment.filters["breakable"] = _breakable
    environment.filters["groupby_model"] = _by_model
    return environment


def _compact_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _breakable(signature: str) -> Markup:
    """A signature that may be broken between its parts."""
    return Markup("|<wbr>").join(map(escape, signature.split("|")))


def _by_model(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Model → its rows, in the order given; the filter of Jinja sorts."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["model"], []).append(row)
    return list(found.items())


def _asset(name: str) -> str:
    return (resources.files("merge_metric.report") / "assets" / name).read_text(encoding="utf-8")


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _plain_style(position: int) -> dict[str, Any]:
    of = style(position)
    return {"colour": of.colour, "dash": list(of.dash), "marker": of.marker}


def _mlm_names(evidence: Evidence) -> list[str]:
    """Of the masked language models of all sources, each once."""
    every = (facts.get("mlms") or () for facts in evidence.provenance.values())
    return list(dict.fromkeys(mlm["name"] for mlms in every for mlm in mlms))


def _paraphrasers(evidence: Evidence) -> list[str]:
    """Text generators and the NLI models that chose among what they wrote, each pair once."""
    found = (
        f"{facts['generator']['name']}, chosen by {facts['nli_model']['name']}"
        for facts in evidence.provenance.values()
        if facts.get("kind") == PARAPHRASES and {"generator", "nli_model"} <= facts.keys()
    )
    return list(dict.fromkeys(found))


def _signed(evidence: Evidence, configuration: Configuration, signature: str) -> str:
    """Names of the models whose result has a signature."""
    return joined(
        [
            name
            for name, result in zip(evidence.names, configuration.results, strict=True)
            if result and result["signature"] == signature
        ]
    )
