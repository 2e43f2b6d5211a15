"""The base class of transforms, where Lightning Thunder has it."""

from thunder.transforms.transform import Transform

__all__ = ["Transform"]
