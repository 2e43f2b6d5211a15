#pragma once

#include <string>

namespace thunder::executors::cuda {

/// Machine code as `compile_to_cubin` gives it, from the disk where a process has compiled it before. Thread-safe.
[[nodiscard]] std::string cached_cubin(const std::string& text, int capability);

/// The key of a text in the cache `kKernelCache`: everything that decides its machine code.
[[nodiscard]] std::string cubin_key(const std::string& text, int capability);
inline constexpr const char* kKernelCache = "cuda";

}  // namespace thunder::executors::cuda
