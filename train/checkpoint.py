"""What survives a kill: checkpoints that are there whole or not at all."""

import logging
import re
import zipfile
from pathlib import Path
from typing import Any

import torch

from shards.errors import StateError
from shards.writer import PARTIAL, whole_file

_VERSION = 1
_NAME = re.compile(r"step-(\d{9})\.pt")
_log = logging.getLogger(__name__)


def save_checkpoint(directory: Path, step: int, state: dict[str, Any], *, kept: int) -> Path:
    """Write the state after `step` optimiser updates; then remove all but the newest `kept` checkpoints.

    Those of later steps go too: they were passed over when the run went on from an earlier one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step:09d}.pt"
    with whole_file(path) as file:
        torch.save({"version": _VERSION, **state}, file)
    passed_over = [later for later in _checkpoints(directory) if later.name > path.name]
    half_written = list(directory.glob(f"*{PARTIAL}"))  # by a process that was killed
    for old in [*passed_over, *_checkpoints(directory)[len(passed_over) + kept :], *half_written]:
        old.unlink()
    return path


def newest_checkpoint(directory: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, on the CPU; None if there is none. Holds tensors and plain values only.

    Raises:
        StateError: A checkpoint is of another version.
    """
    for path in _checkpoints(directory):
        try:
            state = _load(path)
        except Exception as error:  # a damaged pickle raises whatever it stumbles over
            _log.warning("%s: cannot be read (%.120r); trying the one before", path, error)
            continue
        if state.get("version") != _VERSION:
            raise StateError(
                f"{path}: version {state.get('version')}, this program reads {_VERSION}; "
                "resume with the program that wrote it, or start anew in another --out"
            )
        return state
    return None


def _load(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:  # torch's own loader compares no checksums
        if damaged := archive.testzip():
            raise StateError(f"{damaged} is damaged")
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise StateError(f"holds a {type(state).__name__}, expected the state of a run")
    return state


def _checkpoints(directory: Path) -> list[Path]:
    """Newest first."""
    return sorted((path for path in directory.glob("step-*.pt") if _NAME.fullmatch(path.name)), reverse=True)
