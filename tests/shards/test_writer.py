"""Files that appear whole, and tars that any tar reads."""

import hashlib
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.writer import ShardWriter, whole_file

MEMBERS = {"a.image.zst": b"first", "a.mask.zst": bytes(512), "a.json": b"", f"{'k' * 80}.image.png": b"\xff" * 1000}


def write(path: Path, members: dict[str, bytes]) -> tuple[list[int], int, str]:
    with ShardWriter(path) as writer:
        offsets = [writer.add(name, payload) for name, payload in members.items()]
    return offsets, writer.digest.size, writer.digest.sha256


def test_python_s_tarfile_reads_what_was_added(tmp_path: Path) -> None:
    write(tmp_path / "s.tar", MEMBERS)
    with tarfile.open(tmp_path / "s.tar", "r:") as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert found == MEMBERS
    assert list(found) == list(MEMBERS)
    assert (tmp_path / "s.tar").read_bytes()[257:265] == b"ustar\x0000"  # POSIX USTAR, neither GNU nor pax


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar on this machine")
def test_the_system_s_tar_reads_it_without_a_word(tmp_path: Path) -> None:
    write(tmp_path / "s.tar", MEMBERS)
    done = subprocess.run(["tar", "tf", tmp_path / "s.tar"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == list(MEMBERS)
    assert done.stderr == ""


@given(st.lists(st.binary(max_size=1500), max_size=8))
def test_offsets_point_at_the_data(tmp_path_factory: pytest.TempPathFactory, payloads: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("shard") / "s.tar"
    offsets, size, sha256 = write(path, {f"{number}.json": payload for number, payload in enumerate(payloads)})
    content = path.read_bytes()
    assert [content[at : at + len(payload)] for at, payload in zip(offsets, payloads, strict=True)] == payloads
    assert (size, sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert len(content) % tarfile.RECORDSIZE == 0


def test_the_same_members_give_the_same_bytes_and_nothing_of_this_machine(tmp_path: Path) -> None:
    write(tmp_path / "one.tar", MEMBERS)
    write(tmp_path / "two.tar", MEMBERS)
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")


def test_a_shard_appears_only_when_its_block_ends(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "s.tar") as writer:
        writer.add("a.json", b"{}")
        assert not (tmp_path / "s.tar").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["s.tar"]


def test_a_failing_block_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with ShardWriter(tmp_path / "s.tar") as writer:
            writer.add("a.json", b"{}")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_failing_block_leaves_what_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")

    def write_half() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_whole_file_replaces_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"before")
    with whole_file(tmp_path / "file") as file:
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"after"


def test_a_name_too_long_for_a_tar_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too long"), ShardWriter(tmp_path / "s.tar") as writer:
        writer.add("k" * 101, b"")
    assert list(tmp_path.iterdir()) == []
