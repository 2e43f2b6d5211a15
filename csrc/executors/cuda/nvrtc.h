#pragma once

#include <string>

namespace thunder::executors::cuda {

/// Whether NVRTC, NVIDIA's compiler of CUDA C++ at run time, is there.
[[nodiscard]] bool has_nvrtc();
/// Machine code for devices of that compute capability (90: 9.0). Throws UserError where NVRTC is not there, and
/// InternalError with its messages, and a file with the text, where it does not take that. Thread-safe.
[[nodiscard]] std::string compile_to_cubin(const std::string& text, int capability);

/// Everything besides a text that decides its machine code: the compiler's version and its options. Throws UserError
/// where NVRTC is not there.
[[nodiscard]] std::string compiler_key(int capability);

}  // namespace thunder::executors::cuda
