"""Streams shards as padded, masked micro-batches in a planned order, resumable anywhere."""

from loader.batch import IGNORE, Batch, BatchSource, LoaderReport
from loader.plan import EpochPlan, MicroBatch, PlanConfig, plan_epoch, split_step
from loader.stream import LoaderConfig, ShardLoader

__all__ = [
    "IGNORE",
    "Batch",
    "BatchSource",
    "EpochPlan",
    "LoaderConfig",
    "LoaderReport",
    "MicroBatch",
    "PlanConfig",
    "ShardLoader",
    "plan_epoch",
    "split_step",
]
