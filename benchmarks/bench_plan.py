"""What planning saves, and what it costs."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.conftest import Report
from loader.plan import EpochPlan, MicroBatch, PlanConfig, plan_epoch, planned_padding, split_step
from loader.stream import LAUNCH_PIXELS, LoaderConfig
from shards.geometry import Sizes, batched_padding, floor_padding

_BATCH = 8  # images of a micro-batch in the padding figures, as in DESIGN §8


def bench_padding(benchmark: BenchmarkFixture, report: Report) -> None:
    sizes = _full_range_sizes(12_000)
    plan = plan_epoch(sizes, PlanConfig(), epoch=0)
    micro_batches = benchmark(_cut, plan, sizes)
    shuffled = np.random.default_rng(0).permutation(len(sizes))
    each = len(sizes) / len(micro_batches)
    paddings = {
        "floor, each log alone": (floor_padding(sizes), "2.9 %"),
        f"planned, batches of {_BATCH}": (batched_padding(sizes, plan.order, _BATCH), "at most 3.6 %"),
        f"random, batches of {_BATCH}": (batched_padding(sizes, shuffled, _BATCH), "39.9 %"),
        f"planned, as the loader cuts it ({each:.1f} a batch)": (planned_padding(iter(micro_batches), sizes), ""),
    }
    for how, (padding, goal) in paddings.items():
        benchmark.extra_info[how] = padding.share
        report("padding of 12,000 full-range sizes", batches=how, padding=f"{100 * padding.share:.2f} %", goal=goal)
    report(
        "planning", what="cut all 750 steps of 12,000 samples", median=f"{_milliseconds(benchmark):,.1f} ms", goal=""
    )


@pytest.mark.parametrize("samples", [12_000, 1_000_000])
def bench_plan_epoch(benchmark: BenchmarkFixture, report: Report, samples: int) -> None:
    benchmark(plan_epoch, _full_range_sizes(samples), PlanConfig(), epoch=0)
    goal = {12_000: "under 50 ms", 1_000_000: "under 5 s"}[samples]
    report("planning", what=f"plan {samples:,} samples", median=f"{_milliseconds(benchmark):,.1f} ms", goal=goal)


@pytest.mark.parametrize("images", [16, 64])
def bench_split_step(benchmark: BenchmarkFixture, report: Report, images: int) -> None:
    sizes = _full_range_sizes(12_000)
    plan = plan_epoch(sizes, PlanConfig(images_per_step=images), epoch=0)
    benchmark(_split, plan, sizes, 0)
    report("planning", what=f"cut a step of {images}", median=f"{_milliseconds(benchmark):,.3f} ms", goal="")


def _full_range_sizes(count: int) -> Sizes:
    return np.random.default_rng(0).integers([480, 3200], [641, 12801], (count, 2), dtype=np.int32)


def _cut(plan: EpochPlan, sizes: Sizes) -> list[MicroBatch]:
    return [micro_batch for step in range(len(plan)) for micro_batch in _split(plan, sizes, step)]


def _split(plan: EpochPlan, sizes: Sizes, step: int) -> tuple[MicroBatch, ...]:
    """As `ShardLoader` does on a GPU with its default budget."""
    budget, launch = LoaderConfig().pixel_budget, LAUNCH_PIXELS["cuda"]
    return split_step(plan.step(step), sizes, pixel_budget=budget, launch_pixels=launch)[0]


def _milliseconds(benchmark: BenchmarkFixture) -> float:
    """The median over the rounds."""
    assert benchmark.stats is not None
    return 1000 * float(benchmark.stats.stats.median)
