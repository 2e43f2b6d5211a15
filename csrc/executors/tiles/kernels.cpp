#include "executors/tiles/kernels.h"

#include <cstdlib>
#include <string_view>

namespace thunder::executors::cpu {
namespace {

const Kernels& choose() {
  const char* variable = std::getenv("ATEN_CPU_CAPABILITY");
  const std::string_view limit = variable == nullptr ? "" : variable;
#ifdef __x86_64__
  const bool has_avx2 =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("f16c") != 0;
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
                          __builtin_cpu_supports("avx512vl") != 0;
  if (has_avx512 && limit != "avx2" && limit != "default") return capability_avx512::kKernels;
  if (has_avx2 && limit != "default") return capability_avx2::kKernels;
#endif
  return capability_default::kKernels;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& kChosen = choose();
  return kChosen;
}

}  // namespace thunder::executors::cpu
