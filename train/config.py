"""What a training run is: one frozen record; the command line makes its flags from it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from loader.plan import PlanConfig
from loader.stream import LoaderConfig
from shards.errors import ConfigError, listing
from shards.geometry import ALIGN
from shards.sample import MAX_SAMPLE_PIXELS
from train.losses import LossName

Task = Literal["multiclass", "binary"]
Amp = Literal["auto", "off", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A run. Everything but the hardware's part must be the same to resume it."""

    shards: Path
    """Directory of the dataset."""
    out: Path
    """Directory of the run: checkpoints, metrics.jsonl, preview.png."""
    resume: bool = False
    """Go on from the newest checkpoint in --out; from the start if there is none."""

    task: Task = "multiclass"
    """Preset: multiclass is 16 images a step and Tversky; binary is 1 image a step and weighted BCE."""
    epochs: int = 50
    """Passes over the training split."""
    images_per_step: int = PlanConfig.images_per_step
    """Images whose gradients one optimiser update averages, whatever fits into memory at once."""
    loss: LossName = "tversky"
    """Per-image loss."""
    tversky_alpha: float = 0.3
    """Weight of false alarms."""
    tversky_beta: float = 0.7
    """Weight of misses: above alpha, because traces are a few pixels in a hundred."""
    positive_weight: float = 10.0
    """How often weighted BCE counts a pixel of class 1."""
    learning_rate: float = 1e-3
    """AdamW's peak rate, after the warm-up."""
    weight_decay: float = 1e-2
    """AdamW's decay."""
    warmup_share: float = 0.05
    """Share of all steps in which the rate rises linearly; then it falls to zero along a cosine."""
    clip_norm: float = 1.0
    """Largest norm of a step's gradient."""
    seed: int = 0
    """Decides the initial weights and, with the epoch, the order of samples."""
    max_pixels: int = MAX_SAMPLE_PIXELS
    """Largest box one sample may need; the run is refused before it starts if one needs more."""

    pixel_budget: int = LoaderConfig.pixel_budget
    """Hardware: most padded pixels of one forward and backward pass. Changes memory and speed, not the result. A pixel
    takes about 620 bytes in float32, so the default takes 10 GB: two of the widest logs."""
    threads: int = LoaderConfig.threads
    """Hardware: loader threads."""
    device: str = "auto"
    """Hardware: cpu, cuda, cuda:1; auto takes CUDA when there is one."""
    amp: Amp = "auto"
    """Mixed precision; auto is bf16 on CUDA and off on the CPU."""
    checkpoint_every: int = 1000
    """Steps between checkpoints inside an epoch; one is written at each epoch's end anyway."""
    checkpoints_kept: int = 3
    """Newest checkpoints that stay on disk."""

    def __post_init__(self) -> None:
        least = {
            "epochs": 1,
            "images_per_step": 1,
            "seed": 0,
            "max_pixels": ALIGN * ALIGN,
            "pixel_budget": 1,
            "threads": 1,
            "checkpoint_every": 1,
            "checkpoints_kept": 1,
            "tversky_alpha": 0,
            "tversky_beta": 0,
            "weight_decay": 0,
        }
        positive = ("learning_rate", "clip_norm", "positive_weight")
        problems = [
            f"{_flag(n)} is {getattr(self, n)}, expected at least {low}"
            for n, low in least.items()
            if getattr(self, n) < low
        ]
        problems += [
            f"{_flag(n)} is {getattr(self, n)}, expected more than 0" for n in positive if not getattr(self, n) > 0
        ]
        if not 0 <= self.warmup_share < 1:
            problems.append(f"--warmup-share is {self.warmup_share}, expected 0 to less than 1")
        if self.loss == "weighted_bce" and self.task != "binary":
            problems.append("--loss weighted_bce needs one logit a pixel: add --task binary")
        if problems:
            raise ConfigError(listing("train", problems))

    def plan(self, align: int) -> PlanConfig:
        """How epochs are dealt."""
        return PlanConfig(images_per_step=self.images_per_step, seed=self.seed, align=align, max_pixels=self.max_pixels)

    def loader(self) -> LoaderConfig:
        """What the hardware decides of loading."""
        return LoaderConfig(pixel_budget=self.pixel_budget, threads=self.threads)

    def meaning(self) -> dict[str, str | int | float]:
        """The settings that decide the result: what must be the same to resume."""
        return {name: value for name, value in asdict(self).items() if name not in _HARDWARE | _PLACES}


_PLACES = {"shards", "out", "resume"}
_HARDWARE = {"pixel_budget", "threads", "device", "checkpoint_every", "checkpoints_kept"}

PRESETS: dict[Task, dict[str, object]] = {
    "multiclass": {"images_per_step": 16, "loss": "tversky"},
    "binary": {"images_per_step": 1, "loss": "weighted_bce"},
}
"""The fields a task sets; every one can be overridden."""


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
