#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "ir/trace.h"
#include "transforms/replay.h"

namespace thunder::transforms {

struct AutocastOptions {
  c10::DeviceType device = c10::DeviceType::CPU;  ///< operations on this device are cast
  c10::ScalarType dtype = c10::ScalarType::BFloat16;
};

/// The program in mixed precision: every operation replayed through PyTorch's autocast layer, whose casts are recorded.
/// Its inputs and outputs are those of `trace`; outputs may have another dtype.
[[nodiscard]] ir::Trace autocast(const ir::Trace& trace, const RecordedInputs& inputs, const AutocastOptions& options);

}  // namespace thunder::transforms
