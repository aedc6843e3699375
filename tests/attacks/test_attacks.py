"""Every hostile file beside this gets one line that says where, what and what to do, and exit status 1."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shards.cli import main
from shards.errors import DatasetError, SampleError
from shards.load import load_manifest
from shards.manifest import save_manifest
from shards.reader import ShardReader
from shards.webdataset import decode_sample
from tests.attacks.make import FROM_NOTHING, FROM_PNG, FROM_ZSTD, KEY, SHARD, good_dataset

HERE = Path(__file__).parent
CHECKOUT = Path(__file__).parents[2]

# What the line must hold: where, what was found, what was expected or what to do.
DATASETS = {
    "truncated_tar": (SHARD, "truncated: 4,618 bytes", "the manifest says 10,240", "copy the shard again"),
    "flipped_byte": (SHARD, f"{KEY}.image.zst", "at byte 512", "is damaged", "copy the shard again"),
    "flipped_byte_png": (SHARD, f"{KEY}.image.png", "at byte 512", "is damaged", "copy the shard again"),
    "newer_version": ("manifest.json", "'wellfeed/2'", "'wellfeed/1'", "pip install --upgrade wellfeed"),
    "path_outside": ("manifest.json", "'../../../../etc/passwd'", "expected a plain name", "not to be trusted"),
    "class_seven_inside": (SHARD, f"{KEY}.mask.zst", "holds class 7", "the dataset has 3", "copy the shard again"),
    "sizes_disagree": (SHARD, f"{KEY}.image.zst", "holds 1,750 pixels", "expected 36 x 50 = 1,800"),
    "sides_swapped": (SHARD, f"{KEY}.json", "has height 35", "the manifest says 50", "copy the dataset again"),
    "absurd_sample": ("samples.parquet", KEY, "60,000 x 60,000", "at most 134,217,728", "not to be trusted"),
    "absurd_gap": ("samples.parquet", KEY, "a mask that does not follow its image", "not to be trusted"),
    "foreign_table": ("samples.parquet", "sha256 is", "manifest.json says", "copy both again"),
    "missing_table": ("samples.parquet", "missing", "copy it from where the dataset came from"),
    "huge_frame": (SHARD, f"{KEY}.image.zst", "1,125,899,906,842,624 pixels", "expected 35 x 50 = 1,750"),
    "huge_png": (SHARD, f"{KEY}.image.png", "60,000 x 60,000", "expected L 35 x 50"),
}
FOLDERS = {
    "folder_class_seven": (("*.jpg", "*.png"), ("wrong.png", "class 7", "expected 0 to 2", "raise --classes")),
    "folder_huge_scan": (("*.png", "masks/*.png"), ("scan.png", "3600000000 pixels", "178956970", "cut the scan")),
}
UNREADABLE_SAMPLES = {
    "truncated_tar": "log_000001",
    "flipped_byte": KEY,
    "flipped_byte_png": KEY,
    "class_seven_inside": KEY,
    "sizes_disagree": KEY,
    "huge_frame": KEY,
    "huge_png": KEY,
}


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    assert "Traceback" not in line
    return line


def test_every_attack_has_its_file_and_its_test() -> None:
    made = {attack.__name__ for attack in (*FROM_ZSTD, *FROM_PNG, *FROM_NOTHING)}
    assert made == {path.name for path in HERE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert made == DATASETS.keys() | FOLDERS.keys()


def test_the_files_are_small_enough_to_live_in_a_repository() -> None:
    sizes = [path.stat().st_size for path in HERE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert max(sizes) < 60_000
    assert sum(sizes) < 300_000


def test_the_dataset_they_all_start_from_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(good_dataset(tmp_path / "good"))]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", DATASETS)
def test_verify_refuses_it_in_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(HERE / name)]) == 1
    captured = capsys.readouterr()
    line = one_line(captured.err)
    assert str(HERE / name) in line
    for said in DATASETS[name]:
        assert said in line
    assert captured.out == ""


@pytest.mark.parametrize("name", sorted(DATASETS.keys() - set(UNREADABLE_SAMPLES) - {"sides_swapped"}))
def test_inspect_refuses_what_no_reader_could_trust(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(HERE / name)]) == 1
    captured = capsys.readouterr()
    assert str(HERE / name) in one_line(captured.err)
    assert captured.out == ""


@pytest.mark.parametrize("name", UNREADABLE_SAMPLES)
def test_reading_it_raises_and_names_the_sample(name: str) -> None:
    manifest = load_manifest(HERE / name)
    key = UNREADABLE_SAMPLES[name]
    row = manifest.text("key", range(len(manifest))).index(key)
    reader = ShardReader(manifest)
    with pytest.raises(SampleError, match=key) as caught:
        reader.read(row)
    assert str(HERE / name / SHARD) in str(caught.value)
    other = 1 - row
    assert reader.read(other).image.shape == tuple(manifest.sizes[other])  # the neighbour is sound


@pytest.mark.parametrize("name", FOLDERS)
def test_packing_it_is_refused_and_nothing_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images, masks), told = FOLDERS[name]
    out = tmp_path / "out"
    assert main(["folder", str(HERE / name), str(out), "--images", images, "--masks", masks]) == 1
    line = one_line(capsys.readouterr().err)
    for said in (str(HERE / name), *told, "nothing was written"):
        assert said in line
    assert not out.exists()


@pytest.mark.parametrize("name", ["flipped_byte", "path_outside"])
def test_the_command_itself_prints_one_line_and_no_traceback(name: str) -> None:
    command = [sys.executable, "-m", "shards.cli", "verify", str(HERE / name)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    for said in DATASETS[name]:
        assert said in one_line(done.stderr)
    assert done.stdout == ""


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_a_missing_directory_is_named(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, str(tmp_path / "nowhere")]) == 1
    line = one_line(capsys.readouterr().err)
    assert f"{tmp_path / 'nowhere'}: no such directory" in line
    assert "pack-shards" in line


@pytest.mark.parametrize("verb", ["verify", "inspect"])
def test_an_empty_directory_is_no_dataset(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, str(tmp_path)]) == 1
    line = one_line(capsys.readouterr().err)
    assert f"{tmp_path}: no manifest.json" in line
    assert "run `pack-shards` again" in line


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_scans_is_named(there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scans = tmp_path / "scans"
    if there:
        scans.mkdir()
    out = tmp_path / "out"
    assert main(["folder", str(scans), str(out), "--images", "*.jpg", "--masks", "*.png"]) == 1
    line = one_line(capsys.readouterr().err)
    assert line.startswith(f"error: {scans}: ")
    assert ("no file matches --images '*.jpg'" if there else "no such directory") in line
    assert not out.exists()


@pytest.mark.parametrize("size", [(-5, -7), (60_000, 60_000), (1.5, 2), ("3", 4), (0, 5)])
def test_what_webdataset_yields_is_no_more_trusted(size: tuple[object, object]) -> None:
    facts = f'{{"height": {size[0]!r}, "width": {size[1]!r}, "dataset": {{"codec": "zstd"}}}}'.replace("'", '"')
    with pytest.raises(DatasetError, match="log claims"):
        decode_sample({"__key__": "log", "json": facts.encode(), "image.zst": b"", "mask.zst": b""})


def test_a_stranger_s_names_are_printed_and_not_interpreted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = load_manifest(good_dataset(tmp_path / "good"))
    strange = ("[/bold]", "[red]curve", ":boom:")
    save_manifest(replace(manifest, header=replace(manifest.header, classes=strange)))
    assert main(["inspect", str(tmp_path / "good")]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in strange)
