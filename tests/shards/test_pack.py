"""From a source to a dataset: who goes where, the same bytes every time, and nothing lost on the way."""

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shards.errors import ConfigError, DatasetError, SourceError
from shards.folder import FolderConfig, FolderSource
from shards.load import load_manifest
from shards.manifest import HEADER_NAME, TABLE_NAME
from shards.pack import PackConfig, held_out_groups, pack, plan_pack
from shards.reader import ShardReader
from shards.sample import MAX_SAMPLE_PIXELS, LogInfo, LogSample
from shards.synthetic import SyntheticSource
from shards.verify import verify
from tests.conftest import TINY
from tests.shards.hand_made import HandMadeSource, log

LOGS = [log(f"log_{n}", group=f"well_{n // 2}", height=5 + n, width=20 + 7 * n) for n in range(12)]
CODECS: tuple[Literal["zstd", "png"], ...] = ("zstd", "png")


@st.composite
def scans(draw: st.DrawFn) -> list[LogInfo]:
    groups = draw(st.lists(st.integers(0, 8), min_size=1, max_size=40))
    return [
        log(f"log_{n}", group=f"well_{group}", height=draw(st.integers(1, 640)), width=draw(st.integers(1, 12_800)))
        for n, group in enumerate(groups)
    ]


configs = st.builds(
    PackConfig,
    val_share=st.floats(0, 0.99),
    buckets=st.integers(1, 12),
    shard_pixels=st.integers(1, 10**8),
    split_seed=st.integers(0, 2**40),
)


@given(scans(), configs)
def test_every_sample_is_in_exactly_one_shard(infos: list[LogInfo], config: PackConfig) -> None:
    _, plans = plan_pack(infos, config)
    assert sorted(info.key for plan in plans for info in plan.infos) == sorted(info.key for info in infos)
    assert len({plan.name for plan in plans}) == len(plans)
    assert all(plan.infos for plan in plans)


@given(scans(), configs)
def test_no_well_is_on_both_sides_of_the_split(infos: list[LogInfo], config: PackConfig) -> None:
    _, plans = plan_pack(infos, config)
    train, val = (
        {info.group for plan in plans if plan.split == side for info in plan.infos} for side in ("train", "val")
    )
    assert train  # something is left to learn from
    assert not train & val


@given(scans(), configs)
def test_as_many_wells_are_held_out_as_reach_the_share_and_no_more(infos: list[LogInfo], config: PackConfig) -> None:
    held_out = held_out_groups(infos, config)
    groups = {info.group for info in infos}
    held = sum(info.group in held_out for info in infos)
    if config.val_share == 0 or len(groups) == 1:
        assert not held_out
    else:
        assert held_out
        # it reaches the share, unless one well only is left to train on
        assert held >= config.val_share * len(infos) or len(groups - held_out) == 1
        largest = max(sum(info.group == group for info in infos) for group in groups)
        assert held <= config.val_share * len(infos) + largest


@given(scans(), configs)
def test_a_shard_holds_one_range_of_widths_and_is_closed_when_full(infos: list[LogInfo], config: PackConfig) -> None:
    edges, plans = plan_pack(infos, config)
    lower = (0, *edges)
    for plan in plans:
        assert all(lower[plan.bucket] < info.width <= edges[plan.bucket] for info in plan.infos)
        assert plan.name.startswith(f"{plan.split}-b{plan.bucket:02d}-")
        assert sum(info.pixels for info in plan.infos[:-1]) < config.shard_pixels  # the last one filled it


@given(scans(), configs)
def test_the_order_of_wells_in_the_scan_does_not_decide_the_split(infos: list[LogInfo], config: PackConfig) -> None:
    assert held_out_groups(infos, config) == held_out_groups(infos[::-1], config)


def test_one_well_s_logs_do_not_lie_together() -> None:
    infos = [log(f"log_{n}", group=f"well_{n // 50}", width=64) for n in range(500)]
    _, plans = plan_pack(infos, PackConfig(val_share=0, buckets=1))
    (plan,) = plans
    together = sum(a.group == b.group for a, b in zip(plan.infos[:-1], plan.infos[1:], strict=True))
    assert together < 100  # 49 are expected of a shuffle, 490 were together


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_read_is_what_was_packed(codec: Literal["zstd", "png"], tmp_path: Path) -> None:
    source = HandMadeSource(LOGS)
    manifest = pack(source, tmp_path / "set", PackConfig(codec=codec, shard_pixels=3000))
    truth = {info.key: source.load(info) for info in LOGS}
    reader = ShardReader(load_manifest(tmp_path / "set"))
    read = [reader.read(row) for row in range(len(manifest))]
    assert sorted(sample.key for sample in read) == sorted(truth)
    for sample in read:
        assert sample.group == truth[sample.key].group
        assert np.array_equal(sample.image, truth[sample.key].image)
        assert np.array_equal(sample.mask, truth[sample.key].mask)
    assert verify(tmp_path / "set") == []


