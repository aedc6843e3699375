"""The exception tree: what can go wrong, by whose mistake it is.

    WellfeedError
    ├── ConfigError        a flag or a setting that cannot be right
    ├── SourceError        what was to be packed cannot be packed
    ├── DatasetError       what lies on disk is no whole dataset
    │   └── SampleError    one sample of it cannot be read
    ├── PlanError          the samples cannot be planned as asked
    ├── StateError         a saved state does not belong to this run
    └── DivergenceError    training left the finite numbers

Every message says where, what was found, what was expected and what to do. The command line prints it and
returns 1; a bug of ours is an `AssertionError` and keeps its traceback.
"""

from collections.abc import Sequence

_SHOWN = 20  # problems printed in full: a screen; the rest is counted


class WellfeedError(Exception):
    """Root of everything this project raises on purpose. Holds one string, so it survives a pickle to a worker."""


class ConfigError(WellfeedError):
    """A flag or a setting that cannot be right."""


class SourceError(WellfeedError):
    """What was to be packed cannot be packed; nothing was written."""


class DatasetError(WellfeedError):
    """What lies on disk is no whole dataset of this format."""


class SampleError(DatasetError):
    """One sample cannot be read; the message names dataset, shard, key and offset."""


class PlanError(WellfeedError):
    """The samples cannot be planned as asked; the message names them."""


class StateError(WellfeedError):
    """A saved state does not belong to this run; the message shows both sides."""


class DivergenceError(WellfeedError):
    """Training left the finite numbers; the last checkpoint is from before."""


def listing(headline: str, problems: Sequence[str], *, advice: str = "") -> str:
    """One headline, one line per problem, the first 20 in full, and what to do. A single problem is one line in all."""
    if len(problems) == 1:
        return f"{headline}: {problems[0]}" + (f"; {advice}" if advice else "")
    shown = [f"  {problem}" for problem in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        shown.append(f"  and {len(problems) - _SHOWN:,} more")
    return "\n".join([f"{headline}: {len(problems):,} problems", *shown, *filter(None, [advice])])
