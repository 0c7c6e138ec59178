"""``mtp-bench doctor``."""

from __future__ import annotations

import sys

from mtp_bench.cli.app import app, command


@app.command()
@command
def doctor() -> None:
    """Say what works on this machine, what does not, and why."""
    from mtp_bench.doctor import examine

    for finding in examine():
        print(f"{finding.name:<18} {finding.state:<8} {finding.text}")
        sys.stdout.flush()
