#pragma once

#include "base/error.h"

namespace thunder::ir {

/// Raised by `evaluate` of a dimension (size.h) whose divisor is zero for the sizes of a call.
class SizeDividedByZero : public InternalError {
 public:
  SizeDividedByZero() : InternalError("ir", "a size is divided by zero") {}
};

}  // namespace thunder::ir
