// Compiled for this capability alone: see CMakeLists.txt.
#include <ATen/cpu/vec/vec.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "executors/tiles/kernels.h"
#include "executors/tiles/piecewise.h"

#define THUNDER_CAPABILITY_NAME "avx512"
namespace thunder::executors::cpu::capability_avx512 {
#include "executors/tiles/kernels_impl.h"
}
