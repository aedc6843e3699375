import math

import pytest

from train.schedule import rate_factor


def test_the_rate_rises_linearly_then_falls_along_half_a_cosine() -> None:
    factors = [rate_factor(step, total=100, warmup_share=0.1) for step in range(100)]
    assert factors[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert factors[10:] == pytest.approx([(1 + math.cos(math.pi * step / 90)) / 2 for step in range(90)])


def test_without_a_warm_up_it_starts_at_its_peak() -> None:
    assert rate_factor(0, total=3, warmup_share=0) == 1
