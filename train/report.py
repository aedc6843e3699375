"""What a run tells: records for whoever listens, a line each in metrics.jsonl, and pictures."""

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from loader.batch import Batch
from shards.preview import Panel, SheetRow, bare, contact_sheet, painted
from shards.writer import whole_file


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One optimiser update."""

    epoch: int
    step: int
    """Updates so far, over all epochs."""
    steps: int
    """Updates of the whole run."""
    loss: float
    """Mean over the step's images."""
    gradient_norm: float
    """Before clipping."""
    learning_rate: float
    steps_per_second: float
    """Since the epoch began or went on."""
    megapixels_per_second: float
    """Padded pixels trained on, likewise."""
    stall: float
    """Share of the time waited for data, likewise."""
    padding: float
    """Share of the pixels trained on that are not real, likewise."""


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """One epoch, validated."""

    epoch: int
    step: int
    loss: float
    """Mean over the images of the epoch."""
    iou: dict[str, float]
    """Validation intersection over union of each class."""
    steps_per_second: float
    stall: float
    padding: float
    validation_images: int


Record = StepRecord | EpochRecord
Listener = Callable[[Record], None]


def unheard(record: Record) -> None:
    """The default listener: nobody."""


class MetricsFile:
    """`metrics.jsonl`: a line per record. A number that is not finite is null.

    On resume the lines after the checkpoint are dropped: the work they tell of is done again.
    """

    def __init__(self, path: Path, *, keep_bytes: int) -> None:
        kept = path.read_bytes()[:keep_bytes] if path.exists() else b""
        with whole_file(path) as file:
            file.write(kept[: kept.rfind(b"\n") + 1])
        self._file = path.open("ab")

    def __call__(self, record: Record) -> None:
        """Append a record."""
        kind = "step" if isinstance(record, StepRecord) else "epoch"
        finite = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in asdict(record).items()
        }
        self._file.write(json.dumps({"kind": kind, **finite}, allow_nan=False).encode() + b"\n")
        self._file.flush()

    def synced_bytes(self) -> int:
        """Make the lines so far survive a power cut, as the checkpoint that counts on them will. Returns bytes."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """No more records."""
        self._file.close()


def prediction_row(batch: Batch, predicted: torch.Tensor, index: int) -> SheetRow:
    """A row of a contact sheet: one log of a batch, bare, with its true and with its predicted classes."""
    height, width = batch.sizes[index].tolist()
    image = batch.images[index, 0, :height, :width].cpu().numpy()
    truth = batch.masks[index, :height, :width].cpu().numpy()
    guess = predicted[index, :height, :width].to(torch.uint8).cpu().numpy()
    maps = (("mask", truth), ("prediction", guess))
    panels = [Panel("scan", bare(image)), *(Panel(title, painted(image, classes)) for title, classes in maps)]
    return f"{batch.keys[index]}  {height:,} x {width:,} px", panels


def save_sheet(rows: Sequence[SheetRow], path: Path) -> None:
    """Write a contact sheet as PNG, whole."""
    with whole_file(path) as file:
        contact_sheet(rows).save(file, "PNG")
