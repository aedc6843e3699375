"""What the command lines share: one line per mistake, and a bar for what takes long."""

import errno
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shards.errors import WellfeedError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PATIENCE = 2.0  # seconds after which a person wants to see that something moves


def run(command: Callable[[], int]) -> int:
    """Run a command and return its exit status: a user's mistake or a bad file is one line and 1."""
    try:
        return command()
    except WellfeedError as error:
        print(f"error: {error}", file=sys.stderr)
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        advice = "; free some space and run it again" if error.errno in _FULL else ""
        print(f"error: {error.filename or 'input/output'}: {error.strerror or error}{advice}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 1


class Bar:
    """A progress bar that appears after two seconds, and never where the output is not a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._started = time.monotonic()
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, doing: str, done: int, total: int) -> None:
        """See `shards.progress.Progress`."""
        if not self._console.is_terminal or time.monotonic() - self._started < _PATIENCE:
            return
        if not self._bar:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._bar.start()
        task = next((task.id for task in self._bar.tasks if task.description == doing), None)
        if task is None:
            task = self._bar.add_task(doing)
        self._bar.update(task, completed=done, total=total)
