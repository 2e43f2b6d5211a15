#pragma once

#include <cstddef>
#include <string_view>

namespace thunder::executors::cuda {

/// The beginning of every kernel's text: types of memory, functions of elements, reductions over threads. It needs no
/// header of CUDA.
extern const std::string_view kPrelude;
/// Where it ends in a kernel's text.
[[nodiscard]] std::size_t prelude_end(std::string_view text);

}  // namespace thunder::executors::cuda
