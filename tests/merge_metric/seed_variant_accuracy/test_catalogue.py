from merge_metric.seed_variant_accuracy.figures import CATALOGUE, figures
from merge_metric.seed_variant_accuracy.scoring import count, read_rows

COLUMNS = {
    "predictions": [0, 0, 0, 1], "references": [0] * 4, "seed_ids": [1, 1, 2, 2],
    "seed_predictions": [0] * 4,
}  # fmt: skip


def test_every_figure_is_in_the_catalogue() -> None:
    computed = figures(count(read_rows(**COLUMNS))).scalars
    assert set(CATALOGUE) == set(computed)
    rows = CATALOGUE.values()
    assert all(figure.name and figure.meaning.endswith(".") for figure in rows)
    headings = [figure.heading for figure in rows]
    assert len(set(headings)) == len(headings)
    assert max(map(len, headings)) <= 8
