"""What the benchmarks share: how large to measure, and the tables that are printed when all have run."""

import io
import os
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Protocol

import pytest
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.scale import FULL, QUICK, Scale

_TABLES = pytest.StashKey[dict[str, Table]]()


class Report(Protocol):
    """Keeps a row of a table for the end of the run."""

    def __call__(self, table: str, **cells: str) -> None:
        """Append to the table of that title; the first cell is a name, the others are numbers."""
        ...


@pytest.fixture(scope="session")
def scale() -> Scale:
    """How large to measure: `WELLFEED_BENCH=quick`, or in full."""
    return QUICK if os.environ.get("WELLFEED_BENCH") == "quick" else FULL


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    tables = request.config.stash.setdefault(_TABLES, {})

    def keep(table: str, **cells: str) -> None:
        if table not in tables:
            tables[table] = Table(box=box.MARKDOWN)
            for number, heading in enumerate(cells):
                justify = "right" if number else "left"
                tables[table].add_column(heading.replace("_", " "), justify=justify, no_wrap=True)  # type: ignore[arg-type]
        tables[table].add_row(*cells.values())

    return keep


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Print the tables last, in Markdown, so that they can be kept as they are; and what they were measured on."""
    yield
    tables = terminalreporter.config.stash.get(_TABLES, {})
    if tables:
        terminalreporter.write_line(f"\n{_circumstances()}")
    for title, table in tables.items():
        text = io.StringIO()
        Console(file=text, width=160).print(table)
        lines = (line.rstrip() for line in text.getvalue().splitlines() if line.strip())
        terminalreporter.write_line("\n".join(["", f"### {title}", "", *lines]))


def _circumstances() -> str:
    scale = os.environ.get("WELLFEED_BENCH", "full")
    load = " ".join(f"{average:.1f}" for average in os.getloadavg())
    now = datetime.now(UTC)
    return f"{now:%Y-%m-%d %H:%M} UTC · {scale} · {os.cpu_count()} cores · load {load} · torch {torch.__version__}"
