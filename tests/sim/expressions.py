"""Expressions and how often each makes the host wait, the same on CUDA and on the simulated device.

Kept free of both, so that the CUDA build under tools/hostcuda can run it too. Counts are those of the CUDA build
(2.14.1) with ``torch.cuda.set_sync_debug_mode("warn")``.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

# What PyTorch's own test of the sync debug mode (test/test_cuda.py) holds must not and must wait.
PYTORCH_MUST_NOT = """
x[mask] = 1.0
x[mask_cpu] = y
x[ind] = y
x[mask_cpu]
x[ind]
F.one_hot(ind, num_classes=4)
torch.randperm(20000, device=device)
torch.repeat_interleave(x, 2, output_size=8)
torch.repeat_interleave(x, repeats, output_size=8)
torch.any(y)
"""
PYTORCH_MUST = """
x[mask] = y
x[ind_cpu] = y
x[mask]
x[ind_cpu]
x.nonzero()
bool(y)
F.one_hot(ind)
torch.repeat_interleave(x, repeats)
"""
# "COUNT  EXPRESSION": how often each waits, by the debug mode.
COUNTS = """
1  y.item()
1  float(y)
1  int(y)
1  y.tolist()
1  x.tolist()
1  x.cpu()
1  x.to('cpu')
0  x.to('cpu', non_blocking=True)
1  x.to('cpu', torch.float64)
0  x.to(torch.float64)
0  x.to(device)
1  x_cpu.to(device)
1  x_cpu.to(device, torch.float64)
1  x_cpu.cuda()
1  x_pinned.to(device)
0  x_pinned.to(device, non_blocking=True)
1  x.copy_(x_cpu)
0  x.copy_(x_pinned, non_blocking=True)
1  x.copy_(x_cpu.double())
0  x.copy_(y)
1  x_cpu.copy_(x)
0  x_pinned.copy_(x, non_blocking=True)
0  x[:0].cpu()
0  x_cpu[:0].to(device)
1  mat.t().cpu()
1  mat[:, ::2].cpu()
1  mat_cpu.t().to(device)
1  mat[:, ::2].copy_(mat_cpu[:, ::2])
1  torch.tensor(1.0, device=device)
1  torch.tensor([1.0, 2.0], device=device)
0  torch.tensor([], device=device)
1  torch.as_tensor([1, 2], device=device)
1  torch.as_tensor(x_cpu, device=device)
1  torch.asarray([1, 2], device=device)
0  torch.scalar_tensor(1.0, device=device)
0  torch.full((), 1.0, device=device)
1  x.new_tensor(0.0)
1  x.new_tensor([0.0, 1.0])
0  x.new_zeros(())
0  x.new_full((2,), 3.0)
0  torch.zeros(4, device=device)
0  torch.ones_like(x)
0  torch.arange(4, device=device)
0  torch.linspace(0, 1, 4, device=device)
0  torch.eye(4, device=device)
0  torch.rand(4, device=device)
0  torch.randint(4, (4,), device=device)
0  torch.empty(4, device=device).normal_()
0  torch.empty(4, device=device).bernoulli_(0.5)
0  torch.bernoulli(prob)
0  torch.multinomial(prob, 2)
0  torch.multinomial(prob, 2, replacement=True)
0  torch.normal(x, prob)
0  torch.normal(0.0, prob)
0  torch.tril_indices(4, 4, device=device)
0  x[0]
0  x[1:3]
1  x[ind[0]]
1  x[ind[0]:]
2  x[ind[0]:ind[1]]
2  x[..., cu[0]:cu[1]]
4  mat[cu[0]:cu[1], cu[1]:cu[2]]
0  x[None]
1  x[[0, 1]]
2  x[[True, False, True, False]]
2  x[[0, 1]] = 5.0
1  x[0] = 5.0
0  x[0:2] = 5.0
0  x[0] = y
0  x[0:2] = y
1  x[ind] = 5.0
0  x[ind] = x[ind]
2  x[ind[0]] = 5.0
2  x[ind[0]:ind[1]] = 5.0
0  mat[mask] = 0.0
0  mat[:, mask] = 0.0
0  mat[mask, 0] = 0.0
1  mat[mask]
1  mat[:, mask]
2  mat[mask, ind[0]]
0  mat[mask_cpu]
0  mat[ind, ind]
1  mat[ind_cpu, ind]
1  mat[0, ind_cpu]
1  mat[mat > 0]
0  mat[mat > 0] = 0.0
1  mat[mat > 0] = y
1  mat[mat > 0] = x[0]
2  x[mask] += 1
0  x[ind] += 1
0  x.index_put_((ind,), y)
0  x.index_put_((ind,), y, accumulate=True)
1  x.index_put_((mask,), y, accumulate=True)
1  x.index_put_((ind_cpu,), y)
1  x[mask8]
0  x[ind.to(torch.int32)]
0  x.index_select(0, ind)
0  x.index_fill_(0, ind, 1.0)
1  x.index_fill_(0, ind, y)
0  x.gather(0, ind)
0  x.scatter_(0, ind, 1.0)
0  x.take(ind)
0  x.masked_fill(mask, 0.0)
0  x.masked_fill_(mask, 0.0)
1  x.masked_fill(mask, y)
1  x.masked_fill_(mask, y)
1  x.masked_select(mask)
0  x.masked_scatter(mask, x)
0  torch.where(mask, x, y)
0  torch.where(mask, x, 0.0)
1  torch.where(mask)
1  torch.nonzero(x)
1  torch.nonzero(x, as_tuple=True)
0  torch.nonzero_static(x, size=4)
1  torch.argwhere(x)
0  torch.count_nonzero(x)
1  torch.unique(x)
1  torch.unique(x, return_inverse=True, return_counts=True)
1  torch.unique_consecutive(x)
2  torch.bincount(ind)
2  torch.bincount(ind, minlength=8)
2  torch.histc(x)
0  torch.histc(x, min=0, max=1)
0  torch.bucketize(x, x)
0  torch.searchsorted(x, x)
2  torch.repeat_interleave(x, repeats4)
2  torch.repeat_interleave(repeats4)
0  torch.repeat_interleave(repeats4, output_size=8)
0  torch.tensor_split(x, 2)
0  torch.split(x, 2)
0  x.split([2, 2])
0  x.chunk(2)
0  torch.narrow(x, 0, 1, 2)
1  torch.narrow(x, 0, ind[0], 2)
0  torch.equal(x, x)
1  torch.equal(x, x.clone())
0  torch.equal(x, x[:2])
1  torch.allclose(x, x)
0  torch.isclose(x, x)
0  torch.isfinite(x).all()
1  bool(torch.isfinite(x).all())
1  bool(x.any())
1  x.is_nonzero() if x.numel() == 1 else y.is_nonzero()
0  x.sum()
0  x.mean()
0  x.max()
0  x.max(0)
0  x.argmax()
0  x.median()
0  x.median(0)
0  x.kthvalue(1)
0  x.mode()
0  x.sort()
0  x.topk(2)
0  x.cumsum(0)
0  x.std()
0  x.var()
0  x.norm()
0  torch.nanmean(x)
0  torch.quantile(x, 0.5)
0  torch.logsumexp(x, 0)
0  torch.clamp(x, min=1)
0  torch.clamp(x, min=y)
0  x.clamp_(min=1.0)
0  x + 1
0  x + y
0  x + y_cpu
0  x * y_cpu
0  x.add_(y_cpu)
0  x / ind.sum()
0  x.div_(y)
0  x.lerp(x, 0.5)
0  torch.addcmul(x, x, x)
0  torch.addcdiv(x, x, x)
0  torch.pow(x, 2)
0  torch.pow(2, x)
0  x ** y
0  x == x
0  x > y
0  torch.maximum(x, y)
0  torch.stack([x, x])
0  torch.cat([x, x])
0  torch.block_diag(mat, mat)
0  x.repeat(2)
0  x.expand(2, 4)
0  x.roll(1)
0  torch.roll(x, shifts=-1, dims=-1)
0  x.flip(0)
0  torch.tril(mat)
0  torch.triu(mat, 1)
0  mat @ mat
0  mat @ x
0  torch.einsum('ij,jk->ik', mat, mat)
0  torch.bmm(mat[None], mat[None])
0  torch.outer(x, x)
0  torch.dot(x, x)
0  torch.baddbmm(mat[None], mat[None], mat[None])
1  torch.cov(mat)
1  torch.corrcoef(mat)
0  torch.cdist(mat, mat)
0  torch.dist(x, x)
0  F.softmax(x, 0)
0  F.log_softmax(mat, -1)
0  F.cross_entropy(mat, target)
0  F.cross_entropy(mat, target, ignore_index=0)
0  F.cross_entropy(mat, target, reduction='none')
0  F.cross_entropy(mat, mat.softmax(-1))
0  F.nll_loss(mat, target)
0  F.binary_cross_entropy(prob, prob)
0  F.binary_cross_entropy_with_logits(x, prob)
0  F.mse_loss(x, x)
0  F.smooth_l1_loss(x, x)
0  F.kl_div(x, prob)
8  F.ctc_loss(logits, ctc_targets, ctc_lengths, ctc_target_lengths)
5  F.ctc_loss(logits, ctc_targets, (5, 5), (2, 2))
0  F.embedding(ind, mat)
0  F.embedding(ind, mat, padding_idx=0)
0  F.embedding_bag(ind[None], mat)
0  F.one_hot(ind, 4)
0  F.one_hot(ind, 2)
0  F.linear(mat, mat, x)
0  F.layer_norm(mat, (4,), x, x)
0  F.rms_norm(mat, (4,), x)
0  F.group_norm(mat, 2)
0  F.batch_norm(mat, x.clone(), x.clone(), training=True)
0  F.dropout(x, 0.5)
0  F.dropout(x, 0.5, training=False)
0  F.gelu(x)
0  F.silu(x)
0  F.relu(x)
0  F.pad(x, (1, 1))
0  F.max_pool1d(mat[None], 2)
0  F.avg_pool1d(mat[None], 2)
0  F.interpolate(mat[None], scale_factor=2)
0  F.scaled_dot_product_attention(mat[None, None], mat[None, None], mat[None, None])
0  F.scaled_dot_product_attention(mat[None, None], mat[None, None], mat[None, None], is_causal=True)
0  F.scaled_dot_product_attention(mat[None, None], mat[None, None], mat[None, None], attn_mask=mat > 0)
0  F.normalize(mat)
0  F.cosine_similarity(mat, mat)
0  F.grid_sample(mat[None, None], torch.zeros(1, 2, 2, 2, device=device))
2  torch.unravel_index(ind, (2, 2))
2  torch.linspace(y, y, 4)
1  torch.linspace(y, 1.0, 4)
2  torch.logspace(y, y, 4)
0  torch.cartesian_prod(x, x)
0  torch.meshgrid(x, x, indexing='ij')
0  torch.trapezoid(x)
0  torch.diff(x)
0  torch.vander(x)
1  torch.masked.sum(mat, dim=[0, 1], mask=mat > 0)
1  torch.masked.mean(mat, dim=0, mask=mat > 0)
0  torch.nn.utils.rnn.pad_sequence([x, x])
0  torch.nn.utils.rnn.pack_padded_sequence(mat[:, :, None], ctc_lengths_cpu)
0  torch.nn.utils.clip_grad_norm_(params, 1.0)
1  torch.nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
0  torch.nn.utils.clip_grad_value_(params, 1.0)
0  torch.nn.utils.parameters_to_vector(params)
0  torch._foreach_norm(params)
0  torch._foreach_mul_([x, x.clone()], y)
0  torch._foreach_mul_([x, x.clone()], 2.0)
0  torch._foreach_add([x, x], [x, x])
0  x.detach().requires_grad_().sum().backward()
0  F.embedding(ind, mat.detach().requires_grad_()).sum().backward()
0  F.cross_entropy(mat.detach().requires_grad_(), target).backward()
0  mat.detach().requires_grad_()[ind].sum().backward()
2  mat.detach().requires_grad_()[mask].sum().backward()
0  x.detach().requires_grad_().index_select(0, ind).sum().backward()
0  mat.detach().requires_grad_().gather(1, ind[:, None]).sum().backward()
0  x.detach().requires_grad_().masked_fill(mask, 0.0).sum().backward()
0  torch.where(mask, x.detach().requires_grad_(), y).sum().backward()
0  x.detach().requires_grad_().max().backward()
0  F.layer_norm(mat.detach().requires_grad_(), (4,)).sum().backward()
0  x.detach().requires_grad_().topk(2)[0].sum().backward()
1  f'{y:.2f}'
0  copy.deepcopy(x)
0  x.data
0  x.clone()
0  x.contiguous()
0  mat.t().contiguous()
0  x.numel()
0  x.is_contiguous()
0  len(x)
0  list(x)
0  torch.is_tensor(x)
0  x.type(torch.float16)
0  x.half().float()
0  x.view(2, 2)
0  x.view(torch.int32)
0  x.set_(x.clone())
0  x.resize_(8)
0  x.fill_(1.0)
0  x.fill_(y)
0  x.zero_()
0  x.uniform_()
0  x.random_(4)
3  max(x)
0  sum(x)
1  y in x
1  range(ind[0])
1  [1, 2, 3, 4][ind[0]]
1  torch.cuda.current_stream().synchronize()
0  torch.cuda.Event().record()
0  adamw.step()
0  adamw_single.step()
0  adamw_capturable.step()
0  sgd.step()
0  adam_amsgrad.step()
6  adafactor.step()
9  asgd.step()
0  adagrad.step()
0  rmsprop.step()
0  adamw.zero_grad()
0  adamw.zero_grad(set_to_none=False)
3  torch.isin(x, torch.arange(40, device=device))
1  torch.isin(x, torch.arange(40, device=device), assume_unique=True)
0  torch.isin(x, x[:2])
0  torch.isin(x, 1.0)
2  torch.matrix_exp(mat)
0  mat.mode()
0  mat.mode(0)
0  torch.mode(torch.rand(2000, device=device))
2  torch.pinverse(mat)
2  torch.searchsorted(x, x, sorter=ind.new_zeros(4))
1  torch.nonzero(x[:0])
1  torch.masked_select(x[:0], mask[:0])
1  x[:0][mask[:0]]
0  x[:0][ind[:0]]
0  x[ind_cpu[:0]]
0  torch.unique(x[:0])
0  torch.unique_consecutive(x[:0])
1  torch.unique(x, sorted=False)
1  torch.unique(x > 0)
0  torch.bincount(ind[:0])
0  torch.histc(x[:0])
0  torch.equal(x[:0], x[:0].clone())
0  torch.equal(x, x.view(4))
0  torch.equal(x, x.detach())
0  torch.equal(x, x.data)
1  torch.equal(x[:2], x[2:])
1  torch.equal(mat, mat.t())
2  mat[mask, mask]
1  mat[mask, ind]
1  mat[ind, mask]
1  mat[mask, mask_cpu]
2  mat[ind_cpu, ind_cpu]
1  mat[ind, ind_cpu]
1  mat[None, mask]
1  mat[..., mask]
2  mat[mask][:, mask]
1  x[ind] = x_cpu[0]
2  x[ind_cpu] = x_cpu[0]
2  x[ind_cpu] = 1.0
1  x[mask_cpu] = 1.0
2  mat[mask, ind] = 1.0
0  mat[mask, :2] = 1.0
0  mat[:2, mask] = 1.0
3  mat[mask, mask] = 1.0
0  x[...] = 1.0
0  x[:] = y_cpu
1  x[:2] = x_cpu[:2]
1  x[0] = y_cpu
0  mat[0] = y_cpu
1  mat[0] = x_cpu
1  x[0] = 1
1  x[0] = True
1  x[ind[0]] = y
1  x[y_cpu.long()] = 1.0
0  x[True] = 1.0
1  mat[1, 2] = 1.0
0  x[None] = 1.0
0  x.masked_fill_(mask, y_cpu)
1  torch.where(mask, x, y_cpu)
0  torch.where(mask, 1.0, 0.0)
0  x.clamp(y, y)
0  x.fill_(y_cpu)
1  x.copy_(y_cpu)
0  x.add_(1, alpha=2)
0  x.sum().backward() if x.requires_grad else x
0  torch.repeat_interleave(x[:0], ind[:0])
2  torch.repeat_interleave(mat, repeats4, dim=0)
0  torch.repeat_interleave(mat, 2, dim=0)
0  F.one_hot(ind[:0], 3)
11  F.ctc_loss(logits.detach().requires_grad_(), ctc_targets, ctc_lengths, ctc_target_lengths).backward()
0  x.new_tensor(y)
0  torch.tensor(y, device=device)
3  torch.tensor([y, y], device=device)
0  torch.tensor(y)
0  torch.as_tensor(y, device=device)
1  torch.as_tensor(np_x, device=device)
1  x.cpu().numpy()
0  x.sum(dtype=torch.float64)
1  x.bfloat16().tolist()
0  torch.isnan(x).any()
1  if torch.isnan(x).any(): pass
1  assert x.sum() > 0
1  while y > 1: break
1  not y
1  y and 1
0  abs(y)
1  math.floor(y)
1  math.isnan(y)
1  int(ind[0])
1  x[int(ind[0])]
1  torch.zeros(int(ind[0]) + 1, device=device)
1  torch.zeros(4, device=device)[ind[0]:]
1  torch.arange(ind[0], device=device)
1  torch.full((2,), y, device=device)
1  torch.full_like(x, y)
1  x.new_full((2,), y)
1  torch.ones(2, device=device) * y.item()
0  torch.split(x, [1, 3])
1  torch.split(x, repeats4.tolist()[:2])
0  x.reshape(-1, 2)
1  x.expand(ind[1], 4)
1  x.roll(int(ind[0]))
1  torch.roll(x, ind[0])
0  torch.cumsum(ind, 0)[-1]
0  torch.diff(cu).max()
1  torch.diff(cu).max().item()
1  cu.tolist()
3  [int(i) for i in cu]
1  cu.cpu()[1]
0  cu[1:] - cu[:-1]
0  zip(cu[:-1], cu[1:])
4  [x[a:b] for a, b in zip(cu[:-1], cu[1:])]
2  torch.cat([x[a:b] for a, b in zip(cu[:-1].tolist(), cu[1:].tolist())])
0  torch.nn.utils.rnn.pad_sequence([x[:2], x])
0  torch.split(x, [2, 2])[0].sum()
0  x.to(device, non_blocking=True)
0  x.to('cpu', non_blocking=True).numpy()
0  x_cpu.pin_memory().to(device, non_blocking=True)
0  x_pinned[1:].to(device, non_blocking=True)
0  mat_cpu[:, 0].pin_memory().to(device, non_blocking=True)
1  mat[:, 0].copy_(mat_cpu[:, 0])
0  mat[:, 0].copy_(mat_cpu[:, 0], non_blocking=True)
1  mat_cpu[:, 0].copy_(mat[:, 0])
1  x_cpu.copy_(x.double())
1  x_cpu.copy_(mat[:, 0].double())
1  x.double().copy_(x_cpu)
1  torch.empty(4).copy_(x)
1  torch.save(x, io.BytesIO())
1  pickle.dumps(x)
0  torch.cuda.current_stream().wait_stream(torch.cuda.current_stream())
0  torch.cuda.empty_cache()
0  torch.cuda.memory_allocated()
0  torch.cuda.get_rng_state()
0  torch.cuda.set_rng_state(torch.cuda.get_rng_state())
0  torch.cuda.manual_seed(1)
0  torch.manual_seed(1)
0  torch.random.fork_rng().__enter__()
0  torch.utils.checkpoint.checkpoint(lambda a: a * 2, x.detach().requires_grad_(), use_reentrant=False).sum().backward()
0  torch.utils.checkpoint.checkpoint(lambda a: a * 2, x.detach().requires_grad_(), use_reentrant=True).sum().backward()
0  torch.optim.AdamW(params, fused=True).step()
0  torch.optim.lr_scheduler.StepLR(sgd, 1).step()
0  torch.amp.GradScaler('cuda').scale(y)
1  torch._foreach_copy_([x], [x_cpu])
0  torch._foreach_add_([x, x.clone()], [x, x.clone()], alpha=2)
0  torch._foreach_norm([x, x])
0  torch._foreach_div_([x], y)
0  torch._foreach_lerp_([x], [x.clone()], 0.5)
0  torch._amp_foreach_non_finite_check_and_unscale_([x], y, y)
0  torch.nn.Linear(4, 4, device=device)
2  torch.nn.Linear(4, 4).to(device)
2  torch.nn.LayerNorm(4).to(device)
0  torch.nn.Embedding(4, 4, device=device)(ind)
0  torch.nn.TransformerEncoderLayer(4, 2, 8, device=device, batch_first=True).eval()(mat[None])
0  torch.nn.CrossEntropyLoss(weight=prob)(mat, target)
0  torch.nn.BCELoss()(prob, prob)
1  torch.distributions.Categorical(prob, validate_args=True)
0  torch.distributions.Categorical(prob, validate_args=False).sample()
3  torch.distributions.Normal(x, prob, validate_args=True).log_prob(x)
0  torch.histogram(x_cpu, 4)
0  torch.triu_indices(4, 4, device=device)
0  torch.tensor_split(x, torch.tensor([1, 2]))
0  torch.take_along_dim(x, ind)
0  torch.scatter_reduce(x, 0, ind, x[:3].clone(), 'sum')
0  torch.index_reduce(x, 0, ind, x[:3].clone(), 'mean')
0  x.index_add_(0, ind, x[:3].clone())
0  x.index_copy_(0, ind, x[:3].clone())
0  x.scatter_add_(0, ind, x[:3].clone())
0  x.put_(ind, x[:3].clone())
0  torch.gather(mat, 1, ind[:, None])
0  torch.sort(mat, stable=True)
0  torch.msort(mat)
0  torch.argsort(x)
0  torch.cummax(x, 0)
0  torch.logcumsumexp(x, 0)
0  torch.renorm(mat, 2, 0, 1.0)
0  torch.nan_to_num(x)
0  torch.aminmax(x)
0  torch.var_mean(x)
0  torch.std_mean(mat, 0)
0  torch.bitwise_and(ind, 1)
0  torch.floor_divide(x, y)
0  torch.remainder(x, 2)
0  torch.fmod(x, y)
0  x.round(decimals=1)
0  torch.erf(x)
0  torch.polar(x, x)
0  torch.view_as_complex(mat.view(4, 2, 2))
0  torch.isreal(x)
0  torch.signbit(x)
0  F.kl_div(mat.log_softmax(-1), mat.softmax(-1), reduction='batchmean')
0  F.gumbel_softmax(mat)
0  F.multi_margin_loss(mat, target)
0  F.triplet_margin_loss(mat, mat, mat)
0  F.cosine_embedding_loss(mat, mat, x.sign())
0  F.hinge_embedding_loss(x, x.sign())
0  F.poisson_nll_loss(x, x)
1  F.gaussian_nll_loss(x, x, prob)
0  F.unfold(mat[None, None], 2)
0  F.adaptive_avg_pool1d(mat[None], 2)
0  F.pixel_shuffle(mat.view(1, 4, 2, 2), 2)
0  F.embedding(ind, mat, max_norm=1.0)
1  F.embedding_bag(ind, mat, torch.tensor([0, 1], device=device))
1  F.one_hot(ind % 4)
0  F.instance_norm(mat[None])
0  F.local_response_norm(mat[None], 2)
0  F.dropout2d(mat[None, None], 0.5)
0  F.alpha_dropout(x, 0.5)
0  F.rrelu(x, training=True)
0  torch.optim.AdamW([parameter], lr=torch.tensor(1e-3), capturable=False, foreach=False).step()
1  torch.optim.Adam([parameter], lr=y, capturable=True).step()
0  torch.nn.utils.get_total_norm([p.grad for p in params])
0  torch.nn.utils.clip_grads_with_norm_(params, 1.0, y)
0  torch.nn.utils.clip_grad_norm_(params, 1.0, foreach=False)
0  torch.nn.utils.clip_grad_norm_(params, float('inf'))
0  torch.nn.utils.clip_grad_norm_(params, 1.0, norm_type=float('inf'))
"""
# Waits that the debug mode does not see: "COUNT ON SIM  EXPRESSION". cudaStreamSynchronize inside Thrust (seen by
# hostcuda's counters), copies into pageable memory, where the driver waits, and device and event synchronisation.
UNSEEN = """
1  torch.unique(mat, dim=0)
1  torch.unique_consecutive(mat, dim=0)
1  x_cpu.copy_(x, non_blocking=True)
1  x.copy_(x_cpu, non_blocking=True)
1  x_cpu.to(device, non_blocking=True)
1  torch.cuda.synchronize()
1  torch.cuda.Event().synchronize()
"""


def inputs(device: Any, expression: str = "") -> dict[str, Any]:
    """Fresh tensors for one expression: ``x`` [4], ``y`` a scalar, ``mat`` [4, 4], indices, masks, parameters."""
    ind_cpu = torch.tensor([0, 2, 3])
    mask_cpu = torch.tensor([True, False, True, True])
    mat_cpu = torch.eye(4) * 2 + 0.1
    given = {
        "x": torch.rand(4).to(device),
        "y": torch.tensor(0.5).to(device),
        "mat": mat_cpu.to(device),
        "prob": torch.tensor([0.1, 0.2, 0.3, 0.4]).to(device),
        "ind": ind_cpu.to(device),
        "mask": mask_cpu.to(device),
        "mask8": mask_cpu.to(torch.uint8).to(device),
        "cu": torch.tensor([0, 2, 4]).to(device),
        "target": torch.tensor([0, 1, 2, 3]).to(device),
        "repeats": torch.tensor([2]).to(device),
        "repeats4": torch.tensor([2, 2, 2, 2]).to(device),
        "x_cpu": torch.rand(4),
        "x_pinned": torch.rand(4).pin_memory(),
        "y_cpu": torch.tensor(0.5),
        "mat_cpu": mat_cpu,
        "ind_cpu": ind_cpu,
        "mask_cpu": mask_cpu,
        "np_x": torch.rand(4).numpy(),
        "logits": torch.randn(5, 2, 4).log_softmax(-1).to(device),
        "ctc_targets": torch.tensor([[1, 2], [2, 3]]).to(device),
        "ctc_lengths": torch.tensor([5, 5]).to(device),
        "ctc_target_lengths": torch.tensor([2, 2]).to(device),
        "ctc_lengths_cpu": torch.tensor([4, 4, 3, 2]),
    }
    params = [torch.nn.Parameter(mat_cpu.to(device)) for _ in range(3)]
    for parameter in params:
        parameter.grad = torch.ones_like(parameter)
    optimizers = {name: make(params) for name, make in _OPTIMIZERS.items() if name in expression}
    return {**_MODULES, **given, **optimizers, "device": device, "params": params, "parameter": params[0]}


_MODULES = {"torch": torch, "F": F, "copy": copy, "io": io, "math": math, "pickle": pickle}
_OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": torch.optim.AdamW,
    "adamw_single": lambda params: torch.optim.AdamW(params, foreach=False),
    "adamw_capturable": lambda params: torch.optim.AdamW(params, capturable=True),
    "adam_amsgrad": lambda params: torch.optim.Adam(params, amsgrad=True),
    "sgd": lambda params: torch.optim.SGD(params, momentum=0.9),
    "adafactor": torch.optim.Adafactor,
    "asgd": torch.optim.ASGD,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def lines(text: str) -> list[str]:
    """The expressions of a table without counts."""
    return [line for line in text.splitlines() if line]


def counted(text: str) -> dict[str, int]:
    """The expressions of a table with counts."""
    rows = (line.split("  ", 1) for line in lines(text))
    return {expression: int(count) for count, expression in rows}


def run(expression: str, given: dict[str, Any]) -> None:
    """Evaluate an expression or an assignment."""
    exec(compile(expression, "<expression>", "exec"), given)
