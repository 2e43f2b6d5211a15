#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace thunder::tracer {

/// Sizes among the arguments of a call whose schema has plain integers there (`linspace`), so that PyTorch's bindings
/// take no sizes: they get numbers, and the call that is recorded gets these. While alive, for the first call of the
/// operator on this thread.
class SizesAsInts {
 public:
  /// `op`: its name without an overload; arguments by their place in the schema.
  SizesAsInts(std::string op, std::vector<std::pair<std::size_t, c10::SymInt>> sizes);
  ~SizesAsInts();
  SizesAsInts(const SizesAsInts&) = delete;
  SizesAsInts& operator=(const SizesAsInts&) = delete;

  /// Whether the call was recorded.
  [[nodiscard]] bool are_taken() const { return are_taken_; }
  /// Puts the sizes into the arguments of a call.
  static void put_into(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments);

 private:
  std::string op_;
  std::vector<std::pair<std::size_t, c10::SymInt>> sizes_;
  bool are_taken_ = false;
  SizesAsInts* before_;
};

}  // namespace thunder::tracer
