"""The ``mtp-bench`` command: thin commands, a file each, of a few calls into the library. Nothing below this prints.

Everything heavy is imported inside the commands, so that ``--help`` is quick.
"""

# isort: off
# In the order of --help.
from mtp_bench.cli import run, compare, check, report, profile, import_, attach, listing, doctor  # noqa: F401

# isort: on
from mtp_bench.cli.app import app

__all__ = ["app"]
