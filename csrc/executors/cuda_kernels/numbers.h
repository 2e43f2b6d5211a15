#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "executors/cuda_kernels/lines.h"
#include "fusion/kernel_graph.h"

namespace thunder::executors::cuda {

/// The numbers of a launch, each a constant of the kernel.
class Numbers {
 public:
  /// An expression for the number; 0 and 1 are part of the class of sizes.
  std::string index(std::int64_t value, std::string_view name);
  /// An expression for a number that may be anything.
  std::string any_index(std::int64_t value, std::string_view name) { return add(value, name, "Index"); }
  std::string real(double value, fusion::ComputeType type);
  /// An expression for a stride's share of an offset; empty: it is none.
  std::string term(std::string_view index, std::int64_t stride, std::string_view name);
  /// Declares all of them.
  void declare(Lines& lines) const;

  [[nodiscard]] const std::vector<std::int64_t>& values() const { return values_; }

 private:
  struct Declared {
    std::string name;
    std::string type;
    std::size_t place;
  };

  std::string add(std::int64_t value, std::string_view name, std::string type);

  std::vector<std::int64_t> values_;
  std::vector<Declared> declared_;
};

/// The sum of terms, without those that are empty or 0.
[[nodiscard]] std::string sum_of(const std::vector<std::string>& terms);

}  // namespace thunder::executors::cuda