def test_the_tiny_dataset_holds_the_logs_it_was_drawn_from(tiny_dataset: Path) -> None:
    source = SyntheticSource(TINY)
    reader = ShardReader(load_manifest(tiny_dataset))
    known = {info.key: info for info in source.scan()}
    for row in range(len(reader.manifest)):
        sample = reader.read(row)
        drawn = source.load(known.pop(sample.key))
        assert np.array_equal(sample.image, drawn.image)
        assert np.array_equal(sample.mask, drawn.mask)
    assert not known


@pytest.mark.parametrize("codec", CODECS)
def test_the_same_input_gives_the_same_bytes(codec: Literal["zstd", "png"], tmp_path: Path) -> None:
    for name in ("one", "two"):
        pack(HandMadeSource(LOGS), tmp_path / name, PackConfig(codec=codec))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_another_seed_gives_another_split() -> None:
    many = [log(f"log_{n}") for n in range(40)]
    assert held_out_groups(many, PackConfig()) != held_out_groups(many, PackConfig(split_seed=1))
    assert len(held_out_groups(many, PackConfig())) == 8  # a fifth of forty


def test_a_sample_s_members_lie_side_by_side_in_their_order(tmp_path: Path) -> None:
    manifest = pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig())
    names: list[str] = []
    for shard in manifest.header.shards:
        with tarfile.open(tmp_path / "set" / shard.name, "r:") as tar:
            names += tar.getnames()
    keys = manifest.text("key", range(len(manifest)))
    assert names == [f"{key}.{part}" for key in keys for part in ("image.zst", "mask.zst", "json")]


def test_every_json_repeats_what_the_manifest_says(tmp_path: Path) -> None:
    manifest = pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig())
    rows = {row["key"]: row for row in manifest.table.to_pylist()}
    for shard in manifest.header.shards:
        with tarfile.open(tmp_path / "set" / shard.name) as tar:
            for member in tar:
                if member.name.endswith(".json"):
                    told = json.load(tar.extractfile(member))  # type: ignore[arg-type]
                    about = told.pop("dataset")
                    row = rows.pop(told["key"])
                    assert {name: row[name] for name in told} == told
                    assert about["format"] == "wellfeed/1"
                    assert about["classes"] == ["background", "curve 1", "curve 2"]
    assert not rows


def test_no_name_is_longer_than_a_tar_holds(tmp_path: Path) -> None:
    manifest = pack(HandMadeSource([log("k" * 80)]), tmp_path / "set", PackConfig(codec="png"))
    assert len(manifest) == 1
    assert verify(tmp_path / "set") == []


@pytest.mark.skipif(shutil.which("zstd") is None, reason="no zstd binary on this machine")
def test_the_zstd_program_finds_every_member_sound(tiny_dataset: Path, tmp_path: Path) -> None:
    for shard in load_manifest(tiny_dataset).header.shards:
        with tarfile.open(tiny_dataset / shard.name) as tar:
            tar.extractall(tmp_path, filter="data")
    members = sorted(tmp_path.glob("*.zst"))
    assert len(members) == 2 * TINY.count
    subprocess.run(["zstd", "--test", "--quiet", *members], timeout=60, check=True)
    listed = subprocess.run(["zstd", "-lv", members[0]], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "XXH64" in listed


@dataclass
class Killed:
    """Progress that stops the packing after some samples, as Ctrl-C would."""

    after: int

    def __call__(self, doing: str, done: int, total: int) -> None:
        assert (doing, total) == ("packing", len(LOGS))
        if done == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [1, 7, 12])
def test_a_killed_pack_is_no_dataset_and_the_next_one_clears_it(after: int, tmp_path: Path) -> None:
    out, config = tmp_path / "set", PackConfig(shard_pixels=2000)
    with pytest.raises(KeyboardInterrupt):
        pack(HandMadeSource(LOGS), out, config, Killed(after))
    with pytest.raises(DatasetError, match="its packing did not finish"):
        load_manifest(out)
    (out / "train-b00-000099.tar.partial").write_bytes(b"half a shard, by a pack that lost its power")
    (out / "val-b07-000099.tar").write_bytes(b"a shard that this pack does not write")
    (out / TABLE_NAME).write_bytes(b"a table before its header")
    pack(HandMadeSource(LOGS), out, config)
    pack(HandMadeSource(LOGS), tmp_path / "fresh", config)
    assert contents(out) == contents(tmp_path / "fresh")


@pytest.mark.parametrize("name", ["notes.txt", "train-backup.tar", "val-b00.tar", "train-b00-000000.tar.gz", ".git"])
def test_a_foreign_file_is_not_touched(name: str, tmp_path: Path) -> None:
    out = tmp_path / "set"
    out.mkdir()
    (out / "packing.partial").touch()  # as a killed pack leaves it
    (out / name).write_bytes(b"mine")
    before = contents(out)
    with pytest.raises(
        ConfigError, match=f"{out}: holds {name}, which no unfinished packing left there; name an empty directory"
    ):
        pack(HandMadeSource(LOGS), out, PackConfig())
    assert contents(out) == before


