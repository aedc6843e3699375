"""The training loop that consumes shards, and the network whose result does not depend on padding."""

from train.config import TrainConfig
from train.loop import RunResult, train
from train.model import ModelConfig, VeerNet, build_model

__all__ = ["ModelConfig", "RunResult", "TrainConfig", "VeerNet", "build_model", "train"]
