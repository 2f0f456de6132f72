from merge_metric.seed_variant_accuracy.figures import CATALOGUE, estimate, figures, sv_at
from merge_metric.seed_variant_accuracy.scoring import count, read_rows, score
from merge_metric.tables import figure_values

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


def test_results_are_read_by_it() -> None:
    result = score(**COLUMNS, n_bootstrap=20)
    for key, figure in CATALOGUE.items():
        assert estimate(result, figure) == (result[key], *(result[f"{key}_ci"] or ()))
    curve = result["sv_curve"]
    expected = (curve["accuracy"][49], curve["low"][49], curve["high"][49])
    assert estimate(result, sv_at(50)) == expected
    values = figure_values(result, [sv_at(50), CATALOGUE["qt_gap"]])
    assert values["sv_at_50"] == 1.0
    assert values["qt_gap_ci"] == result["qt_gap_ci"]
