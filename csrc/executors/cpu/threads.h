#pragma once

#include <cstdint>

namespace thunder::executors::cpu {

/// Calls `task` for each index below `count`, on the threads that PyTorch's own kernels run on, as many as
/// torch.set_num_threads allows; on this one alone where `parallel` is false, and inside another parallel region.
///
/// Not on oneTBB: matrix matmuls stay PyTorch's, and its OpenMP threads go on spinning for a while after each. Two
/// pools would have twice as many threads as there are processors, just when one hands over to the other.
void run_tasks(std::int64_t count, bool parallel, void (*task)(void* context, std::int64_t index), void* context);

}  // namespace thunder::executors::cpu
