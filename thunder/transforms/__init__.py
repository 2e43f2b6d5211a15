"""Transforms of functions and of programs."""

from typing import Any

from thunder._elsewhere import missing_attribute
from thunder.transforms.overrides import Override, add_parameter, override_parameter, overrides_of
from thunder.transforms.transform import Transform

__all__ = [
    "Override",
    "Transform",
    "add_parameter",
    "autocast",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "override_parameter",
    "overrides_of",
    "value_and_grad",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> Any:
    # They are jitted functions, and `thunder.jit` takes transforms: loaded when first used.
    if name not in __all__:
        raise missing_attribute("thunder.transforms", name)
    from thunder.transforms import functional

    return getattr(functional, name)
