"""The checks of `make gpu-check`, one test each: `pytest tests/gpu -m gpu`."""

import pytest

torch = pytest.importorskip("torch")

from tests.gpu import check  # noqa: E402

pytestmark = pytest.mark.gpu


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is visible to PyTorch")
@pytest.mark.parametrize("run", [run for _, run in check.CHECKS], ids=[name for name, _ in check.CHECKS])
def test_on_a_gpu(run):
    with check.device().session():
        try:
            run()
        except check.SkipCheck as reason:
            pytest.skip(str(reason))
