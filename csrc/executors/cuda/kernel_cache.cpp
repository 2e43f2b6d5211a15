#include "executors/cuda/kernel_cache.h"

#include <optional>

#include "base/disk_cache.h"
#include "executors/cuda/nvrtc.h"

namespace thunder::executors::cuda {
namespace {

/// null: nothing is kept on disk.
DiskCache* cache() {
  static DiskCache* const kCache = []() -> DiskCache* {
    const std::uint64_t bytes = cache_bytes();
    const auto folder = cache_folder(kKernelCache);
    return bytes == 0 || !folder ? nullptr : new DiskCache(*folder, bytes);
  }();
  return kCache;
}

}  // namespace

std::string cubin_key(const std::string& text, int capability) { return compiler_key(capability) + '\n' + text; }

std::string cached_cubin(const std::string& text, int capability) {
  DiskCache* const known = cache();
  if (known == nullptr) return compile_to_cubin(text, capability);
  const std::string key = cubin_key(text, capability);
  if (auto code = known->find(key)) return *std::move(code);
  std::string code = compile_to_cubin(text, capability);
  known->store(key, code);
  return code;
}

}  // namespace thunder::executors::cuda