def test_a_dataset_is_never_written_over(tmp_path: Path) -> None:
    out = tmp_path / "set"
    pack(HandMadeSource(LOGS), out, PackConfig())
    before = contents(out)
    with pytest.raises(ConfigError, match="already holds a dataset; name another directory"):
        pack(HandMadeSource(LOGS[:2]), out, PackConfig())
    assert contents(out) == before


def test_a_file_is_no_place_for_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="is a file; name a directory"):
        pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig())
    assert (tmp_path / "set").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("infos", "told"),
    [
        ([], "the source holds no sample"),
        ([log("a.b"), log("../c")], "key 'a.b' cannot name a sample"),
        ([log("a"), log("a"), log("b")], "key a stands 2 times"),
        ([log("absurd", height=0)], "absurd (absurd.tif) is 0 x 16"),
        ([log("absurd", width=-1)], "is 8 x -1"),
        ([log("absurd", height=1, width=MAX_SAMPLE_PIXELS + 1)], f"is 1 x {MAX_SAMPLE_PIXELS + 1:,}, expected 1 to"),
    ],
)
def test_a_source_that_cannot_be_packed_leaves_nothing(infos: list[LogInfo], told: str, tmp_path: Path) -> None:
    source = HandMadeSource(infos)
    with pytest.raises(SourceError) as caught:
        pack(source, tmp_path / "set", PackConfig())
    assert told in str(caught.value)
    assert "nothing was written" in str(caught.value)
    assert not (tmp_path / "set").exists()
    assert not source.loads


@dataclass(frozen=True)
class Changing(HandMadeSource):
    """A source whose samples are not what the scan said."""

    change: Callable[[LogSample], LogSample] = lambda sample: sample

    def load(self, info: LogInfo) -> LogSample:
        return self.change(HandMadeSource(self.infos).load(info))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda sample: replace(sample, image=sample.image[:-1]), "the file changed: pack again"),
        (lambda sample: replace(sample, mask=sample.mask[:, 1:]), "the file changed: pack again"),
        (lambda sample: replace(sample, mask=sample.mask + np.uint8(5)), "the mask holds class 7, the source has 3"),
    ],
)
def test_a_sample_that_is_not_what_the_scan_said_is_named(
    change: Callable[[LogSample], LogSample], told: str, tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as caught:
        pack(Changing([log("only")], change=change), tmp_path / "set", PackConfig())
    assert "only.tif" in str(caught.value)
    assert told in str(caught.value)
    assert not list((tmp_path / "set").iterdir())


def test_progress_counts_every_sample_once(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig(), lambda *now: told.append(now))
    assert told == [("packing", n, 12) for n in range(1, 13)]


def test_a_config_lists_every_problem_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        PackConfig(val_share=1, buckets=0, shard_pixels=0, split_seed=-1)
    for setting in ("val-share is 1", "buckets is 0", "shard-pixels is 0", "split-seed is -1"):
        assert f"\n  {setting}" in str(caught.value)


def contents(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir()}


def test_the_manifest_is_written_last(tmp_path: Path) -> None:
    pack(HandMadeSource(LOGS), tmp_path / "set", PackConfig())
    others = [path for path in (tmp_path / "set").iterdir() if path.name != HEADER_NAME]
    written = (tmp_path / "set" / HEADER_NAME).stat().st_mtime_ns
    assert all(path.stat().st_mtime_ns <= written for path in others)


def test_a_scan_that_breaks_while_packing_leaves_nothing_behind(tmp_path: Path) -> None:
    scans = tmp_path / "scans"
    scans.mkdir()
    noise = np.random.default_rng(0)
    for number in range(6):
        Image.fromarray(noise.integers(0, 256, (40, 60 + 40 * number), np.uint8)).save(scans / f"{number}.jpg")
        Image.fromarray(np.zeros((40, 60 + 40 * number), np.uint8)).save(scans / f"{number}.png")
    broken = scans / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:-500])
    with pytest.raises(SourceError, match=r"3\.jpg: not a picture that Pillow reads"):
        pack(FolderSource(scans, FolderConfig(images="*.jpg", masks="*.png")), tmp_path / "out", PackConfig())
    assert list((tmp_path / "out").iterdir()) == []


def test_files_that_no_unfinished_packing_left_are_kept(tmp_path: Path) -> None:
    """A dataset that lost its manifest still has its samples: they are not cleared away for a new one."""
    precious = tmp_path / "train-b00-000000.tar"
    precious.write_bytes(b"a shard")
    with pytest.raises(ConfigError, match=r"holds train-b00-000000\.tar, which no unfinished packing left there"):
        pack(HandMadeSource(LOGS), tmp_path, PackConfig())
    assert precious.read_bytes() == b"a shard"


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    """A limit on the size of files stands for the full disk: the write fails in the same place."""
    command = f"ulimit -f 8; exec {sys.executable} -m shards.cli synthetic {tmp_path / 'out'} --count 8 --width 400 500"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "train-b00-000000.tar" in done.stderr
    assert "free some space" in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()
