"""Function transforms: `grad`, `value_and_grad`, `vjp`, `jvp`, `vmap`, `jacrev`, `jacfwd`, `hessian`, `autocast`.

They take a function and return one, mean what PyTorch's mean, and may be nested in any order. What they return is
compiled. Where such a function is called while a program is traced, the function inside is recorded as a trace of its
own, that trace is transformed (`csrc/transforms`), and the result is replayed in the place of the call. So a printed
trace shows what a transform came to.
"""

from thunder.transforms.functional.batching import vmap
from thunder.transforms.functional.forward_mode import jvp
from thunder.transforms.functional.jacobians import hessian, jacfwd, jacrev
from thunder.transforms.functional.precision import autocast
from thunder.transforms.functional.reverse_mode import grad, value_and_grad, vjp

__all__ = ["autocast", "grad", "hessian", "jacfwd", "jacrev", "jvp", "value_and_grad", "vjp", "vmap"]
