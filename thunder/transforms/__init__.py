"""Transforms of functions and of programs."""

from thunder.transforms.functional import autocast, grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap

__all__ = ["autocast", "grad", "hessian", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]
