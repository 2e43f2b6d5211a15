#pragma once

#include <string_view>

namespace thunder::executors::cuda {

/// The beginning of every kernel's text: types of memory, functions of elements, reductions over threads. It needs no
/// header of CUDA.
extern const std::string_view kPrelude;

}  // namespace thunder::executors::cuda
