"""Executors of your own: operators, implementations of PyTorch's, fusion passes. See docs/extending.md."""

from thunder._elsewhere import attribute_of
from thunder.extend.executors import Executor, FusionExecutor, OperatorExecutor
from thunder.extend.gradients import get_grad, put_grad
from thunder.extend.registry import (
    add_default_executor,
    deregister_executor,
    get_all_executors,
    get_default_executors,
    get_executor,
    register_executor,
    remove_default_executor,
    resolve_executors,
    set_default_executors,
)

__all__ = [
    "Executor",
    "FusionExecutor",
    "OperatorExecutor",
    "add_default_executor",
    "deregister_executor",
    "get_all_executors",
    "get_default_executors",
    "get_executor",
    "get_grad",
    "put_grad",
    "register_executor",
    "remove_default_executor",
    "resolve_executors",
    "set_default_executors",
]

__getattr__ = attribute_of(__name__)
