"""The README's commands, read out of the page and run in order in a folder of their own.

As written, but for two kinds: training that takes minutes (blocks marked `long`) is cut to one epoch, and make
targets, which CI runs itself, are looked up.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHARED = ROOT.parent / "shared"

BLOCKS = re.findall(r"^```(\w+)( long)?\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
ONE_EPOCH = " --epochs 1"  # what the blocks marked `long` get: minutes as written, seconds here


def commands() -> list[str]:
    """Every `$ command` of the page in order; lines that end in a backslash go on."""
    found = []
    for _, long, text in BLOCKS:
        for command in re.findall(r"^\$ ((?:.*\\\n)*.*)$", text, flags=re.MULTILINE):
            joined = re.sub(r"\\\n\s*", "", command)
            found.append(joined + ONE_EPOCH if long and joined.startswith("train") else joined)
    return found


def is_make(command: str) -> bool:
    return command.startswith("make ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout's place: `../shared` beside it, the tests' own attacks in it."""
    folder = tmp_path_factory.mktemp("readme") / "checkout"
    folder.mkdir()
    (folder / "tests").symlink_to(ROOT / "tests")
    if SHARED.is_dir():
        (folder.parent / "shared").symlink_to(SHARED)
    return folder


def run(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=280
    )


def test_the_demo_packs_what_the_page_says() -> None:
    (packed,) = re.findall(r"synthetic .* --count (\d+)", (ROOT / "Makefile").read_text())
    assert f"packs {packed} synthetic logs" in README


def test_the_page_has_commands() -> None:
    assert {command.split()[0] for command in commands()} >= {"make", "pack-shards", "train"}


@pytest.mark.parametrize("command", [c for c in commands() if not is_make(c)])
def test_a_command_of_the_readme_runs_as_written(command: str, folder: Path) -> None:
    if "../shared" in command and not SHARED.is_dir():
        pytest.skip("../shared, the sample images, is not beside this checkout")
    done = run(command, folder)
    expected = 1 if "tests/attacks" in command else 0
    assert done.returncode == expected, done.stdout + done.stderr


@pytest.mark.parametrize("command", [c for c in commands() if is_make(c)])
def test_a_make_target_of_the_readme_exists(command: str) -> None:
    """CI runs the targets themselves; a suite that ran `make test` would not end."""
    done = run(f"{command} --dry-run", ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("snippet", [text for language, _, text in BLOCKS if language == "python"])
def test_a_snippet_of_the_readme_runs_as_written(snippet: str, folder: Path) -> None:
    (folder / "snippet.py").write_text(snippet)
    done = run(f"{sys.executable} snippet.py", folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", [p.relative_to(ROOT).as_posix() for p in sorted([*ROOT.glob("README.md"), *ROOT.glob("*/README.md")])]
)
def test_every_path_and_test_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in tests, f"{page} names the test {name}"
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / page).parent / link).exists(), f"{page} links to {link}"
