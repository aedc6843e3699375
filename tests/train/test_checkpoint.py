import os
import pickle
from pathlib import Path

import pytest
import torch

from shards.errors import StateError
from train.checkpoint import newest_checkpoint, save_checkpoint


def saved_steps(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_newest_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    weights = torch.randn(3, 4)
    save_checkpoint(tmp_path, 1, {"weights": torch.zeros(3, 4)}, kept=3)
    save_checkpoint(tmp_path, 2, {"weights": weights, "step": 2}, kept=3)
    state = newest_checkpoint(tmp_path)
    assert state is not None
    assert torch.equal(state["weights"], weights)


def test_only_the_newest_are_kept_and_half_written_ones_are_swept(tmp_path: Path) -> None:
    (tmp_path / "step-000000001.pt.partial").write_bytes(b"half")
    for step in range(1, 6):
        save_checkpoint(tmp_path, step, {}, kept=2)
    assert saved_steps(tmp_path) == ["step-000000004.pt", "step-000000005.pt"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    assert newest_checkpoint(tmp_path / "never made") is None


def test_a_truncated_checkpoint_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_checkpoint(tmp_path, 1, {"step": 1}, kept=3)
    path = save_checkpoint(tmp_path, 2, {"step": 2}, kept=3)
    path.write_bytes(path.read_bytes()[:-100])
    state = newest_checkpoint(tmp_path)
    assert state is not None
    assert state["step"] == 1
    assert "step-000000002.pt: cannot be read" in caplog.text


class _Attack:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch attacked",)


def test_a_pickle_that_runs_code_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"version": 1, "attack": _Attack()}, tmp_path / "step-000000001.pt")
    (tmp_path / "step-000000000.pt").write_bytes(pickle.dumps(_Attack()))
    assert newest_checkpoint(tmp_path) is None
    assert not (tmp_path / "attacked").exists()


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    torch.save({"version": 2}, tmp_path / "step-000000001.pt")
    with pytest.raises(StateError, match=r"step-000000001.pt: version 2, this program reads 1"):
        newest_checkpoint(tmp_path)


@pytest.mark.parametrize("at", [0.3, 0.6, 0.9])
def test_a_flipped_bit_is_passed_over_not_loaded(at: float, tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, {"step": 1}, kept=3)
    path = save_checkpoint(tmp_path, 2, {"weights": torch.randn(500, 500), "step": 2}, kept=3)
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1
    path.write_bytes(content)
    state = newest_checkpoint(tmp_path)
    assert state is not None
    assert state["step"] == 1


def test_going_on_from_an_earlier_checkpoint_removes_the_later_ones_that_were_passed_over(tmp_path: Path) -> None:
    (tmp_path / "step-000000009.pt").write_bytes(b"damaged")
    path = save_checkpoint(tmp_path, 3, {"step": 3}, kept=1)
    assert saved_steps(tmp_path) == [path.name]


def test_what_is_no_state_of_a_run_is_passed_over(tmp_path: Path) -> None:
    torch.save([1], tmp_path / "step-000000001.pt")
    (tmp_path / "step-000000002.pt").touch()
    assert newest_checkpoint(tmp_path) is None
