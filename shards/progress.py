"""How long work tells that it advances. The library calls; only a command line prints."""

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done, how much of it is done, and how much there is."""

    def __call__(self, doing: str, done: int, total: int) -> None:
        """Told after each unit of work; must be cheap."""
        ...


def silent(doing: str, done: int, total: int) -> None:
    """The default: nobody is told."""
