import random
from pathlib import Path
from typing import Final

from helpers.dataset_files import run_manifest, seed_row, write_run
from helpers.tiny_models import sentences
from merge_dataset.export import export_dataset
from merge_dataset.schema import NLI, ProblemFormat

SUBSAMPLES: Final = 3


def write_folder(
    folder: Path, *, source: str = "snli", problem_format: ProblemFormat = NLI
) -> Path:
    """Write a dataset folder, with its run beside it: seeds have nouns, every second also verbs."""
    fields, n_labels = problem_format.fields, len(problem_format.labels)
    texts, rng = sentences(300), random.Random(7)
    rows, variants = [], []
    for number in range(8):
        name, label = f"{source}:{number}", number % n_labels
        # As in users' texts: quotes, commas, braces, and letters beyond ASCII.
        premise = f'{texts[number]} "Café {{x}}", it says.'
        others = [texts[100 + number + 50 * n] for n in range(len(fields) - 1)]
        votes = (label, 1)
        rows.append(seed_row(name, (premise, *others), label, votes, problem_format))
        for word_class in ("noun", "verb")[: 1 + (number % 2)]:
            for i in range(6):
                other = (texts[rng.randrange(200)], texts[200 + number], *others[1:])
                drawn = {i % SUBSAMPLES} | {k for k in range(SUBSAMPLES) if rng.random() < 0.3}
                row = seed_row(name, other, label, votes, problem_format) | {
                    "variant_id": f"{name}/{word_class}/{i}",
                    "word_class": word_class,
                    "original": "x",
                    "replacement": "y",
                    f"{fields[0]}_spans": [[0, 1], [2, 3]],
                    "mlms": ["a/b", "c"],
                    "log_odds": 0.1 * (i + 1),
                    "mlm_count": 2,
                    "zipf_frequency": 4.0 + 0.1 * i,
                    "number_changed": i % 2 == 0,
                    "article_fits": None if i else True,
                    "subsamples": sorted(drawn),
                }
                variants.append(row)
    manifest = run_manifest(source)
    if problem_format != NLI:
        manifest["config"] |= {"fields": fields, "labels": problem_format.labels}
    run = folder.with_name(f"run-of-{folder.name}")
    write_run(run, rows, variants, manifest, problem_format)
    export_dataset(run, folder)
    return folder
