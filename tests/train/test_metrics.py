import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from loader.batch import IGNORE, valid_pixels
from train.metrics import confusion, iou, predicted_classes


def test_iou_of_a_known_matrix() -> None:
    matrix = torch.tensor([[50, 3, 0], [5, 20, 0], [0, 0, 0]])
    assert iou(matrix) == pytest.approx([50 / 58, 20 / 28, 1.0])


def test_only_valid_pixels_are_counted() -> None:
    sizes = torch.tensor([[2, 3]])
    target = torch.tensor([[[0, 1, 2, IGNORE], [2, 2, 0, IGNORE], [IGNORE] * 4]], dtype=torch.uint8)
    predicted = torch.tensor([[[0, 1, 1, 2], [2, 0, 0, 2], [2] * 4]])
    expected = torch.tensor([[2, 0, 0], [0, 1, 0], [1, 1, 1]])
    assert torch.equal(confusion(predicted, target, valid_pixels(sizes, 3, 4), 3), expected)


@given(st.integers(1, 7))
def test_any_batching_gives_the_same_matrix(cut: int) -> None:
    generator = torch.Generator().manual_seed(0)
    predicted, target = (torch.randint(0, 4, (8, 6, 5), generator=generator) for _ in range(2))
    target = target.to(torch.uint8)
    valid = torch.rand(8, 1, 6, 5, generator=generator) < 0.8
    whole = confusion(predicted, target, valid, 4)
    parts = [confusion(predicted[part], target[part], valid[part], 4) for part in (slice(cut), slice(cut, None))]
    assert torch.equal(parts[0] + parts[1], whole)
    assert whole.dtype == torch.int64


def test_one_logit_predicts_class_one_where_it_is_positive() -> None:
    logits = torch.tensor([[[[-1.0, 2.0]]]])
    assert predicted_classes(logits).tolist() == [[[0, 1]]]
    assert predicted_classes(torch.cat([-logits, logits], 1)).tolist() == [[[0, 1]]]
