"""Host-device synchronisations: what one is, where in the user's code it happens, how they add up by site."""

from mtp_bench.syncs.callsite import Frame, capture_stack
from mtp_bench.syncs.model import KINDS, Sync, SyncSite, by_site, total_known

__all__ = ["KINDS", "Frame", "Sync", "SyncSite", "by_site", "capture_stack", "total_known"]
