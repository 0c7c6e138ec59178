"""What one rank measures in a running job, window by window, in memory that does not grow.

Between two pieces of a job nothing of ours is in the processor's caches, so that a mark costs it several microseconds,
not the one that it takes in a loop. So there are few. A stretch is one iteration or, where next to nothing lies between
them, several in a row, with a mark at each end; in it one call of the loss may have a mark before and behind it.
"""

from __future__ import annotations

import math
import statistics
import time
from array import array
from dataclasses import dataclass, field

import torch

from mtp_bench.ab.marks import HostTime, marks_on
from mtp_bench.ab.measured import MAX_WINDOWS, Measured
from mtp_bench.results import Time

__all__ = ["MAX_WINDOWS", "Recorder"]

# A window has 2 more to be read in: its places in the pool are then needed again.
_WINDOWS_IN_FLIGHT = 3
_BATCH = 8  # stretches after which they are read within a window too
_READS = 12  # stretches read at a time at most: what has piled up is caught up with, and no iteration pays for all
_TIMED_CALLS = 2  # of the loss, in a window, at most; one an iteration
# Where more of a window's host time lies between its iterations, their ends are marked in the next one. The window
# itself counts as disturbed where they were not: by an evaluation, say.
_APART = 0.1
_BEGIN, _ENTRY, _EXIT, _END = range(4)
_MARKS = 4
# A lead is given where its bounds are closer than either.
_LEAD_WITHIN_NS = 50_000.0
_LEAD_WITHIN = 0.1
_POLL_S = 0.0005
_NO_WINDOW = _NONE = -1


@dataclass(slots=True)
class _Window:
    """One of the few windows that are not read yet; kept for good and filled anew."""

    kept: int  # iterations of a window but its first
    number: int = _NO_WINDOW
    read: int = 0
    step_ns: float = 0.0
    host_ns: float = 0.0
    calls: int = 0  # of the loss, timed
    loss_ns: array[float] = field(init=False)
    lead_least_ns: array[float] = field(init=False)
    lead_most_ns: array[float] = field(init=False)

    def __post_init__(self) -> None:
        empty = bytes(8 * self.kept)
        self.loss_ns, self.lead_least_ns, self.lead_most_ns = (array("d", empty) for _ in range(3))

    def open(self, number: int) -> None:
        self.number, self.read, self.calls = number, 0, 0
        self.step_ns = self.host_ns = 0.0

    def lead_of_calls_ns(self) -> float:
        """The median of the leads, which lies between the medians of their bounds; NaN where these are far apart."""
        if not self.calls:
            return math.nan
        least_ns = statistics.median(self.lead_least_ns[: self.calls])
        most_ns = statistics.median(self.lead_most_ns[: self.calls])
        middle_ns = (least_ns + most_ns) / 2
        known = most_ns - least_ns <= max(_LEAD_WITHIN_NS, _LEAD_WITHIN * middle_ns)
        return middle_ns if known and math.isfinite(middle_ns) else math.nan


