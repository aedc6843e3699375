"""Interrupted is the same as uninterrupted: real processes, really killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from train.checkpoint import newest_checkpoint

EPOCHS, STEPS_PER_EPOCH = 2, 8
NEVER = 10**6  # steps: checkpoints at the ends of epochs only


def start(dataset: Path, out: Path, *more: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "train.cli", "--shards", str(dataset), "--out", str(out), "--device", "cpu"]
    command += ["--epochs", str(EPOCHS), "--images-per-step", "4", "--pixel-budget", "30000", *more]
    # Threads that wait give their core away: on a busy machine spinning makes a run of seconds take minutes.
    env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finish(process: "subprocess.Popen[str]") -> str:
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return out


def records(out: Path) -> list[dict[str, Any]]:
    path = out / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def interrupt(process: "subprocess.Popen[str]", out: Path, *, after: int, by: signal.Signals) -> None:
    """Send a signal as soon as the run tells of its step `after`."""
    deadline = time.monotonic() + 240
    while process.poll() is None and time.monotonic() < deadline:
        if any(record["step"] >= after for record in records(out)):
            process.send_signal(by)
            return
        time.sleep(0.005)
    pytest.fail(f"the run ended or hung before step {after}: {process.communicate()[1]}")


def final_state(out: Path) -> dict[str, Any]:
    state = newest_checkpoint(out / "checkpoints")
    assert state is not None
    return state


def without_clocks(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    clocks = {"steps_per_second", "megapixels_per_second", "stall", "padding"}  # of the process, not of the run
    return [{name: value for name, value in entry.items() if name not in clocks} for entry in entries]


def assert_same_run(out: Path, expected: Path) -> None:
    ours, theirs = final_state(out), final_state(expected)
    assert ours["step"] == theirs["step"] == EPOCHS * STEPS_PER_EPOCH
    for name, tensor in theirs["model"].items():
        assert torch.equal(ours["model"][name], tensor), f"{name} differs"
    for index, moments in theirs["optimizer"]["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(ours["optimizer"]["state"][index][name], tensor), f"{name} of parameter {index} differs"
    assert without_clocks(records(out)) == without_clocks(records(expected))


@pytest.fixture(scope="module")
def uninterrupted(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    finish(start(tiny_dataset, out))
    return out


@pytest.mark.parametrize("every", [NEVER, 3], ids=["per-epoch checkpoints", "mid-epoch checkpoints"])
def test_a_run_killed_twice_ends_with_the_same_bits(
    every: int, tiny_dataset: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    for after in (5, STEPS_PER_EPOCH + 6):
        process = start(tiny_dataset, out, "--checkpoint-every", str(every), "--resume")
        interrupt(process, out, after=after, by=signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    finish(start(tiny_dataset, out, "--checkpoint-every", str(every), "--resume"))
    assert_same_run(out, uninterrupted)


def test_sigterm_finishes_the_step_saves_and_says_how_to_go_on(
    tiny_dataset: Path, uninterrupted: Path, tmp_path: Path
) -> None:
    out = tmp_path / "stopped"
    process = start(tiny_dataset, out, "--checkpoint-every", str(NEVER))
    interrupt(process, out, after=3, by=signal.SIGTERM)
    assert "--resume" in finish(process)
    assert 3 <= final_state(out)["step"] < EPOCHS * STEPS_PER_EPOCH
    finish(start(tiny_dataset, out, "--checkpoint-every", str(NEVER), "--resume"))
    assert_same_run(out, uninterrupted)


def test_a_finished_run_has_nothing_left_to_do(tiny_dataset: Path, uninterrupted: Path) -> None:
    before = (uninterrupted / "metrics.jsonl").read_bytes()
    assert "nothing was left to do" in finish(start(tiny_dataset, uninterrupted, "--resume"))
    assert (uninterrupted / "metrics.jsonl").read_bytes() == before
