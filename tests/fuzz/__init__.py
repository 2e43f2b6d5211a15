"""Random programs, in eager and through thunder. See docs/maintainers/fuzzing.md."""

from __future__ import annotations

from tests.fuzz import kernels_on_host

kernels_on_host.load_if_chosen()
