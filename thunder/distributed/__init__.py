"""Training in several processes, by transforms of traces. See docs/distributed.md."""

from thunder.distributed.data_parallel import DataParallel, ddp
from thunder.distributed.sharding import FSDPBucketingStrategy, FSDPType, FullySharded, fsdp
from thunder.distributed.shards import clip_grad_norm_, full_state_dict, load_full_state_dict
from thunder.distributed.synchronization import no_sync

__all__ = [
    "DataParallel",
    "FSDPBucketingStrategy",
    "FSDPType",
    "FullySharded",
    "clip_grad_norm_",
    "ddp",
    "fsdp",
    "full_state_dict",
    "load_full_state_dict",
    "no_sync",
]
