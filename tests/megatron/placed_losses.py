"""Child process: train a GPT model as it is and with Megatron's own loss put in its place; print both as checksums."""

from __future__ import annotations

import json
import sys
import zlib

import torch
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer import multi_token_prediction

from mtp_bench import megatron, variants
from mtp_bench.megatron import HostPlace, transformer_config
from mtp_bench.megatron.attention import PackedAttention
from mtp_bench.megatron.gpt import Batch, draw_parameter
from mtp_bench.megatron.placement import Placement, Watch, mtp_loss_in_place
from mtp_bench.megatron.state import quiet
from tests.variants.recording import bits, workload

HOST = HostPlace()


def main() -> None:
    asked = json.loads(sys.argv[1])
    with megatron.isolated_state(HOST), quiet():
        found = {name: _case(**case) for name, case in asked.items()}
    print(json.dumps({"version": megatron.version(), "cases": found}))


def _case(shared=False, position="learned_absolute", **keys):
    chosen = workload(sequences=[6, 4, 3], mtp_num_layers=2, num_layers=1, **keys)
    config = transformer_config(chosen, on_host=True)
    model, batch = _model(chosen, config, shared, position), Batch(chosen, HOST.torch_device)
    before = _attributes(model)
    own = _train(model, batch)
    placement = Placement(model)
    placement.install()
    calls = []

    def loss(**arguments):
        calls.append(sorted(arguments))
        return variants.load("megatron")(**arguments)

    found = {"own": own, "idle": _train(model, batch)}
    placement.loss = loss
    found["placed"] = _train(model, batch)
    found["calls"] = len(calls)
    found["evaluated"] = _evaluate(model, batch)
    other = _model(chosen, config, shared, position)
    found["other"] = _train(other, batch)
    found["calls after"] = len(calls)
    placement.loss = placement.own
    found["own in place"] = _train(model, batch)
    placement.loss = None
    found["watched"], found["order"] = _watched(placement, model, batch)
    placement.remove()
    found["evaluated before"] = _evaluate(model, batch)
    found["restored"] = _attributes(model) == before
    found["restored after raising"] = _raises(model, batch) and _attributes(model) == before
    return found


def _model(chosen, config, shared, position):
    layer = get_gpt_layer_local_spec()
    if chosen.packed:
        layer.submodules.self_attention.submodules.core_attention = PackedAttention
    model = GPTModel(
        config,
        layer,
        vocab_size=chosen.vocab_size,
        max_sequence_length=chosen.layout().row_length,
        position_embedding_type=position,
        share_embeddings_and_output_weights=shared,
        mtp_block_spec=get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False),
    )
    model = model.to(config.params_dtype)  # as Float16Module does
    for name, parameter in model.named_parameters():
        draw_parameter(name, parameter, chosen.seed)
    return model


def _train(model, batch):
    """Checksums of the loss of every token, of every parameter's gradient and of the log."""
    model.zero_grad()
    megatron.clear_logged_losses()
    losses = batch.run(model)
    losses.mean().backward()
    logged = [zlib.crc32(bits(loss)) for loss in megatron.logged_losses()]
    gradients = {
        name: zlib.crc32(bits(parameter.grad))
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return [zlib.crc32(bits(losses.detach())), logged, gradients]


def _watched(placement, model, batch):
    """Train, and evaluate, with what happens in order: the own loss begins and ends, the output layer runs."""
    order = []
    placement.watch = Watch(lambda: order.append("enter"), lambda: order.append("leave"))
    hook = model.output_layer.register_forward_pre_hook(lambda *_: order.append("layer"))
    trained, order_of_training = _train(model, batch), list(order)
    order.clear()
    _evaluate(model, batch)
    hook.remove()
    return trained, [order_of_training, sorted(set(order))]


def _evaluate(model, batch):
    """Checksums of the losses in eval mode, under no_grad, and in both."""
    found = []
    for training, with_grad in ((False, True), (True, False), (False, False)):
        model.train(training)
        with torch.set_grad_enabled(with_grad):
            found.append(zlib.crc32(bits(batch.run(model).detach())))
    model.train()
    return found


def _raises(model, batch):
    def fails(**_):
        raise RuntimeError("inside")

    try:
        with mtp_loss_in_place(model, fails, roll=lambda *_, **__: None):
            batch.run(model)
    except (RuntimeError, TypeError):  # the roll's, where sequences are packed
        return True
    return False


def _attributes(model):
    place = {"process_mtp_loss": id(getattr(gpt_model, "process_mtp_loss", None))}
    return {**place, "roll": id(multi_token_prediction.roll_tensor), **{k: id(v) for k, v in vars(model).items()}}


if __name__ == "__main__":
    main()
