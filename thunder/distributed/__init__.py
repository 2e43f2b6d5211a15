"""Training in several processes, by transforms of traces. See docs/distributed.md."""

from thunder._elsewhere import attribute_of
from thunder.distributed.data_parallel import DataParallel, ddp
from thunder.distributed.sharding import FSDPBucketingStrategy, FSDPType, FullySharded, fsdp
from thunder.distributed.shards import clip_grad_norm_, full_state_dict, load_full_state_dict
from thunder.distributed.synchronization import no_sync
from thunder.distributed.tensor_parallel import TensorParallel, column_parallel, row_parallel, tensor_parallel

__all__ = [
    "DataParallel",
    "FSDPBucketingStrategy",
    "FSDPType",
    "FullySharded",
    "TensorParallel",
    "clip_grad_norm_",
    "column_parallel",
    "ddp",
    "fsdp",
    "full_state_dict",
    "load_full_state_dict",
    "no_sync",
    "row_parallel",
    "tensor_parallel",
]

__getattr__ = attribute_of(__name__)
