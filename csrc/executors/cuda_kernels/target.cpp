#include "executors/cuda_kernels/target.h"

namespace thunder::executors::cuda {
namespace {

bool accepts(const ir::TensorType& type) {
  return type.device.type == ir::DeviceType::kCuda && fusion::has_compute_type(type.dtype);
}

bool has(operators::ElementOp /*op*/, fusion::ComputeType /*type*/) { return true; }

}  // namespace

constinit const fusion::Target kTarget{
    .accepts = &accepts,
    .has = &has,
    .permutes = true,
    .draws_by_counter = true,
    .sums_rows_alone = true,  // PyTorch takes two to four times as long
    .multiplies_rows = true,
    .stores_rows = true,
    .least_interleaved = 32,                 // a warp reads that many neighbours at once
    .largest_in_batch = INT64_C(32) << 20U,  // a larger one keeps a GPU busy for ten launches
    .most_held = INT64_C(32) << 20U,         // a reader finds it in the cache
};

}  // namespace thunder::executors::cuda
