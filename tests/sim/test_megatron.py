"""A Megatron GPT model with its MTP block trains on the simulated device: DDP, finalisation, clipping, AdamW."""

import pytest
import torch

from mtp_bench.megatron import isolated_state

SEQUENCE, VOCABULARY = 16, 64


@pytest.fixture
def training_step(sim):
    """One optimizer step of a two-layer model with one MTP depth, and the model."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
    from megatron.core.transformer import TransformerConfig

    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        ffn_hidden_size=64,
        mtp_num_layers=1,
        calculate_per_token_loss=True,
        gradient_accumulation_fusion=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    spec = get_gpt_layer_local_spec()
    with isolated_state(sim):
        model = GPTModel(
            config=config,
            transformer_layer_spec=spec,
            vocab_size=VOCABULARY,
            max_sequence_length=SEQUENCE,
            position_embedding_type="rope",
            mtp_block_spec=get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False),
        ).cuda()
        model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        tokens = torch.randint(VOCABULARY, (1, SEQUENCE + 1), generator=torch.Generator().manual_seed(0)).cuda()
        positions = torch.arange(SEQUENCE, device="cuda")[None]
        loss_mask = torch.ones(1, SEQUENCE, device="cuda")
        attention_mask = torch.ones(1, 1, SEQUENCE, SEQUENCE, device="cuda").tril() < 0.5

        def step():
            model.zero_grad_buffer()
            loss = model(
                input_ids=tokens[:, :-1],
                position_ids=positions,
                attention_mask=attention_mask,
                labels=tokens[:, 1:],
                loss_mask=loss_mask,
            )
            (loss * loss_mask).sum().backward()
            finalize_model_grads([model], loss_mask.sum().int())
            for parameter in model.parameters():
                parameter.grad = parameter.main_grad
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        yield step, model


def test_it_learns(training_step):
    step, model = training_step
    losses = [step().mean().item() for _ in range(8)]
    assert losses[-1] < losses[0] - 0.1
    assert all(parameter.main_grad.abs().sum().item() > 0 for parameter in model.parameters())


def test_its_only_wait_is_the_token_count_in_finalisation(sim, training_step):
    step, _ = training_step
    step()
    (sync,) = sim.observe(step).syncs
    assert sync.file == "megatron/core/distributed/finalize_model_grads.py"
    assert (sync.kind, sync.code) == ("item", "if num_tokens > 0:")
