"""Running the releases again gives the results that docs/conformance.md is made of."""

from __future__ import annotations

import pytest

from mtp_bench.conformance import all_cases
from tests.releases import FOLDER, release
from tools import conformance_matrix as matrix

ALONE = [case.id for case in all_cases() if case.ranks is None]
_, RESULTS = matrix.read()
ENVIRONMENTS = {environment.columns[0][1]: environment for environment in matrix.ENVIRONMENTS}
INSTALLED = ["megatron-core 0.16.1", "verl 0.8.0", "verl 0.9.1"]  # what runs with the megatron-core that is installed


def again(environment, *, ranks):
    for name in environment.releases():
        release(*name.replace("_", "-").rsplit("-", 1))
    return matrix.run(environment, FOLDER, ranks=ranks)


@pytest.mark.parametrize("column", INSTALLED)
def test_the_results_come_out_again(column):
    found = again(ENVIRONMENTS[column], ranks=False)
    assert found == {name: {id_: RESULTS[name][id_] for id_ in ALONE} for name in found}


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("column", ENVIRONMENTS)
def test_the_results_come_out_again_with_every_release(column):
    found = again(ENVIRONMENTS[column], ranks=True)
    assert found == {name: RESULTS[name] for name in found}
