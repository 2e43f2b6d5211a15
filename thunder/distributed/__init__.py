"""Training in several processes, by transforms of traces. See docs/distributed.md."""

from thunder.distributed.data_parallel import DataParallel, ddp
from thunder.distributed.synchronization import no_sync

__all__ = ["DataParallel", "ddp", "no_sync"]
