"""How fast to learn at each step."""

import math


def rate_factor(step: int, *, total: int, warmup_share: float) -> float:
    """Share of the peak learning rate at `step` of `total`, from 0: a linear warm-up, then half a cosine to zero.

    A pure function of the step, so a resumed run needs nothing of it. Loshchilov & Hutter 2017, arXiv:1608.03983,
    equation 5, without restarts.
    """
    warmup = round(warmup_share * total)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))
