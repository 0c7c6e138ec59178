"""What the cases say of variants whose faults are known."""

from __future__ import annotations

import pytest

from mtp_bench import variants
from mtp_bench.conformance import all_cases
from mtp_bench.conformance.judging import judge
from mtp_bench.conformance.probe import observe_case

CASES = {case.id: case for case in all_cases()}


def outcome(variant, case_id, device):
    case = CASES[case_id]
    return judge(case, observe_case(variants.load(variant), case, device))


@pytest.mark.parametrize(
    ("variant", "case_id", "status", "observed"),
    [
        ("original", "empty-shard", "failed", {"coefficients": [[["nan", "nan"]]], "logged": ["nan"]}),
        ("patched", "empty-shard", "passed", {"coefficients": [[[0.0, 0.0]]], "logged": [0.0]}),
        ("original", "per-token-scale", "failed", {"coefficients": [[[1.0, 1.0, 1.0, 0.0]]]}),
        ("patched", "per-token-scale", "passed", {"coefficients": [[[1.33333, 1.33333, 1.33333, 0.0]]]}),
        ("boundary_roll", "packed-padding", "failed", {"targets": [[[2, 3, 0, 4, 0, 5, 0, 0]]]}),
    ],
)
def test_a_known_fault_is_found_and_its_fix_passes(variant, case_id, status, observed, sim):
    found = outcome(variant, case_id, sim)
    assert (found.status, found.observed) == (status, observed)
