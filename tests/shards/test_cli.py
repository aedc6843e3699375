"""`pack-shards` as a user types it."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shards.cli import main
from shards.load import load_manifest
from shards.reader import ShardReader

CRACKS = Path(__file__).parents[3] / "shared/data/cracks"
CHECKOUT = Path(__file__).parents[2]
SMALL = ["--count", "6", "--width", "40", "90", "--height", "33", "64"]


def test_synthetic_packs_what_it_was_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a" / "logs"
    more = ["--classes", "2", "--seed", "7", "--noise", "noisy", "--codec", "png", "--buckets", "1"]
    assert main(["synthetic", str(out), *SMALL, *more]) == 0
    manifest = load_manifest(out)
    assert len(manifest) == 6
    assert manifest.header.classes == ("background", "curve 1")
    assert (manifest.header.codec, len(manifest.header.bucket_edges)) == ("png", 1)
    assert np.all((manifest.sizes >= (33, 40)) & (manifest.sizes <= (64, 90)))
    captured = capsys.readouterr()
    assert f"{out}: 6 samples in" in captured.out
    assert captured.err == ""  # no bar where the output is not a terminal


def test_verify_says_that_a_dataset_is_whole(tiny_dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tiny_dataset)]) == 0
    captured = capsys.readouterr()
    shards = len(list(tiny_dataset.glob("*.tar")))
    assert captured.out.startswith(f"{tiny_dataset}: 40 samples in {shards} shards, ")
    assert captured.out.endswith(": whole\n")
    assert captured.err == ""


def test_inspect_prints_buckets_sizes_classes_and_padding(
    tiny_dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tiny_dataset)]) == 0
    printed = capsys.readouterr().out
    for word in ("train", "val", "height, px", "width, px", "background 9", "curve 2", "planned", "floor", "random"):
        assert word in printed
    sizes = load_manifest(tiny_dataset).sizes
    assert re.search(rf"width, px\s+{sizes[:, 1].min()} · .* · {sizes[:, 1].max()} ", printed)


def test_inspect_writes_a_contact_sheet_of_true_pixels(
    tiny_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "new" / "sheet.png"
    assert main(["inspect", str(tiny_dataset), "--preview", str(sheet)]) == 0
    assert f"contact sheet: {sheet}" in capsys.readouterr().out
    with Image.open(sheet) as image:
        assert image.format == "PNG"
        pixels = np.asarray(image)
    first = ShardReader(load_manifest(tiny_dataset)).read(0).image
    grey = np.stack([first] * 3, axis=-1)
    below_the_caption = pixels[: first.shape[0] + 60, : first.shape[1]]
    tops = range(len(below_the_caption) - len(first) + 1)
    assert any(np.array_equal(below_the_caption[top : top + len(first)], grey) for top in tops)


@pytest.mark.skipif(not CRACKS.is_dir(), reason=f"{CRACKS} is not there: the real pictures are not in the repository")
def test_a_folder_of_real_pictures_is_packed_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cracks"
    flags = ["--images", "*.jpg", "--masks", "*.png", "--mask-threshold", "128", "--classes", "2"]
    assert main(["folder", str(CRACKS), str(out), *flags]) == 0
    printed = capsys.readouterr().out
    stems = {path.stem for path in CRACKS.glob("*.jpg")}
    assert f"{len(stems)} samples" in printed
    manifest = load_manifest(out)
    reader = ShardReader(manifest)
    assert set(manifest.text("key", range(len(manifest)))) == stems
    coloured = 0
    for row in range(0, len(manifest), 7):
        sample = reader.read(row)
        with Image.open(CRACKS / f"{sample.key}.jpg") as image:
            coloured += image.mode == "RGB"
            assert np.array_equal(sample.image, np.asarray(image.convert("L")))
        with Image.open(CRACKS / f"{sample.key}.png") as mask:
            assert np.array_equal(sample.mask, np.asarray(mask.convert("L")) >= 128)
    assert not coloured or "RGB became grey" in printed
    assert main(["verify", str(out)]) == 0
    assert "whole" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["synthetic", "folder", "inspect", "verify"])
def test_every_verb_s_help_shows_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    assert f"Example: pack-shards {verb}" in capsys.readouterr().out


def test_the_command_s_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert all(verb in printed for verb in ("synthetic", "folder", "inspect", "verify", "Example:"))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--count", "0"], "count is 0; ask for at least 1 log"),
        ([*SMALL, "--buckets", "0"], "buckets is 0, expected 1 to 100"),
        ([*SMALL, "--val-share", "1"], "val-share is 1.0"),
    ],
)
def test_a_setting_that_cannot_be_right_is_one_line(
    flags: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["synthetic", str(tmp_path / "out"), *flags]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert told in line
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "logs"
    assert main(["synthetic", str(out), *SMALL]) == 0
    before = load_manifest(out).header.fingerprint
    assert main(["synthetic", str(out), *SMALL, "--seed", "1"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {out}: already holds a dataset; name another directory, or remove this one first"
    assert load_manifest(out).header.fingerprint == before


def test_what_the_system_refuses_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert main(["synthetic", str(tmp_path / "file" / "logs"), *SMALL]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"error: {tmp_path / 'file' / 'logs'}: Not a directory"


SLOW_WORK = """
import time
from shards.terminal import Bar
with Bar() as bar:
    bar("checking", 1, 2)
    time.sleep(2.1)
    bar("checking", 2, 2)
    bar("packing", 1, 2)
    time.sleep(0.2)
"""


def test_a_bar_appears_after_two_seconds_and_only_on_a_terminal() -> None:
    command = [sys.executable, "-c", SLOW_WORK]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    ours, theirs = pty.openpty()
    shown = subprocess.Popen(command, cwd=CHECKOUT, stderr=theirs, env=environment)
    hidden = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=True)
    assert hidden.stderr == hidden.stdout == ""
    assert shown.wait(60) == 0
    os.close(theirs)
    printed = os.read(ours, 1_000_000).decode()
    os.close(ours)
    assert "checking" in printed
    assert "packing" in printed
    assert "2/2" in printed
