"""Functions of derivatives written in Python, where Lightning Thunder has them."""

from thunder._elsewhere import attribute_of
from thunder.extend.gradients import get_grad, put_grad, put_grads

__all__ = ["get_grad", "put_grad", "put_grads"]

__getattr__ = attribute_of(__name__)
