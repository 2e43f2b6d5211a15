"""thunder as a back end of torch.compile. See docs/torch-compile.md."""

from thunder._elsewhere import attribute_of
from thunder.dynamo.compiler import (
    SubgraphInfo,
    ThunderCompiler,
    ThunderFXCompiledObject,
    thunder_backend,
    thunderfx,
)
from thunder.dynamo.regions import Report

__all__ = [
    "Report",
    "SubgraphInfo",
    "ThunderCompiler",
    "ThunderFXCompiledObject",
    "thunder_backend",
    "thunderfx",
]

__getattr__ = attribute_of(__name__)
