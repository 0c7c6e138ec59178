"""Values on the simulated device: real where small, shape-only where large, and never a true-looking wrong one."""

import copy
import io
import math
import pickle

import pytest
import torch

from mtp_bench.devices.sim import SHAPE_ONLY_ABOVE, is_shape_only
from mtp_bench.devices.sim.shapes import ShapeOnlyError


@pytest.fixture
def large(sim):
    return torch.ones(SHAPE_ONLY_ABOVE + 1, device="sim")


def test_small_tensors_hold_the_values_the_cpu_computes(sim):
    generator = torch.Generator().manual_seed(1)
    weight, data = torch.randn(8, 8, generator=generator), torch.randn(4, 8, generator=generator)
    results = []
    for device in ("cpu", "sim"):
        layer = torch.nn.Linear(8, 8, bias=False, device=device)
        layer.weight.data.copy_(weight)
        loss = torch.nn.functional.gelu(layer(data.to(device))).square().mean()
        loss.backward()
        results.append((loss.item(), layer.weight.grad.cpu()))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])


def test_the_limit_is_in_elements_of_a_new_tensor(sim):
    assert not is_shape_only(torch.ones(SHAPE_ONLY_ABOVE, device="sim"))
    assert is_shape_only(torch.ones(SHAPE_ONLY_ABOVE + 1, device="sim"))
    assert is_shape_only(torch.arange(SHAPE_ONLY_ABOVE + 1, device="sim"))
    assert is_shape_only(torch.ones(2000, 1, device="sim") @ torch.ones(1, 2000, device="sim"))
    assert is_shape_only(torch.ones(2000, 1, device="sim") + torch.ones(1, 2000, device="sim"))
    assert is_shape_only(torch.cat([torch.ones(SHAPE_ONLY_ABOVE, device="sim")] * 2))


def test_real_values_lifts_the_limit(sim):
    with sim.real_values():
        assert torch.ones(SHAPE_ONLY_ABOVE + 1, device="sim").sum().item() == SHAPE_ONLY_ABOVE + 1
    assert is_shape_only(torch.ones(SHAPE_ONLY_ABOVE + 1, device="sim"))


def test_shape_and_dtype_are_known_without_values(large):
    result = (large.view(-1, 1).double() * torch.ones(3, device="sim")).sum(0)
    assert is_shape_only(result)
    assert (result.shape, result.dtype, result.device) == ((3,), torch.float64, torch.device("sim:0"))


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.item(),
        bool,
        float,
        lambda t: t.cpu(),
        lambda t: t.tolist(),
        lambda t: t.nonzero(),
        lambda t: torch.equal(t, t + 1),
        lambda t: torch.zeros(()).copy_(t),
    ],
)
def test_a_host_read_of_unknown_values_names_the_operation_that_made_them(large, read):
    with pytest.raises(ShapeOnlyError, match="made by aten::sum"):
        read(large.sum())


def test_a_known_mask_picks_rows_of_unknown_values(large):
    mask = torch.tensor([True, False, True], device="sim")
    assert large.expand(3, -1)[mask].shape == (2, SHAPE_ONLY_ABOVE + 1)


def test_decisions_on_known_values_stay_real_beside_unknown_ones(large):
    loss_mask = torch.tensor([1.0, 0.0], device="sim")
    num_tokens = loss_mask.sum()
    assert num_tokens > 0
    assert is_shape_only(large.sum() / num_tokens)
    assert torch.zeros_like(large.sum()).item() == 0
    assert large.new_zeros(()).item() == 0


def test_an_unknown_value_written_into_a_view_makes_the_whole_storage_unknown(large):
    values = torch.zeros(3, device="sim")
    first, second = values[0], values[1]
    values[0] += large.sum()
    assert all(is_shape_only(tensor) for tensor in (values, first, second, values.detach(), values.view(3, 1)))
    with pytest.raises(ShapeOnlyError):
        second.item()


def test_overwriting_the_whole_storage_makes_it_known_again(large):
    values = torch.zeros(3, device="sim")
    first = values[0]
    values += large.sum()
    first.zero_()
    assert is_shape_only(values)
    values.fill_(2.0)
    assert (values.tolist(), first.item()) == ([2.0, 2.0, 2.0], 2.0)


