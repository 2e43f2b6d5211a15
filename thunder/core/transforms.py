"""Functions of derivatives written in Python, where Lightning Thunder has them."""

from thunder.extend.gradients import get_grad, put_grad

__all__ = ["get_grad", "put_grad"]
