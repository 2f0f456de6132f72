from merge_metric.seed_variant_accuracy.figures import CATALOGUE, estimate, figures, percent, sv_at
from merge_metric.seed_variant_accuracy.scoring import count, read_rows, score
from merge_metric.tables import figure_column, figure_values

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


def test_texts_are_filled_in() -> None:
    figure = CATALOGUE["seed_variant_accuracy"].at(75)
    assert (figure.name, figure.heading) == ("SV accuracy at CT 75", "SV@75")
    assert "at least 75 %" in figure.meaning
    assert all("{" not in figure.at(90).explanation for figure in CATALOGUE.values())
    assert CATALOGUE["matching_threshold"].explanation.endswith("their range is shown.")


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


def test_columns_have_its_units() -> None:
    kinds = {
        key: (figure_column(figure).kind, figure_column(figure, difference=True).kind)
        for key, figure in CATALOGUE.items()
    }
    assert kinds["seed_accuracy"] == ("share", "points")
    assert kinds["matching_threshold"] == ("threshold", "gain")
    assert kinds["qt_gap"] == ("points", "points")
    assert [percent(0.5, "share"), percent(51, "threshold")] == [50, 51]


def test_directions() -> None:
    """For fooling rates and gaps, lower is better."""
    for worse in ("relaxed_fooling_rate", "strict_fooling_rate", "qt_gap"):
        assert not CATALOGUE[worse].higher_is_better
    assert CATALOGUE["matching_threshold"].higher_is_better
