"""Text of a paper on figures: sentences, a small table for LaTeX, and what to cite."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from merge_dataset.card import environment
from merge_dataset.files import read_text
from merge_dataset.layout import CARD, PROVENANCE
from merge_dataset.provenance import read
from merge_dataset.schema import collection_name, parse_config_name
from merge_metric.seed_variant_accuracy.figures import CATALOGUE, sv_at
from merge_metric.seed_variant_accuracy.formatting import as_percent
from merge_metric.seed_variant_accuracy.scoring import VERSION
from merge_metric.tables import Column, Table, figure_column, figure_values
from merge_metric.tables.table import PACKAGES


def reporting(
    results: Mapping[str, Mapping[str, Mapping[str, Any]]],
    dataset: Path,
) -> str:
    """Write the sentences of a paper on figures, a table in LaTeX, and BibTeX.

    Args:
        results: Model → configuration → result of `scoring.score`.
        dataset: The dataset folder, which knows the masked LMs and what to cite.
    """
    by_config: dict[str, dict[str, Any]] = {}
    for model, of_model in results.items():
        for config, result in of_model.items():
            by_config.setdefault(config, {})[model] = result
    made = {
        config: read(dataset / collection_name(*parse_config_name(config)) / PROVENANCE)
        for config in by_config
    }
    one = next(iter(next(iter(by_config.values())).values()))
    ct = int(one["signature"].partition("|")[0].removeprefix("ct:"))
    figures = (
        CATALOGUE["seed_accuracy"],
        CATALOGUE["variant_accuracy"],
        sv_at(ct),
        CATALOGUE["relaxed_fooling_rate"],
    )
    signatures = dict.fromkeys(
        f"{config}: {result['signature_short']}"
        for config, models in by_config.items()
        for result in models.values()
    )
    table = Table(
        name="merge",
        title="Figures in percent, with 95 % intervals by bootstrap over seeds",
        columns=(
            Column("config", "configuration"),
            Column("model", "model"),
            Column("n_seeds", "seeds", "count"),
            *map(figure_column, figures),
        ),
        rows=tuple(
            {"config": config, "model": model, "n_seeds": result["n_seeds"]}
            | figure_values(result, figures)
            for config, models in by_config.items()
            for model, result in models.items()
        ),
        notes=(f"Signatures: {'; '.join(signatures)}",),
    )
    card = read_text(dataset / CARD)
    page = environment(Path(__file__).parent).get_template("reporting.md.j2")
    return page.render(
        percent=as_percent,
        results=by_config,
        dataset=dataset.name,
        mlms={config: [mlm["name"] for mlm in of.get("mlms", ())] for config, of in made.items()},
        ct=ct,
        version=VERSION,
        packages=PACKAGES,
        table=table.to_latex(),
        bibtex=card.partition("```bibtex\n")[2].partition("```")[0].strip(),
    )
