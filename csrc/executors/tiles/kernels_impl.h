// The kernels, included by each kernels_<capability>.cpp inside its own namespace and compiled for its processor: plain
// loops, which the compiler vectorizes, and PyTorch's vectors for functions that it has better ones for.

// clang-format off: the order counts
namespace {

using Integer = std::int64_t;
using Bool = std::uint8_t;

template <typename T>
constexpr bool kIsReal = std::is_floating_point_v<T>;

#include "executors/tiles/float_math.h"
#include "executors/tiles/kernels_functions.h"
#include "executors/tiles/kernels_element.h"
#include "executors/tiles/kernels_transfer.h"
#include "executors/tiles/kernels_reduce.h"

}  // namespace
// clang-format on

#include "executors/tiles/depthwise_impl.h"
#include "executors/tiles/twister_impl.h"

const Kernels kKernels{.name = THUNDER_CAPABILITY_NAME,
                       .element = &element,
                       .load = &load,
                       .store = &store,
                       .reduce = &reduce,
                       .moments = &moments,
                       .reduce_columns = &reduce_columns,
                       .join_moments = &join_moments,
                       .add_to = &add_to,
                       .sum_products = &sum_products,
                       .add_products_to = &add_products_to,
                       .add_moments = &add_moments,
                       .twist = &twist,
                       .bernoulli = &bernoulli,
                       .block_width = &block_width,
                       .pack = &pack,
                       .taps = &taps};
