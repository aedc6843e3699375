import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from loader.batch import valid_pixels
from train.layers import MaskedNormRelu, MaskedTransformerLayer, half_or_16, standardise, upsample

half_or_16_cases = json.loads((Path(__file__).parent / "planning.json").read_text())["half_or_16"]


@pytest.mark.parametrize("case", half_or_16_cases, ids=lambda case: str(case["channels"]))
def test_half_or_16_gives_the_known_groups(case: dict[str, int]) -> None:
    assert half_or_16(case["channels"]) == case["channels_per_group"]
    assert MaskedNormRelu(case["channels"]).groups == case["groups"]


def all_valid(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape[0], 1, *x.shape[2:], dtype=torch.bool)


@pytest.mark.parametrize("channels", [8, 32, 96])
def test_without_padding_the_norm_is_torchs_group_norm(channels: int) -> None:
    torch.manual_seed(0)
    norm = MaskedNormRelu(channels).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = 3 + torch.randn(2, channels, 6, 10, dtype=torch.double)
    expected = F.group_norm(x, norm.groups, norm.weight, norm.bias).relu()
    torch.testing.assert_close(norm(x, all_valid(x)), expected, rtol=1e-12, atol=1e-12)


def test_the_norms_gradient_is_the_numerical_one() -> None:
    torch.manual_seed(0)
    norm = MaskedNormRelu(32).double()
    torch.nn.init.normal_(norm.bias)
    x = torch.randn(2, 32, 3, 4, dtype=torch.double, requires_grad=True)
    valid = valid_pixels(torch.tensor([[3, 2], [2, 4]]), 3, 4)

    def through(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x, valid))
        return normed

    assert torch.autograd.gradcheck(through, (x, norm.weight, norm.bias))


@given(st.integers(1, 6), st.integers(1, 8), st.floats(-1e6, 1e6))
@settings(deadline=None, max_examples=30)
def test_the_norm_never_looks_at_the_padding(height: int, width: int, garbage: float) -> None:
    x = torch.randn(1, 16, 6, 8, dtype=torch.double)
    valid = valid_pixels(torch.tensor([[height, width]]), 6, 8)
    alone = x[:, :, :height, :width]
    norm = MaskedNormRelu(16).double()
    padded = norm(torch.where(valid, x, garbage), valid)
    torch.testing.assert_close(padded[:, :, :height, :width], norm(alone, all_valid(alone)))
    assert (padded[~valid.expand_as(padded)] == 0).all()


def test_standardised_pixels_have_zero_mean_and_unit_variance_over_the_sample() -> None:
    images = torch.randint(0, 256, (1, 1, 40, 64), dtype=torch.uint8)
    valid = valid_pixels(torch.tensor([[33, 50]]), 40, 64)
    pixels = standardise(images, valid, torch.double)[valid]
    assert pixels.mean() == pytest.approx(0, abs=1e-12)
    assert pixels.var(correction=0) == pytest.approx(1, abs=1e-4)  # the 1e-6 that keeps a blank page finite


def test_a_blank_page_stays_finite() -> None:
    images = torch.full((1, 1, 32, 32), 255, dtype=torch.uint8)
    assert (standardise(images, all_valid(images), torch.float32) == 0).all()


def test_upsampling_repeats_pixels_and_clears_the_padding() -> None:
    x = torch.arange(1.0, 7).view(1, 1, 2, 3)
    valid = valid_pixels(torch.tensor([[3, 5]]), 4, 6)
    expected = torch.kron(x[0, 0], torch.ones(2, 2))
    expected[3:] = 0
    expected[:, 5:] = 0
    assert torch.equal(upsample(x, valid)[0, 0], expected)


def test_attention_ignores_padded_tokens() -> None:
    torch.manual_seed(0)
    layer = MaskedTransformerLayer(16, heads=2).double()
    tokens = torch.randn(1, 7, 16, dtype=torch.double)
    valid = torch.tensor([[True, True, True, True, False, False, False]])
    tokens[:, 4:] = 1e3
    alone = layer(tokens[:, :4], valid[:, :4])
    torch.testing.assert_close(layer(tokens, valid)[:, :4], alone)
