"""Cross entropy of logits of which each process has the part of some words: no process has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from thunder.distributed.activation_parts import ActivationParts
    from thunder.trace import BoundSymbol, Value

__all__ = ["cross_entropy"]

_DEFAULTS: dict[str, Any] = {"weight": None, "reduction": 1, "ignore_index": -100, "label_smoothing": 0.0}
_MEAN, _SUM = 1, 2  # reductions of ATen


def cross_entropy(parts: ActivationParts, symbol: BoundSymbol) -> Value | None:
    """Insert the loss of the parts of logits in front of a call of `cross_entropy_loss`; return it.

    None where it needs full logits: these are not a matrix with parts of words, targets are probabilities or of a dtype
    that PyTorch refuses, or words have weights.
    """
    logits, target, *rest = symbol.args
    options = {**_DEFAULTS, **dict(zip(_DEFAULTS, rest, strict=False)), **symbol.kwargs}
    part = parts.find(logits)
    if part is None or part.dim != 1 or logits.ndim != 2 or options["weight"] is not None:
        return None
    if target.dtype not in (torch.int64, torch.uint8):
        return None
    target, group = parts.full(symbol, target), parts.group
    chosen = (options["reduction"], options["ignore_index"], options["label_smoothing"])
    arguments = (part.value, target, logits.shape[1], *chosen, group.name, group.size, group.rank)
    loss: Value = parts.edit.insert_before(symbol, _loss_of_parts, *arguments)
    return loss


def _loss_of_parts(
    logits: torch.Tensor,
    target: torch.Tensor,
    words: int,
    reduction: int,
    ignored: int,
    smoothing: float,
    group: str,
    size: int,
    rank: int,
) -> torch.Tensor:
    """Return the loss of logits [n, words / size] for targets [n], the same in all processes.

    Three numbers of each row are exchanged: the maximum, the sum of exponentials, and the logit of the target, which
    one process has. A target that is no word fails where it is looked up, in every process.
    """
    x = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    maxima = torch.ops.thunder.gather_parts(x.detach().amax(1).unsqueeze(0), 0, group, size, rank)
    x = x - maxima.amax(0).unsqueeze(1)
    normalizer = torch.ops.thunder.sum_over_processes(x.exp().sum(1), group).log()
    target = target.long()
    is_ignored = target == ignored
    own = torch.arange(words, device=target.device) - rank * (words // size)  # of each word: its place in the part
    own = own.gather(0, target.masked_fill(is_ignored, 0))
    is_elsewhere = (own < 0) | (own >= words // size) | is_ignored
    found = x.gather(1, own.masked_fill(is_elsewhere, 0).unsqueeze(1)).squeeze(1).masked_fill(is_elsewhere, 0.0)
    losses = normalizer - torch.ops.thunder.sum_over_processes(found, group)
    if smoothing:
        mean = torch.ops.thunder.sum_over_processes(x.sum(1), group) / words
        losses = losses * (1 - smoothing) + (normalizer - mean) * smoothing
    losses = losses.masked_fill(is_ignored, 0.0)
    if reduction == _SUM:
        losses = losses.sum()
    elif reduction == _MEAN:
        losses = losses.sum() / (~is_ignored).sum()
    return losses.to(logits.dtype)
