"""``python -m mtp_bench``: the command without the script."""

from mtp_bench.cli import main

main()
