"""The base class of transforms, where Lightning Thunder has it."""

from thunder._elsewhere import attribute_of
from thunder.transforms.transform import Transform

__all__ = ["Transform"]

__getattr__ = attribute_of(__name__)
