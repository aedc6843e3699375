"""Training: feed, forward, backward, step; validate; survive."""

import logging
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from loader.stream import ShardLoader
from shards.errors import ConfigError, DivergenceError, StateError
from shards.geometry import Padding
from shards.load import load_manifest
from shards.manifest import Manifest
from shards.preview import SheetRow
from train.checkpoint import newest_checkpoint, save_checkpoint
from train.config import TrainConfig
from train.losses import loss_named
from train.metrics import confusion, iou, predicted_classes
from train.model import ModelConfig, build_model
from train.report import (
    EpochRecord,
    Listener,
    MetricsFile,
    Record,
    StepRecord,
    prediction_row,
    save_sheet,
    unheard,
)
from train.schedule import rate_factor

_log = logging.getLogger(__name__)

_SHEET_LOGS = 8  # validation logs on preview.png


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """How a run ended."""

    finished: bool
    """False if it was asked to stop; it can be resumed."""
    last: EpochRecord | None
    """The last validated epoch of this process."""
    padding: Padding
    """Of the last epoch, as far as this process ran it."""
    preview: Path


class Trainer:
    """One run: its data, its model, and everything that a checkpoint holds."""

    def __init__(self, config: TrainConfig, manifest: Manifest) -> None:
        self.config = config
        self.classes = manifest.header.classes
        if config.task == "binary" and len(self.classes) != 2:
            raise ConfigError(f"--task binary needs 2 classes, {manifest.root} has {len(self.classes)}: {self.classes}")
        self.device = _device(config.device)
        plan = config.plan(manifest.header.align)
        self.train = ShardLoader(manifest, plan=plan, config=config.loader(), device=self.device)
        self.val = ShardLoader(manifest, split="val", plan=plan, config=config.loader(), device=self.device)
        self.steps_per_epoch = len(self.train.plan(0))
        outputs = 1 if config.task == "binary" else len(self.classes)
        self.model = build_model(ModelConfig(outputs=outputs), seed=config.seed).to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.criterion = loss_named(
            config.loss,
            alpha=config.tversky_alpha,
            beta=config.tversky_beta,
            positive_weight=config.positive_weight,
        )
        self.amp = _amp_dtype(config, self.device)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp == torch.float16)
        self.step = 0
        self.epoch_loss = 0.0  # sum over the images of the epoch so far

    def autocast(self) -> torch.autocast:
        """The precision of the forward pass."""
        return torch.autocast(self.device.type, dtype=self.amp, enabled=self.amp != torch.float32)

    def update(self) -> float:
        """One optimiser step at this step's learning rate, from the accumulated gradients. Returns their norm."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.step += 1
        return float(norm)

    @property
    def rate(self) -> float:
        """Learning rate of the next update."""
        total = self.config.epochs * self.steps_per_epoch
        factor = rate_factor(self.step, total=total, warmup_share=self.config.warmup_share)
        return self.config.learning_rate * factor

    def state_dict(self, metrics_bytes: int) -> dict[str, Any]:
        """Everything that decides how the run goes on."""
        return {
            "meaning": self.config.meaning(),
            "model_config": asdict(self.model.config),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if self.device.type == "cuda" else [],
            "loader": self.train.state_dict(),
            "step": self.step,
            "epoch_loss": self.epoch_loss,
            "metrics_bytes": metrics_bytes,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Raises:
            StateError: It belongs to a run with other settings, another model or other data; says which.
        """
        if missing := self.state_dict(0).keys() - state.keys():
            raise StateError(f"{self.config.out}: the checkpoint has no {', '.join(sorted(missing))}; start anew")
        sides = [("setting", state["meaning"], self.config.meaning())]
        sides += [("model's", state["model_config"], asdict(self.model.config))]
        for what, saved, ours in sides:
            for name in saved.keys() | ours.keys():
                if saved.get(name) != ours.get(name):
                    raise StateError(
                        f"{self.config.out}: the {what} {name} was {saved.get(name)!r}, now it is {ours.get(name)!r}; "
                        "resume with the same, or start anew in another --out"
                    )
        self.train.load_state_dict(state["loader"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"])
        if self.device.type == "cuda" and state["cuda_rng"]:
            torch.cuda.set_rng_state_all(state["cuda_rng"])
        self.step, self.epoch_loss = state["step"], state["epoch_loss"]


def train(config: TrainConfig, listener: Listener = unheard) -> RunResult:
    """Run, or go on with, a training.

    Raises:
        WellfeedError: The dataset, the settings or the checkpoint do not fit.
    """
    trainer = Trainer(config, load_manifest(config.shards))
    checkpoints = config.out / "checkpoints"
    state = newest_checkpoint(checkpoints)
    if state and not config.resume:
        raise ConfigError(f"{config.out}: already holds a run; add --resume to go on with it, or choose another --out")
    if state:
        trainer.load_state_dict(state)
    config.out.mkdir(parents=True, exist_ok=True)
    metrics = MetricsFile(config.out / "metrics.jsonl", keep_bytes=state["metrics_bytes"] if state else 0)

    def told(record: Record) -> None:
        metrics(record)
        listener(record)

    def save() -> None:
        state = trainer.state_dict(metrics.synced_bytes())
        save_checkpoint(checkpoints, trainer.step, state, kept=config.checkpoints_kept)

    def result(*, finished: bool) -> RunResult:
        return RunResult(finished=finished, last=last, padding=trainer.train.report().padding, preview=preview)

    last = None
    preview = config.out / "preview.png"
    try:
        with _stop_requests() as stop:
            while (epoch := trainer.train.epoch) < config.epochs:
                for record in train_epoch(trainer):
                    told(record)
                    if trainer.train.epoch > epoch:
                        break  # a complete epoch is validated before it is saved
                    if stop.requested or trainer.step % config.checkpoint_every == 0:
                        save()
                    if stop.requested:
                        return result(finished=False)
                last = validate(trainer, record, preview)
                told(last)
                trainer.epoch_loss = 0.0
                save()
                if stop.requested and trainer.train.epoch < config.epochs:
                    return result(finished=False)
    finally:
        metrics.close()
    return result(finished=True)


def train_epoch(trainer: Trainer) -> Iterator[StepRecord]:
    """Train what is left of the current epoch; one record per optimiser update."""
    trainer.model.train()
    first_step, epoch = trainer.step, trainer.train.epoch
    loss = torch.zeros((), dtype=torch.float64, device=trainer.device)
    for batch in trainer.train:
        with trainer.autocast():
            logits = trainer.model(batch.images, batch.sizes)
        losses = trainer.criterion(logits, batch.masks, batch.valid)  # [N], one per image
        # The step's images, not this micro-batch's: exact under any cut.
        trainer.scaler.scale(losses.sum() / batch.step_images).backward()
        loss += losses.detach().sum()
        if batch.ends_step:
            rate, norm = trainer.rate, trainer.update()
            step_loss = float(loss)  # waits for the device
            if not math.isfinite(step_loss):
                raise DivergenceError(
                    f"epoch {epoch + 1} step {trainer.step}: the loss is {step_loss}; "
                    "lower --learning-rate or --clip-norm, and start anew or --resume from the last checkpoint"
                )
            loss.zero_()
            trainer.epoch_loss += step_loss
            report = trainer.train.report()
            yield StepRecord(
                epoch=epoch,
                step=trainer.step,
                steps=trainer.config.epochs * trainer.steps_per_epoch,
                loss=step_loss / batch.step_images,
                gradient_norm=norm,
                learning_rate=rate,
                steps_per_second=(trainer.step - first_step) / report.wall_seconds,
                megapixels_per_second=report.padding.padded / report.wall_seconds / 1e6,
                stall=report.stall,
                padding=report.padding.share,
            )


@torch.no_grad()
def validate(trainer: Trainer, trained: StepRecord, preview: Path) -> EpochRecord:
    """Score the validation split, each sample once, and draw some of it. `trained` is the epoch's last step."""
    trainer.model.eval()
    trainer.val.seek(epoch=0)
    classes = len(trainer.classes)
    matrix = torch.zeros(classes, classes, dtype=torch.int64, device=trainer.device)
    rows: list[SheetRow] = []
    for batch in trainer.val:
        with trainer.autocast():
            predicted = predicted_classes(trainer.model(batch.images, batch.sizes))
        matrix += confusion(predicted, batch.masks, batch.valid, classes)
        drawn = range(min(len(batch), _SHEET_LOGS - len(rows)))
        rows += [prediction_row(batch, predicted, index) for index in drawn]
    save_sheet(rows, preview)
    return EpochRecord(
        epoch=trained.epoch,
        step=trained.step,
        loss=trainer.epoch_loss / len(trainer.train.plan(trained.epoch).order),
        iou=dict(zip(trainer.classes, iou(matrix), strict=True)),
        steps_per_second=trained.steps_per_second,
        stall=trained.stall,
        padding=trained.padding,
        validation_images=trainer.val.report().images,
    )


@dataclass
class _Stop:
    requested: bool = False


@contextmanager
def _stop_requests() -> Iterator[_Stop]:
    """Turns SIGTERM and SIGINT into a request that the loop answers at the end of its step; a second one kills."""
    stop = _Stop()
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {int(number): signal.getsignal(number) for number in signals}

    def request(number: int, _frame: FrameType | None) -> None:
        stop.requested = True
        _log.warning("stopping after this step; another signal stops at once")
        signal.signal(number, before[number])

    for number in signals:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        for number in signals:
            signal.signal(number, before[number])


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name!r}: expected auto, cpu, cuda or cuda:N") from error
    absent = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if device.type not in {"cpu", "cuda"} or absent:
        raise ConfigError(f"--device {name!r}: this machine's torch has no such device; use --device auto")
    return device


def _amp_dtype(config: TrainConfig, device: torch.device) -> torch.dtype:
    if config.amp == "fp16" and device.type == "cpu":
        raise ConfigError("--amp fp16 needs a CUDA device; the CPU emulates it, many times slower: use bf16 or off")
    dtypes = {"off": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if config.amp == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return dtypes[config.amp]
