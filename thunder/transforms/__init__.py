"""Transforms of functions and of programs."""

from thunder.transforms.functional import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap

__all__ = ["grad", "hessian", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]