def test_views_share_values_in_both_directions(sim):
    base = torch.zeros(4, device="sim")
    base.view(2, 2)[1] = 1.0
    base[:1].add_(5.0)
    assert base.tolist() == [5.0, 0.0, 1.0, 1.0]


def test_setting_data_takes_over_the_values(sim):
    parameter = torch.nn.Parameter(torch.zeros(2, device="sim"))
    parameter.data = torch.tensor([1.0, 2.0], device="sim")
    assert (parameter * 2).tolist() == [2.0, 4.0]
    parameter.data.mul_(10)
    assert parameter.tolist() == [10.0, 20.0]


def test_in_place_changes_of_shape(sim):
    tensor = torch.arange(6.0, device="sim").view(2, 3)
    assert tensor.t_().shape == (3, 2)
    assert tensor.unsqueeze_(0).tolist() == [[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]]
    assert torch.add(torch.ones(3, device="sim"), 1, out=torch.empty(0, device="sim")).tolist() == [2.0, 2.0, 2.0]


def test_copies_of_tensors_and_modules(sim):
    layer = torch.nn.Linear(2, 2).to("sim")
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.zero_()
    assert isinstance(twin.weight, torch.nn.Parameter)
    assert twin.weight.abs().sum().item() > 0
    assert pickle.loads(pickle.dumps(twin.bias)).tolist() == twin.bias.tolist()
    torch.save(twin.state_dict(), file := io.BytesIO())
    file.seek(0)
    assert torch.load(file, weights_only=False)["bias"].tolist() == twin.bias.tolist()


def test_what_people_print(sim, large):
    assert f"{torch.tensor(1.5, device='sim'):.2f}" == "1.50"
    assert repr(torch.tensor([1.0], device="sim")) == "SimTensor([1.], device='sim:0')"
    assert "shape-only, made by aten::sum" in repr(large.sum())
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        torch.ones(1, device="sim").numpy()


def test_factories_from_python_data(sim):
    assert torch.tensor([[1, 2], [3, 4]], device="sim").tolist() == [[1, 2], [3, 4]]
    assert torch.as_tensor([1.5], device="sim").tolist() == [1.5]
    assert torch.ones(2, device="sim").new_tensor([3.0]).tolist() == [3.0]
    tensor = torch.zeros(3, device="sim")
    tensor[[0, 2]] = 5.0
    assert tensor.tolist() == [5.0, 0.0, 5.0]


def test_random_numbers_are_the_devices_own(sim):
    torch.manual_seed(7)
    host = torch.rand(2)
    torch.manual_seed(7)
    state = torch.cuda.get_rng_state()
    drawn = torch.rand(3, device="sim").tolist(), torch.nn.functional.dropout(torch.ones(8, device="sim")).tolist()
    assert torch.equal(torch.rand(2), host)
    torch.cuda.set_rng_state(state)
    again = torch.rand(3, device="sim").tolist(), torch.nn.functional.dropout(torch.ones(8, device="sim")).tolist()
    assert again == drawn


def test_tensors_of_host_and_device_do_not_mix(sim):
    with pytest.raises(RuntimeError, match="found at least two devices, sim:0 and cpu"):
        torch.ones(2, device="sim") + torch.ones(2)
    assert (torch.ones(2, device="sim") + torch.tensor(1.0)).tolist() == [2.0, 2.0]


def test_sparse_tensors_are_refused_by_name(sim):
    with pytest.raises(NotImplementedError, match="sparse"):
        torch.ones(2, 2, device="sim").to_sparse()


def test_nan_and_inf_are_values_like_others(sim):
    assert math.isnan((torch.zeros((), device="sim") / 0).item())


def test_optimizers_go_the_way_they_go_on_cuda(sim):
    parameters = [torch.nn.Parameter(torch.ones(4, device="sim")) for _ in range(20)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(parameters)
    optimizer.step()
    step = sim.observe(lambda: (torch.nn.utils.clip_grad_norm_(parameters, 1.0), optimizer.step()))
    assert step.syncs == ()
    assert step.ops < 2 * len(parameters)  # foreach: a constant number, not several a parameter
