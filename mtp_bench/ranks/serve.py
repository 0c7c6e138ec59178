"""A worker that is one of several context-parallel ranks: what the ranks of a run call."""

from __future__ import annotations

import os
import socket

from mtp_bench.errors import InputError
from mtp_bench.job import send
from mtp_bench.worker import serve


def serve_as_rank(job: dict[str, str]) -> None:
    """Serve one job over the socket that ``job`` names; the first message is this rank's number."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(job["socket"])
        with connection.makefile("r") as messages, connection.makefile("w") as out:
            send(out, {"rank": int(os.environ["RANK"])})
            try:
                serve(messages, out, ranks=int(os.environ["WORLD_SIZE"]))
            except InputError as error:
                send(out, {"event": "input_error", "message": str(error)})
