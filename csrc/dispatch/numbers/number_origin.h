#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "interpreter/python/python_ref.h"
#include "ir/condition.h"
#include "ir/float_size.h"
#include "ir/size.h"
#include "tracer/size_node.h"

namespace thunder::dispatch {

/// A quotient of sizes, of a divisor from one on. A float of the program is what Python rounds it to: between two
/// neighboring multiples of `1 / denominator` lie many floats as long as numerators are below 2**50, so that the float
/// is on the same side of each integer as the quotient, and is one where that is one.
struct SizeFraction {
  ir::Dim numerator;
  ir::Dim denominator = 1;
};

/// A float that the program has computed of a size as a float, step by step.
struct RoundedFloat {
  ir::Dim size;
  std::vector<ir::FloatStep> steps{};
};

/// Where a number that comes from sizes alone comes from.
struct SizeOrigin {
  std::shared_ptr<tracer::SizeScope> scope;
  ir::Dims sizes;  ///< that the number depends on
  std::optional<SizeFraction> fraction{};
  std::optional<RoundedFloat> rounded{};
  std::optional<ir::Dim> radicand{};  ///< the number is the square root of this size, as floats round it
  std::optional<ir::Dim> power{};     ///< the number is the logarithm of this size to the base of two
  /// The number is an int that sizes give while these hold, such as a rounded logarithm; empty: it follows them closer.
  std::vector<ir::Condition> level{};
};

/// An int that the program computed from ints of data, as an expression of those, each of which has a symbol there.
struct DataExpression {
  ir::Dim dim;
  std::map<std::uint32_t, py::Ref> numbers;  ///< by symbol
};

}  // namespace thunder::dispatch
