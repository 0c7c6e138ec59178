"""Ranks as processes of their own, started by ``torch.distributed.run``: from outside, and from inside."""
