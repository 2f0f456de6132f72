import pytest
import torch
from helpers.tiny_models import tiny_model
from transformers import AutoModelForMaskedLM

from generation.suggestions.masked_lm import most_probable
from merge_metric.models.checkpoints import load
from merge_metric.models.fast_layers import FLAT, can_pack, is_flat, rows_for, vectors_at
from merge_metric.models.inspection import MASKED_LM, inspect

needs_packing = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.float32), reason="needs an x86 CPU with oneDNN"
)


def some_ids(*lengths: int) -> list[list[int]]:
    random = torch.Generator().manual_seed(0)
    return [torch.randint(5, 200, (length,), generator=random).tolist() for length in lengths]


@needs_packing
@pytest.mark.parametrize("kind", ["albert", "bert-uncased", "electra", "roberta"])
def test_each_text_is_seen_alone(kind: str) -> None:
    folder = tiny_model(kind)
    model = load(inspect(folder, MASKED_LM), device="cpu", dtype="float32").model
    plain = AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval().base_model
    assert is_flat(model)
    assert model.config.model_type in FLAT
    trunk = model.base_model
    texts = some_ids(3, 3, 9, 1, 40, 40, 40, 7)
    texts[2][4] = model.config.pad_token_id
    places = [0, 2, 5, 0, 39, 0, 20, 6]
    with torch.inference_mode():
        found = vectors_at(places, trunk, texts)
        for vector, place, text in zip(found, places, texts, strict=False):
            expected = plain(input_ids=torch.tensor([text]))[0][0, place]
            torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-5)
            assert torch.equal(vector, vectors_at([place], trunk, [text])[0])


def test_numbers_of_rows_are_few() -> None:
    """At least as many as given, less than a quarter more from 64 on, and four per doubling."""
    found = {count: rows_for(count) for count in range(1, 5000)}
    assert all(0 <= rows - count < max(16, count / 4) for count, rows in found.items())
    assert len(set(found.values())) < 8 + 4 * 6


@pytest.mark.parametrize(("size", "k"), [(30_522, 200), (1_000, 200), (250, 200), (200, 200)])
def test_the_most_probable_are_those_of_a_sort(size: int, k: int) -> None:
    """Ties, infinities and zeros of both signs are included: the lower token comes first."""
    random = torch.Generator().manual_seed(size)
    logits = torch.randn(5, size, generator=random)
    logits[1] = logits[1].round()  # many ties
    logits[2, ::2] = -torch.inf
    logits[3] = torch.where(logits[3] > 0, 0.0, -0.0)
    logits[4, 7] = torch.inf
    tokens, values = most_probable(logits, k)
    for row in range(5):
        order = sorted(range(size), key=lambda token: (-float(logits[row, token]), token))
        assert tokens[row].tolist() == order[:k]
        assert torch.equal(values[row], logits[row, order[:k]])
    nothing = torch.full((2, size), torch.nan)
    assert most_probable(nothing, k)[1].isnan().all()
    assert most_probable(logits[:0], k)[0].shape == (0, k)
