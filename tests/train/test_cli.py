import json
from pathlib import Path

import pytest
from PIL import Image

from train.cli import main, parse

BASE = ["--shards", "data", "--out", "run"]


def test_the_presets_are_the_design_s() -> None:
    multiclass, binary = parse(BASE), parse([*BASE, "--task", "binary"])
    assert (multiclass.images_per_step, multiclass.loss) == (16, "tversky")
    assert (binary.images_per_step, binary.loss) == (1, "weighted_bce")


def test_every_field_of_a_preset_can_be_overridden() -> None:
    config = parse([*BASE, "--task", "binary", "--images-per-step", "4", "--loss", "tversky"])
    assert (config.task, config.images_per_step, config.loss) == ("binary", 4, "tversky")


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["--help"])
    assert exit_info.value.code == 0
    assert "Example: train --shards" in capsys.readouterr().out


def tiny_run(dataset: Path, out: Path, *more: str) -> list[str]:
    return ["--shards", str(dataset), "--out", str(out), "--epochs", "1", "--device", "cpu", *more]


@pytest.fixture(scope="module")
def finished(tiny_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "run"
    assert main(tiny_run(tiny_dataset, out)) == 0
    return out


def test_a_run_leaves_metrics_a_checkpoint_and_a_picture(finished: Path) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["step", "step", "epoch"]
    assert set(lines[-1]["iou"]) == {"background", "curve 1", "curve 2"}
    assert [path.name for path in (finished / "checkpoints").iterdir()] == ["step-000000002.pt"]
    with Image.open(finished / "preview.png") as sheet:
        assert sheet.width > 200


def test_a_run_ends_with_one_table(tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny_run(tiny_dataset, tmp_path / "run", "--amp", "bf16")) == 0
    printed = capsys.readouterr().out
    for name in ("samples", "shards", "padding", "planned", "floor", "random", "steps/s", "stall", "IoU", "pictures"):
        assert name in printed


@pytest.mark.parametrize(
    ("more", "found", "advice"),
    [
        (["--task", "binary"], "has 3", "--task binary needs 2 classes"),
        (["--device", "tpu"], "'tpu'", "auto"),
        (["--device", "cuda:7"], "'cuda:7'", "--device auto"),
        (["--amp", "fp16"], "needs a CUDA device", "use bf16 or off"),
        (["--epochs", "0"], "--epochs is 0", "expected at least 1"),
        (["--max-pixels", "2048"], "2,048 are allowed", "raise --max-pixels"),
        (
            ["--task", "binary", "--loss", "tversky", "--positive-weight", "-1"],
            "--positive-weight is -1",
            "more than 0",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_status_1(
    more: list[str], found: str, advice: str, tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tiny_run(tiny_dataset, tmp_path / "run", *more)) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert found in errors
    assert advice in errors
    assert not (tmp_path / "run").exists()


def test_a_missing_dataset_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny_run(tmp_path / "nowhere", tmp_path / "run")) == 1
    assert "nowhere: no such directory" in capsys.readouterr().err


def test_a_run_is_never_overwritten(tiny_dataset: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(tiny_run(tiny_dataset, finished)) == 1
    assert "already holds a run; add --resume" in capsys.readouterr().err


def test_resuming_with_another_setting_shows_both_sides(
    tiny_dataset: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(tiny_run(tiny_dataset, finished, "--resume", "--learning-rate", "0.5")) == 1
    assert "learning_rate was 0.001, now it is 0.5" in capsys.readouterr().err


def test_a_loss_that_is_no_number_ends_the_run_before_it_is_saved(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--learning-rate", "1e30", "--images-per-step", "4", "--warmup-share", "0"]
    assert main(tiny_run(tiny_dataset, tmp_path / "run", *more)) == 1
    assert "the loss is nan; lower --learning-rate" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()
