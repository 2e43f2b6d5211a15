#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/trace.h"
#include "transforms/functorch_layer.h"
#include "transforms/replay.h"

namespace thunder::transforms {

struct VmapOptions {
  std::int64_t batch_size = 0;
  std::vector<std::optional<std::int64_t>> in_dims;   ///< one for each input, not negative; nullopt: the same for all
  std::vector<std::optional<std::int64_t>> out_dims;  ///< one for each output; nullopt: must be the same for all
  Randomness randomness = Randomness::kError;
};

/// The program for a batch, given the program for one example: every operation replayed through functorch's batching
/// layer, recorded below it. `inputs` are the batched ones.
[[nodiscard]] ir::Trace vmap(const ir::Trace& trace, const RecordedInputs& inputs, const VmapOptions& options);

}  // namespace thunder::transforms
