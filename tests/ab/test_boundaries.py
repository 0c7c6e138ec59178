"""Where iterations begin and end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mtp_bench.ab.boundaries import Boundaries, chunk_with_buffers


class Chunk:
    """What a DDP chunk has."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def zero_grad_buffer(self) -> None:
        self.seen.append("zeroed")

    def finish_grad_sync(self, force_all_reduce: bool = False) -> None:
        self.seen.append("reduced")


class Optimizer:
    """What an optimizer has."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def step(self, *args: Any) -> tuple[Any, ...]:
        self.seen.append("stepped")
        return args


@pytest.fixture
def job():
    seen: list[str] = []
    boundaries = Boundaries(lambda again: seen.append("BEGIN AGAIN" if again else "BEGIN"), lambda: seen.append("END"))
    chunk, optimizer = Chunk(seen), Optimizer(seen)
    boundaries.attach(chunk, optimizer)
    return boundaries, chunk, optimizer, seen


def test_from_the_zeroing_to_the_optimizers_return(job):
    _, chunk, optimizer, seen = job
    for _ in range(2):
        chunk.zero_grad_buffer()
        chunk.finish_grad_sync(force_all_reduce=True)
        assert optimizer.step("a") == ("a",)
    assert seen == ["BEGIN", "zeroed", "reduced", "stepped", "END"] * 2


def test_an_interval_without_reduced_gradients_is_no_iteration(job):
    _, chunk, optimizer, seen = job
    chunk.zero_grad_buffer()
    optimizer.step()
    chunk.zero_grad_buffer()
    chunk.finish_grad_sync()
    optimizer.step()
    assert seen == ["BEGIN", "zeroed", "stepped", "BEGIN AGAIN", "zeroed", "reduced", "stepped", "END"]


def test_without_an_optimizers_step_the_next_begin_ends_it(job):
    boundaries, chunk, _, seen = job
    chunk.zero_grad_buffer()
    assert not boundaries.complete
    chunk.finish_grad_sync()
    assert boundaries.complete
    chunk.zero_grad_buffer()
    assert seen == ["BEGIN", "zeroed", "reduced", "BEGIN", "zeroed"]


def test_who_says_where_iterations_begin_is_believed_alone(job):
    boundaries, chunk, optimizer, seen = job
    for _ in range(2):
        boundaries.step()
        chunk.zero_grad_buffer()
        optimizer.step()
    assert seen == ["BEGIN", "zeroed", "stepped", "END"] * 2


def test_all_is_put_back_but_what_somebody_has_wrapped_since(job):
    """A learning-rate scheduler wraps the step of its optimizer."""
    boundaries, chunk, optimizer, seen = job

    def wrapped(step: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            seen.append("scheduled")
            return step(*args)

        return call

    optimizer.step = wrapped(optimizer.step)  # type: ignore[method-assign]
    boundaries.detach()
    assert set(vars(chunk)) == {"seen"}
    chunk.zero_grad_buffer()
    chunk.finish_grad_sync()
    optimizer.step()
    assert seen == ["zeroed", "reduced", "scheduled", "stepped"]


def test_the_first_chunk_that_has_gradient_buffers(job):
    _, chunk, optimizer, _ = job
    assert chunk_with_buffers([optimizer, chunk, Chunk([])]) is chunk
    assert chunk_with_buffers([optimizer]) is None