class Recorder:
    """Times of at most ``windows`` windows of ``window`` iterations on ``device``; the first of each is dropped.

    Nothing here waits for the device. What it has not passed two windows later is lost.
    """

    def __init__(self, device: torch.device, windows: int, window: int) -> None:
        assert window >= 2
        if device.index is None:
            device = torch.device(device.type, torch.cuda.current_device())
        # At most 30 attributes: Python keeps more of them in a dictionary, twice as far from a cold processor.
        self.windows = 0
        self.windows_lost = 0
        self._window = window
        self._stride = -(-(window - 1) // _TIMED_CALLS)  # iterations from one whose call is timed to the next
        self._slots = _WINDOWS_IN_FLIGHT * window
        self._marks = marks_on(device, _MARKS * self._slots)
        self._clock_ns = self._marks.clock_ns
        self.modelled = self._marks.modelled
        self._measured = Measured(device, windows, modelled=self.modelled)

        self._flight = [_Window(window - 1) for _ in range(_WINDOWS_IN_FLIGHT)]
        self._number = _NO_WINDOW  # the window of the iterations that begin now
        self._iteration = 0  # of that window, begun
        self._together = False  # its iterations follow each other closely: stretches are as long as can be
        self._window_began_ns = self._step_began_ns = self._step_ended_ns = 0.0  # host time; 0: has not ended
        self._between_ns = 0.0  # of this window, between its iterations

        self._begun = self._closed = self._seen = 0  # stretches: begun, ended, read or given up
        # Of the stretch in a slot: the window it counts in, its iterations, and its last mark, perhaps that at the
        # begin of the next one.
        self._number_of, self._length_of, self._end_of = (array("q", bytes(8 * self._slots)) for _ in range(3))
        self._timed = bytearray(self._slots)  # 1 where a call of the loss was

        self._calls = self._calls_before = 0  # of the loss, in this iteration and in the one before
        self._call_to_time, self._first_turn = _NONE, 0
        self._passed = HostTime()
        self._last_read = -1  # the mark that `_passed` speaks of

    def begin_window(self, number: int, variant: int, round_number: int) -> None:
        """The iterations that begin from now on are those of this window; windows are numbered from 0."""
        self._choose_stretches()
        window = self._flight[number % _WINDOWS_IN_FLIGHT]
        self._lose(window.number)
        window.open(number)
        self._measured.begin(number, variant, round_number)
        self._first_turn = round_number * _TIMED_CALLS  # so that every variant's windows have the same calls timed
        self._number, self._iteration = number, 0

    def begin_step(self) -> None:
        """An iteration begins; it ends the one before where nothing else did."""
        kept = self._iteration - 1  # among those of its window
        self._iteration += 1
        self._calls_before, self._calls = self._calls, 0
        self._call_to_time = _NONE
        if self._together and kept > 0 and kept % self._stride:
            self._length_of[(self._begun - 1) % self._slots] += 1
            self._step_began_ns = now_ns = self._clock_ns()
            if self._step_ended_ns:
                self._between_ns += now_ns - self._step_ended_ns
                self._step_ended_ns = 0.0
            return
        self._begin_stretch(self._number if kept >= 0 else _NO_WINDOW)
        if kept >= 0 and kept % self._stride == 0:
            turn = self._first_turn + kept // self._stride
            self._call_to_time = turn % self._calls_before if self._calls_before else 0
        self._marks.look()
        if kept < 0 or self._closed - self._seen >= _BATCH:
            self._read()

    def cancel_step(self) -> None:
        """What began was no iteration: it is not counted. Another begins where ``begin_step`` is called again."""
        if self._closed < self._begun:
            slot = (self._begun - 1) % self._slots
            if self._length_of[slot] > 1:
                self._length_of[slot] -= 1
            else:
                self._number_of[slot] = _NO_WINDOW
            self._iteration -= 1
            self._calls, self._call_to_time = self._calls_before, _NONE
            self._step_ended_ns = self._step_began_ns

    def enter_loss(self) -> None:
        """A call of the loss begins. One of an iteration's calls may be timed, each in its turn."""
        if self._calls == self._call_to_time:
            self._marks.record(_MARKS * ((self._begun - 1) % self._slots) + _ENTRY)
            self._marks.look()

    def leave_loss(self) -> None:
        """It has returned."""
        if self._calls == self._call_to_time:
            slot = (self._begun - 1) % self._slots
            self._marks.record(_MARKS * slot + _EXIT)
            self._timed[slot] = 1
            self._marks.look()
        self._calls += 1

    def end_step(self) -> None:
        """The iteration ends here; what follows until the next begin is no part of it."""
        if self._step_ended_ns or self._closed == self._begun:
            return
        if self._together and (self._iteration < self._window or self._number < self._measured.last):
            self._step_ended_ns = self._clock_ns()
            return
        end = _MARKS * ((self._begun - 1) % self._slots) + _END
        self._marks.record(end)
        self._close(end)
        self._step_ended_ns = self._marks.host_ns(end)

    def drop_window(self) -> None:
        """The window of the iterations that begin now was disturbed: it counts as lost."""
        self._lose(self._number)

    def finish(self, at_most_s: float) -> None:
        """Read what the device passes within so many seconds, by looking now and then; the rest is lost."""
        self._measured.end(self._number)
        deadline = time.perf_counter() + at_most_s
        while self._read() and time.perf_counter() < deadline:
            time.sleep(_POLL_S)
            self._marks.look()
        while self._seen < self._closed:
            self._give_up_oldest()
        self._marks.close()

    def sample_clock(self) -> None:
        """Ask for the GPU's clock for the windows that have ended since. The writer's thread does."""
        self._measured.sample_clock()

    def times(self, variant: int) -> Time | None:
        """The windows of a variant in order; None while there are none. May be called on another thread."""
        return self._measured.times(variant)

    def _choose_stretches(self) -> None:
        """For the window that begins, by the one that has ended."""
        now_ns = self._clock_ns()
        if self._number != _NO_WINDOW:
            apart = self._between_ns > _APART * (now_ns - self._window_began_ns)
            if apart and self._together:
                self._lose(self._number)
            self._together = not apart
        self._window_began_ns, self._between_ns = now_ns, 0.0

    def _begin_stretch(self, number: int) -> None:
        # The stretch read last keeps its slot: the next one is placed by it.
        if self._begun - self._seen == self._slots - 1:
            self._give_up_oldest()
        slot = self._begun % self._slots
        begin = _MARKS * slot + _BEGIN
        self._marks.record(begin)
        self._close(begin)
        self._number_of[slot], self._length_of[slot], self._timed[slot] = number, 1, 0
        self._begun += 1
        self._step_began_ns = now_ns = self._marks.host_ns(begin)
        if self._step_ended_ns:
            self._between_ns += now_ns - self._step_ended_ns
            self._step_ended_ns = 0.0

    def _close(self, end: int) -> None:
        if self._closed < self._begun:
            self._end_of[self._closed % self._slots] = end
            self._closed += 1
            self._call_to_time = _NONE

    def _read(self) -> bool:
        """Read the oldest stretches that have passed. Returns whether any is left that has ended."""
        for _ in range(_READS):
            if self._seen == self._closed:
                return False
            slot = self._seen % self._slots
            if not self._marks.has_passed(self._end_of[slot]):
                return True
            self._read_stretch(slot)
            self._seen += 1
        return self._seen < self._closed

    def _read_stretch(self, slot: int) -> None:
        number = self._number_of[slot]
        window = self._flight[number % _WINDOWS_IN_FLIGHT]
        counts = window.number == number != _NO_WINDOW
        begin = _MARKS * slot
        end = self._end_of[slot]
        self._go_on_to(begin)
        step_ns = self._read_call(begin, window, counts) if self._timed[slot] else 0.0
        step_ns += self._go_on_to(end)
        if counts:
            window.step_ns += step_ns
            window.host_ns += self._marks.host_ns(end) - self._marks.host_ns(begin)
            window.read += self._length_of[slot]
            if window.read == window.kept:
                self._keep(window)

    def _read_call(self, begin: int, window: _Window, counts: bool) -> float:
        """Read entry and exit of the loss. Returns the time from the stretch's begin to the exit."""
        until_ns = self._go_on_to(begin + _ENTRY)
        entered_ns = self._marks.host_ns(begin + _ENTRY)
        lead_least_ns, lead_most_ns = self._passed.not_before_ns - entered_ns, self._passed.not_after_ns - entered_ns
        loss_ns = self._go_on_to(begin + _EXIT)
        if counts:
            at = window.calls
            window.lead_least_ns[at], window.lead_most_ns[at], window.loss_ns[at] = lead_least_ns, lead_most_ns, loss_ns
            window.calls = at + 1
        return until_ns + loss_ns

    def _go_on_to(self, mark: int) -> float:
        """Follow the device to its next mark. Returns how long it took, 0 where nothing came before."""
        last = self._last_read
        if mark == last:
            return 0.0
        elapsed_ns = self._marks.elapsed_ns(last, mark) if last >= 0 else 0.0
        self._passed.follow(elapsed_ns, *self._marks.bounds_ns(mark))
        self._last_read = mark
        return elapsed_ns

    def _keep(self, window: _Window) -> None:
        loss_ns = statistics.median(window.loss_ns[: window.calls]) if window.calls else math.nan
        self._measured.keep(
            window.number,
            step_ns=window.step_ns / window.kept,
            host_ns=window.host_ns / window.kept,
            lead_ns=window.lead_of_calls_ns(),
            loss_ns=loss_ns,
        )
        self.windows += 1
        window.number = _NO_WINDOW

    def _lose(self, number: int) -> None:
        window = self._flight[number % _WINDOWS_IN_FLIGHT]
        if window.number == number != _NO_WINDOW:
            window.number = _NO_WINDOW
            self.windows_lost += 1

    def _give_up_oldest(self) -> None:
        slot = self._seen % self._slots
        self._lose(self._number_of[slot])
        self._marks.forget(_MARKS * slot, _MARKS * slot + _END)
        self._passed.restart()
        self._last_read = -1
        self._seen += 1
