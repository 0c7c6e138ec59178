"""One experiment in a running job: check, agree, alternate, end. Whatever goes wrong ends the experiment, not the job.

Iteration 1 runs the job's own loss, with the check at its first call. Before iteration 2 a rank reports what it found;
before iteration 3 it waits for the others, and the windows begin.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch

from mtp_bench.ab import folders
from mtp_bench.ab.agreement import Agreement, Launch
from mtp_bench.ab.boundaries import Boundaries
from mtp_bench.ab.check import Findings, check, complete
from mtp_bench.ab.job_run import Progress, Subject, make_run, now
from mtp_bench.ab.place import in_graph_or_compiled
from mtp_bench.ab.recorder import Recorder
from mtp_bench.ab.writer import Writer
from mtp_bench.errors import InputError
from mtp_bench.megatron.placement import Placement, Watch
from mtp_bench.variants.common import surroundings

if TYPE_CHECKING:
    from torch import Tensor

    from mtp_bench.ab.schedule import Schedule
    from mtp_bench.megatron.placement import MTPLoss
    from mtp_bench.variants import Variant

_REPORTS_BEFORE, _AGREES_BEFORE = 2, 3  # iterations
CLOSE_S = 10.0  # for reading what the device has not passed yet, and again for the last write, at most


class Refused(UserWarning):
    """The experiment has not begun, or has ended early, and why. The job goes on."""


class Experiment:
    """What :func:`mtp_bench.ab` returns: a context manager that ends the experiment on leaving, as :meth:`stop` does.

    Left alone it ends after its last window. ``refusal`` is why it has not begun or has ended early, "" otherwise.
    ``folder`` is where this rank's ``run.json`` goes, None before the ranks have agreed.
    """

    running: Experiment | None = None  # one in a process: all models share the functions that are replaced

    def __init__(
        self,
        subject: Subject,
        schedule: Schedule,
        placement: Placement | None,
        out: Path,
        *,
        allow_different_gradients: bool,
    ) -> None:
        self.refusal = ""
        self.folder: Path | None = None
        self._subject, self._schedule, self._placement = subject, schedule, placement
        self._out, self._allowed = out, allow_different_gradients
        self._agreement = Agreement(Launch(uuid4().hex[:12], folders.of_launch(out)), subject.asked)
        self._progress = Progress(now(), rank=self._agreement.rank, world_size=self._agreement.world_size)
        self._boundaries = Boundaries(self._begin, self._end_of_step)
        self._begun = 0  # iterations
        self._window, self._begun_in_window = -1, 0
        self._findings: Findings | None = None
        self._not_checked = "its first iteration called the MTP loss with no labels, no gradients or not at all"
        self._recorder: Recorder | None = None
        self._writer: Writer | None = None
        self._ending = ""  # why it ends at the next boundary
        self._told = ""  # what another rank that has ended early says
        self._undo = ExitStack()
        self._closing: threading.Thread | None = None
        self._pid = os.getpid()

    def start(self, chunk: Any, optimizer: Any) -> None:
        """Watch a DDP chunk (or None) and an optimizer (or None). Called by :func:`mtp_bench.ab`."""
        Experiment.running = self
        self._undo.callback(setattr, Experiment, "running", None)
        self._boundaries.attach(chunk, optimizer)
        self._undo.callback(self._boundaries.detach)
        if self._placement is not None:
            self._placement.loss = self._first_call
            self._placement.install()
            self._undo.callback(self._placement.remove)
        atexit.register(self._at_exit)

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end("stopped" if kind is None else f"exception: {kind.__name__}")
        self._wait()

    def stop(self) -> None:
        """End the experiment now, and write what it has measured."""
        self._end("stopped")
        self._wait()

    def step(self) -> None:
        """An iteration begins here: for loops that do not zero gradient buffers of Megatron's at the begin of each."""
        if not self._progress.ended:
            self._boundaries.step()

    def _begin(self, again: bool) -> None:
        """An iteration begins, or the one that has begun begins again."""
        try:
            recorder = self._recorder
            if self._ending or self._told:
                self._fail(self._ending or self._told)
                return
            if again:
                if recorder is not None:
                    recorder.cancel_step()
                    recorder.begin_step()
                return
            self._progress.iterations = self._begun
            self._begun += 1
            if recorder is None:
                self._before_windows()
            elif self._begun_in_window == self._schedule.window:
                self._next_window(recorder)
            if self._recorder is not None and not self._progress.ended:
                self._begun_in_window += 1
                self._recorder.begin_step()
        except Exception as error:  # ours, and no reason for a job to stop
            self._fail(f"{type(error).__name__}: {error}")

    def _end_of_step(self) -> None:
        self._progress.iterations = self._begun
        recorder = self._recorder
        if recorder is not None:
            recorder.end_step()
            if self._is_last_iteration():
                self._end("done")

    def _is_last_iteration(self) -> bool:
        schedule = self._schedule
        return self._window == schedule.windows - 1 and self._begun_in_window == schedule.window

    def _before_windows(self) -> None:
        if self._begun == _REPORTS_BEFORE:
            self._agreement.report(self._refusal_of_this_rank())
        elif self._begun == _AGREES_BEFORE:
            refusal = self._agreement.reach()
            launch = self._agreement.launch
            self._progress.job_id = launch.job_id
            self.folder = folders.of_rank(self._out, launch.folder, self._agreement.rank)
            if refusal:
                self._refuse(refusal)
            else:
                self._start_windows(self.folder)

    def _refusal_of_this_rank(self) -> str:
        if self._placement is None:
            return ""
        if self._findings is None:
            return self._not_checked
        for variant, finding in zip(self._subject.variants, self._findings.variants, strict=True):
            if finding.error:
                return finding.error
            gradients = finding.gradients
            if gradients is not None and gradients.status not in ("equal", "close") and not self._allowed:
                return (
                    f"{variant.name}: {gradients.detail}, compared with {gradients.compared_with}; leave it out, or "
                    "pass allow_different_gradients=True to let it change the training"
                )
        return ""

    def _start_windows(self, folder: Path) -> None:
        schedule = self._schedule
        recorder = Recorder(self._subject.device.torch_device, schedule.windows, schedule.window)
        if self._findings is not None:
            around = surroundings(head_trained=self._findings.head_trained, acceptance=self._findings.acceptance)
            self._undo.enter_context(around)
        self._recorder = recorder
        self._writer = Writer(folder, self._make_run, self._after_windows)
        self._next_window(recorder)

    def _next_window(self, recorder: Recorder) -> None:
        self._window += 1
        self._begun_in_window = 0
        if self._window:
            assert self._writer is not None
            self._writer.window_done()
        if self._window == self._schedule.windows:
            recorder.end_step()
            self._end("done")
        else:
            number = self._schedule.variant(self._window)
            recorder.begin_window(self._window, number, self._schedule.round(self._window))
            if self._placement is not None:
                self._put_in_place(self._placement, self._subject.variants[number], recorder)

    def _put_in_place(self, placement: Placement, variant: Variant, recorder: Recorder) -> None:
        own = variant.name == "megatron"  # it runs where it is: cut out of what surrounds it, it would be slower
        placement.loss = None if own else self._timed(variant, recorder, placement.own)
        placement.watch = self._watch(recorder) if own else None
        placement.set_roll(variant.roll)

    def _watch(self, recorder: Recorder) -> Watch:
        """For a window of the job's own loss."""
        entered = False

        def enter() -> None:
            nonlocal entered
            entered = not torch.cuda.is_current_stream_capturing()
            if entered:
                recorder.enter_loss()
            else:  # events must be left alone until the capture is over
                self._ending = in_graph_or_compiled() or ""

        def leave() -> None:
            if entered:
                recorder.leave_loss()

        return Watch(enter, leave)

    def _timed(self, variant: Variant, recorder: Recorder, own: MTPLoss) -> MTPLoss:
        """The loss of a window."""

        def loss(**arguments: Any) -> Tensor:
            if torch.cuda.is_current_stream_capturing():  # events must be left alone until the capture is over
                self._ending = in_graph_or_compiled() or ""
                return own(**arguments)
            recorder.enter_loss()
            try:
                result = variant(**complete(arguments))
            except Exception as error:
                failure = f"{variant.name} raised {type(error).__name__}: {error}"
            else:
                recorder.leave_loss()
                return result
            self._fail(failure)
            return own(**arguments)

        return loss

    def _first_call(self, **arguments: Any) -> Tensor:
        """The job's own loss, and the check before it."""
        assert self._placement is not None
        self._placement.loss = None
        self._not_checked = in_graph_or_compiled() or ""
        if not self._not_checked:
            try:
                self._findings = check(self._placement, self._subject.variants, arguments, self._subject.device)
                self._progress.findings = self._findings.variants
            except InputError as error:
                self._not_checked = str(error)
            except Exception as error:
                self._not_checked = f"gradients could not be compared: {type(error).__name__}: {error}"
        return self._placement.own(**arguments)

    def _after_windows(self) -> None:
        """On the writer's thread."""
        assert self._recorder is not None
        self._recorder.sample_clock()
        self._told = self._told or self._agreement.told()

    def _refuse(self, reason: str) -> None:
        self.refusal = self._progress.error = reason
        self._end(f"refused: {reason}")
        _warn(f"no experiment: {reason}")

    def _fail(self, reason: str) -> None:
        if self._progress.ended:
            return
        self.refusal = self._progress.error = reason
        self._end(f"failed: {reason}")
        _warn(f"the experiment has ended early: {reason}")

    def _end(self, how: str, *, at_exit: bool = False) -> None:
        """Put everything back, then read and write what is left on a thread of its own."""
        progress = self._progress
        if progress.ended:
            return
        if self._boundaries.complete and not how.startswith("exception"):
            progress.iterations = self._begun
            if self._recorder is not None:
                self._recorder.end_step()
                how = "done" if how == "stopped" and self._is_last_iteration() else how
        progress.ended = how
        try:
            self._undo.close()
        except Exception as error:
            _warn(f"not all is as it was before: {type(error).__name__}: {error}")
        self._placement = None
        if at_exit:  # when no thread can be started any more
            self._close()
        else:
            self._closing = threading.Thread(target=self._close, name="mtp_bench.ab closing", daemon=True)
            self._closing.start()

    def _close(self) -> None:
        if self._progress.ended.startswith("failed") and not self._told:
            with suppress(Exception):  # the store may have gone with rank 0
                self._agreement.tell(self.refusal)
        if self._recorder is not None and self._writer is not None:
            try:
                self._recorder.finish(CLOSE_S)
            except Exception as error:  # a device that has failed answers no question
                _warn(f"what was in flight is lost: {type(error).__name__}: {error}")
            self._writer.close(CLOSE_S)
        elif self.folder is not None:
            try:
                self._make_run().write(self.folder)
            except (InputError, OSError) as error:
                _warn(f"{error}; the job goes on")
        elif not self._progress.ended.startswith("exception"):
            _warn(
                f"nothing was measured: it ended in iteration {self._begun}, and windows begin with the third (where "
                "the model has no DDP of Megatron's, call experiment.step() at the begin of each iteration)"
            )

    def _wait(self) -> None:
        if self._closing is not None:
            self._closing.join(3 * CLOSE_S)
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # not in a forked child
            self._end("interpreter exit", at_exit=True)
            self._wait()

    def _make_run(self) -> Any:
        return make_run(self._subject, self._progress, self._recorder)


def _warn(text: str) -> None:
    with suppress(Warning):  # where warnings are errors this one would be the job's
        warnings.warn(f"mtp_bench.ab: {text}", Refused, stacklevel=2)
