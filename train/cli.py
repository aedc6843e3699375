"""`train`: parses, trains, prints. One line of progress while it runs, one table when it ends."""

import argparse
import logging
import sys
from collections.abc import Sequence
from typing import Any, cast

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from shards.load import load_manifest
from shards.summary import padding_summary
from shards.terminal import run
from train.config import PRESETS, Task, TrainConfig
from train.loop import RunResult, train
from train.report import EpochRecord, Record, StepRecord


def main(args: Sequence[str] | None = None) -> int:
    """Entry point of `train`."""
    logging.basicConfig(format="%(levelname)s: %(message)s")
    return run(lambda: _train(parse(sys.argv[1:] if args is None else args)))


def parse(args: Sequence[str]) -> TrainConfig:
    """The configuration of a command line: the task's preset, each field overridden by its flag."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--task", default="multiclass")
    task = early.parse_known_args(args)[0].task
    preset: dict[str, Any] = PRESETS.get(cast(Task, task), {})
    return tyro.cli(
        TrainConfig,
        prog="train",
        args=args,
        default=TrainConfig(
            shards=tyro.MISSING_NONPROP,
            out=tyro.MISSING_NONPROP,
            task=cast(Task, task if preset else "multiclass"),
            **preset,
        ),
        description="Train VeerNet on a dataset of shards.\n\n"
        "Example: train --shards runs/logs --out runs/first --epochs 20\n\n"
        "To go on after a kill: the same command and --resume.",
    )


def _train(config: TrainConfig) -> int:
    with _ProgressLine() as line:
        result = train(config, line)
    if not result.finished:
        print(f"stopped and saved; to go on: the same command with --resume ({config.out})")
    elif result.last is None:
        print(f"{config.out}: all {config.epochs} epochs are done; nothing was left to do")
    else:
        _print_result(config, result, result.last)
    return 0


class _ProgressLine:
    """One line with units where the output is a terminal; one line an epoch where it is not."""

    def __init__(self) -> None:
        self._console = Console(markup=False, emoji=False)
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), TimeRemainingColumn())
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal, transient=True)
        self._task = self._bar.add_task("starting")

    def __enter__(self) -> "_ProgressLine":
        self._bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._bar.stop()

    def __call__(self, record: Record) -> None:
        if isinstance(record, StepRecord):
            line = (
                f"epoch {record.epoch + 1} step {record.step:,}/{record.steps:,} · loss {record.loss:.3f} · "
                f"{record.steps_per_second:.2f} steps/s · {record.megapixels_per_second:.2f} Mpx/s · "
                f"stall {record.stall:.1%}"
            )
            self._bar.update(self._task, description=line, completed=record.step, total=record.steps)
        else:
            self._console.print(epoch_line(record), highlight=False, soft_wrap=True)


def epoch_line(record: EpochRecord) -> str:
    """One validated epoch in a line."""
    scores = " · ".join(f"IoU {name} {score:.3f}" for name, score in record.iou.items())
    return (
        f"epoch {record.epoch + 1} · loss {record.loss:.3f} · {scores} · {record.steps_per_second:.2f} steps/s · "
        f"stall {record.stall:.1%} · padding {record.padding:.1%}"
    )


def _print_result(config: TrainConfig, result: RunResult, last: EpochRecord) -> None:
    manifest = load_manifest(config.shards)
    expected = padding_summary(manifest)
    table = Table(show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    rows = {
        "samples": f"{len(manifest.rows('train')):,} train, {len(manifest.rows('val')):,} validation",
        "shards": f"{len(manifest.header.shards):,}",
        "padding": f"{result.padding.share:.1%} planned, {expected.floor.share:.1%} floor, "
        f"{expected.random.share:.1%} random batches of 8",
        "speed": f"{last.steps_per_second:.2f} steps/s of {config.images_per_step} images",
        "stall": f"{last.stall:.1%} of the time waiting for data",
        "validation IoU": ", ".join(f"{name} {score:.3f}" for name, score in last.iou.items()),
        "run": str(config.out),
        "pictures": str(result.preview),
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console(markup=False, emoji=False).print(table)


if __name__ == "__main__":
    sys.exit(main())
