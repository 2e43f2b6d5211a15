#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tracer/next_call.h"

namespace thunder::tracer {

/// Sizes among the arguments of a call whose schema has plain integers there (`linspace`, the windows of a pool), so
/// that PyTorch's bindings take no sizes: they get numbers, and the call that is recorded gets these.
class SizesAsInts : public ForNextCall<SizesAsInts> {
 public:
  /// Arguments by their place in the schema: one size, which may stand for a list of equal ones, or several.
  using Sizes = std::map<std::size_t, std::vector<c10::SymInt>>;
  SizesAsInts(std::string op, Sizes sizes) : ForNextCall(std::move(op)), sizes_(std::move(sizes)) {}

  /// Puts the sizes into the arguments of a call.
  static void put_into(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments);

 private:
  Sizes sizes_;
};

}  // namespace thunder::tracer
