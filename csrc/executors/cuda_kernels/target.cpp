#include "executors/cuda_kernels/target.h"

namespace thunder::executors::cuda {
namespace {

bool accepts(const ir::TensorType& type) {
  return type.device.type == ir::DeviceType::kCuda && fusion::has_compute_type(type.dtype);
}

bool has(operators::ElementOp /*op*/, fusion::ComputeType /*type*/) { return true; }

/// Each matmul of a GPU takes some 10 µs besides its arithmetic, while it starts and ends: 8192 rows of 768 elements
/// times 768 × 768 take an H100 25 µs, and three such layers as one 48. What is gained, two matmuls less for each layer
/// more, must pay for the gradients of the results, which may have to be copied together: 29 µs for those three layers,
/// of which sums for biases would take 20 anyway. The copy grows with the rows, what is gained does not.
constexpr passes::MergeRule kMerges{
    .most_multiplications = 1e10, .least_rows = 64, .least_columns = 256, .width_multiple = 8};

}  // namespace

constinit const fusion::Target kTarget{
    .accepts = &accepts,
    .has = &has,
    .permutes = true,
    .draws_by_counter = true,
    .sums_rows_alone = true,  // PyTorch takes two to four times as long
    .multiplies_rows = true,
    .least_interleaved = 32,                 // a warp reads that many neighbours at once
    .largest_in_batch = INT64_C(32) << 20U,  // a larger one keeps a GPU busy for ten launches
    .most_held = INT64_C(32) << 20U,         // a reader finds it in the cache
    .merges = &kMerges,
};

}  // namespace thunder::executors::cuda
