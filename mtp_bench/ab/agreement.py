"""The ranks of a job agree, once, through the store of the process group: no collective and no work for the device.

Each rank reports whether it can take part. The last to report says that all do; the first that cannot, or has waited
too long, says why not. Whichever comes first holds for all, so that no rank starts alone.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60.0
_POLLS_S = (0.001, 0.05)  # the first and the longest pause between two questions to the store
_ALL = "all"
_experiments = 0  # of this process; ranks call `ab` in the same order, so the number names one experiment on all


@dataclass(frozen=True)
class Launch:
    """What rank 0 decides for all: the job's id, and where the ranks' folders are."""

    job_id: str
    folder: str  # in the folder asked for, "" for that folder itself


class Agreement:
    """One rank's part in it; ``refusal`` is why the experiment cannot begin, "" where it can.

    ``asked`` is what this rank was asked to do, in words: ranks that were asked for something else would run different
    variants at the same time, and wait for each other in what only one of them calls.
    """

    def __init__(self, launch: Launch, asked: str) -> None:
        global _experiments
        self.rank, self.world_size, self._store = _process_group()
        self.launch = launch  # rank 0's, once it is known
        self._asked = asked
        self._alone = ""
        self._key = f"mtp_bench/ab/{_experiments}"
        _experiments += 1

    def report(self, refusal: str) -> None:
        """Say whether this rank can take part, and on rank 0 what holds for all. Does not wait."""
        if self._store is None:
            self._alone = refusal
            return
        if self.rank == 0:
            self._store.set(f"{self._key}/launch", json.dumps([self.launch.job_id, self.launch.folder]))
        first_asked = self._store.compare_set(f"{self._key}/asked", "", self._asked).decode()
        if first_asked != self._asked:
            refusal = f"mtp_bench.ab has {self._asked}, another rank {first_asked}: call it alike on every rank"
        if refusal:
            self._say(f"rank {self.rank}: {refusal}")
        if self._store.add(f"{self._key}/reports", 1) == self.world_size:
            self._say(_ALL)

    def reach(self) -> str:
        """Wait for the other ranks, ``TIMEOUT_S`` at most; return the refusal of all, "" where all take part."""
        if self._store is None:
            return self._alone
        if not self._wait_for_verdict():
            self._say(
                f"not all {self.world_size} ranks had called mtp_bench.ab and come to their third iteration within "
                f"{TIMEOUT_S:g} s of rank {self.rank}: call it on every rank"
            )
        verdict: str = self._store.get(f"{self._key}/verdict").decode()
        if self._store.check([f"{self._key}/launch"]):
            self.launch = Launch(*json.loads(self._store.get(f"{self._key}/launch")))
        return "" if verdict == _ALL else verdict

    def tell(self, ending: str) -> None:
        """Let the other ranks know that this one has ended early, and why."""
        if self._store is not None:
            self._store.set(f"{self._key}/ended", f"rank {self.rank}: {ending}")

    def told(self) -> str:
        """What the last rank to end early has told; "" while none has."""
        if self._store is None or not self._store.check([f"{self._key}/ended"]):
            return ""
        ending: str = self._store.get(f"{self._key}/ended").decode()
        return ending

    def _say(self, verdict: str) -> None:
        """The first to say something is right: the store compares and sets in one step."""
        self._store.compare_set(f"{self._key}/verdict", "", verdict)

    def _wait_for_verdict(self) -> bool:
        # Asking now and then, since a wait inside the store would keep the process group's own threads from it.
        deadline = time.monotonic() + TIMEOUT_S
        pause_s, longest_s = _POLLS_S
        while not self._store.check([f"{self._key}/verdict"]):
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        return True


def _process_group() -> tuple[int, int, Any]:
    """Rank, number of ranks, and the store of the default process group; None where there is one rank alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return 0, 1, None
    return dist.get_rank(), dist.get_world_size(), dist.distributed_c10d._get_default_store()
