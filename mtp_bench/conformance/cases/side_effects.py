"""What the loss must leave as it is: its caller's tensors, the main model's gradient, the process."""

from __future__ import annotations

from mtp_bench.conformance.model import Case, Inputs

CASES = (
    Case(
        id="inputs-unchanged",
        title="the caller's tensors stay as they are",
        fault="The main loss, or the next microbatch, sees shifted labels or another mask: the MTP loss writes into "
        "the tensors that it was given.",
        property="side_effects",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], depths=2, per_token=False),
        expected={"inputs_changed": []},
        arithmetic="Labels, mask, hidden states, weight and config are the same after the call.",
    ),
    Case(
        id="inputs-unchanged-packed",
        title="the caller's tensors stay as they are, packed",
        fault="The main loss, or the next microbatch, sees shifted labels, another mask or other boundaries: the MTP "
        "loss writes into the tensors that it was given.",
        property="side_effects",
        inputs=Inputs(labels=[[1, 2, 3, 4, 5]], loss_mask=[[1, 1, 1, 1, 1]], cu_seqlens=[0, 3, 5], per_token=False),
        expected={"inputs_changed": []},
        arithmetic="Labels, mask, boundaries, hidden states, weight and config are the same after the call.",
    ),
    Case(
        id="process-unchanged",
        title="Megatron and PyTorch stay as they are",
        fault="Code that has nothing to do with the MTP loss behaves differently after it: it replaces functions of "
        "Megatron, sets the loss scale, or leaves a mode of PyTorch on.",
        property="side_effects",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], per_token=False),
        expected={"process_changed": []},
        arithmetic="Functions, modes and the loss scale are the same after the call.",
    ),
    Case(
        id="main-gradient",
        title="the main model's gradient passes through",
        fault="The main loss trains the model with another gradient than its own: the MTP path scales it, adds to it "
        "or cuts it off.",
        property="gradient",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], depths=2),
        expected={"main_gradient": [[1.0, 2.0, 3.0, 4.0]]},
        arithmetic="What comes in, 1, 2, 3, 4, goes out.",
    ),
    Case(
        id="main-hidden-states",
        title="the main model's hidden states pass through",
        fault="The main model predicts from other hidden states than its own.",
        property="values",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], depths=2),
        expected={"result": [[1.0, 2.0, 3.0, 4.0]]},
        arithmetic="The first of three chunks is 1, 2, 3, 4, and is returned.",
    ),
    Case(
        id="evaluation",
        title="evaluation without gradients",
        fault="Evaluation raises or changes the main model's hidden states.",
        property="side_effects",
        inputs=Inputs(labels=[[5, 6, 7, 8]], loss_mask=[[1, 1, 1, 1]], training=False, grad=False, per_token=False),
        expected={"result": [[1.0, 2.0, 3.0, 4.0]], "logged": [], "inputs_changed": []},
        arithmetic="The first chunk is returned, nothing is logged.",
    ),
)
