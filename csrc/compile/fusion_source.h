#pragma once

#include <optional>
#include <string>

#include "ir/trace.h"

namespace thunder::compile {

/// The CUDA C++ of a fusion's kernel for the traced sizes and strides, without the prelude that all kernels share; for
/// a batch, that of its kernels one after the other. Needs neither a GPU nor NVRTC, and a fusion of another executor
/// has the kernel that the same operations would have on a GPU. nullopt: the symbol is no fusion, or there is no
/// kernel.
[[nodiscard]] std::optional<std::string> cuda_source(const ir::BoundSymbol& symbol, const ir::Trace& trace);

}  // namespace thunder::compile
