"""Every byte of a dataset is looked at, and each kind of damage is named once."""

import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shards.errors import DatasetError
from shards.load import load_manifest
from shards.manifest import HEADER_NAME, save_manifest, save_table
from shards.verify import verify
from shards.writer import ShardWriter

Members = list[tuple[str, bytes]]


@pytest.fixture
def copy(tiny_dataset: Path, tmp_path: Path) -> Path:
    """A dataset to damage."""
    return Path(shutil.copytree(tiny_dataset, tmp_path / "copy"))


def first_shard(root: Path) -> Path:
    return root / load_manifest(root).header.shards[0].name


def rewrite(root: Path, edit: Callable[[Members], Members]) -> None:
    """Change the first shard's members and make its size and hash right again, but no offset."""
    path = first_shard(root)
    with tarfile.open(path) as tar:
        members = [(member.name, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    with ShardWriter(path) as writer:
        for name, payload in edit(members):
            writer.add(name, payload)
    manifest = load_manifest(root)
    changed = replace(manifest.header.shards[0], size=writer.digest.size, sha256=writer.digest.sha256)
    shards = (changed, *manifest.header.shards[1:])
    save_manifest(replace(manifest, header=replace(manifest.header, shards=shards)))


def test_a_whole_dataset_has_no_problem(tiny_dataset: Path) -> None:
    assert verify(tiny_dataset) == []
    assert verify(str(tiny_dataset)) == []


def test_progress_counts_every_sample_once(tiny_dataset: Path) -> None:
    told: list[tuple[str, int, int]] = []
    verify(tiny_dataset, lambda *now: told.append(now))
    assert told == [("verifying", n, 40) for n in range(1, 41)]


def test_a_damaged_sample_is_named_and_the_others_are_still_read(copy: Path) -> None:
    manifest = load_manifest(copy)
    damaged = (0, 3, len(manifest) - 1)
    for row in damaged:
        path = copy / manifest.header.shards[int(manifest.members["shard"][row])].name
        content = bytearray(path.read_bytes())
        content[int(manifest.members["mask_offset"][row]) + int(manifest.members["mask_bytes"][row]) - 1] ^= 1
        path.write_bytes(content)
    problems = verify(copy)
    assert len(problems) == len(damaged)
    for row, problem in zip(damaged, problems, strict=True):
        assert f"{manifest.text('key', [row])[0]}.mask.zst" in problem
        assert "is damaged" in problem


def test_a_flipped_byte_between_the_members_is_found_by_the_hash(copy: Path) -> None:
    path = first_shard(copy)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # tar's own padding
    path.write_bytes(content)
    (problem,) = verify(copy)
    assert problem.startswith(f"{path}: sha256 is ")
    assert "the manifest says" in problem


def test_a_shard_of_another_length_is_found_by_its_size(copy: Path) -> None:
    path = first_shard(copy)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"more")
    assert verify(copy) == [f"{path}: {size + 4:,} bytes, the manifest says {size:,}; copy the shard again"]


def test_a_missing_shard_is_one_line(copy: Path) -> None:
    path = first_shard(copy)
    path.unlink()
    (problem,) = verify(copy)
    assert problem.startswith(f"{path}: missing, the manifest says")


def test_classes_that_were_counted_otherwise_are_found(copy: Path) -> None:
    manifest = load_manifest(copy)
    rows = manifest.table.to_pylist()
    one, two, three = rows[5]["class_pixels"]
    rows[5]["class_pixels"] = [one - 1, two + 1, three]
    table, digest = save_table(copy, rows)
    save_manifest(replace(manifest, header=replace(manifest.header, table_sha256=digest), table=table))
    (problem,) = verify(copy)
    assert rows[5]["key"] in problem
    assert f"has class pixels {[one, two, three]}, the manifest says {[one - 1, two + 1, three]}" in problem


def rename_first(members: Members) -> Members:
    return [("stranger.image.zst", members[0][1]), *members[1:]]


def lie_in_json(members: Members) -> Members:
    name, payload = members[2]
    told = json.loads(payload)
    return [
        *members[:2],
        (name, json.dumps(told | {"group": "x" * len(told["group"])}, sort_keys=True).encode()),
        *members[3:],
    ]


def break_json(members: Members) -> Members:
    return [*members[:2], (members[2][0], b"[" * len(members[2][1])), *members[3:]]


def add_one(members: Members) -> Members:
    return [*members, ("stranger.image.zst", b"")]


def drop_last_json(members: Members) -> Members:
    return members[:-1]


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (rename_first, "stranger.image.zst is where the manifest has log_"),
        (lie_in_json, ".json has group 'xxxxxxxxxxx', the manifest says 'well_"),
        (break_json, "not a tar of samples"),
        (add_one, "stranger.image.zst is where the manifest has its end"),
        (drop_last_json, "its end is where the manifest has log_"),
    ],
)
def test_a_tar_that_shows_other_readers_something_else_is_found(
    edit: Callable[[Members], Members], told: str, copy: Path
) -> None:
    rewrite(copy, edit)
    (problem,) = verify(copy)
    assert problem.startswith(str(first_shard(copy)))
    assert told in problem


def test_rewriting_a_shard_as_it_was_is_no_damage(copy: Path) -> None:
    before = first_shard(copy).read_bytes()
    rewrite(copy, lambda members: members)
    assert first_shard(copy).read_bytes() == before
    assert verify(copy) == []


def test_a_manifest_that_cannot_be_trusted_ends_it(copy: Path) -> None:
    (copy / HEADER_NAME).write_text("{}")
    with pytest.raises(DatasetError, match="format is None"):
        verify(copy)
