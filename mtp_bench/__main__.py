"""``mtp-bench`` and ``python -m mtp_bench``: ready for signals and odd streams before anything takes time to import."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Entry point of the ``mtp-bench`` script."""
    gc.disable()  # until a command begins: imports only make what stays, and walking that is a fifth of a short command
    try:
        from mtp_bench import signals, streams

        signals.install()
        streams.prepare()
        from mtp_bench.cli import app

        with streams.failing_in_one_line():
            app()
    except KeyboardInterrupt as stop:  # outside of a command, which says so
        from mtp_bench.signals import exit_code

        sys.exit(exit_code(stop))


if __name__ == "__main__":
    main()
