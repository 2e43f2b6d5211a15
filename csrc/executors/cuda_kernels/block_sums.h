#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "executors/cuda_kernels/lines.h"
#include "executors/cuda_kernels/mapping.h"
#include "executors/cuda_kernels/numbers.h"
#include "executors/cuda_kernels/row_passes.h"

namespace thunder::executors::cuda {

/// Shared memory of a thread block, which its reductions use one after the other.
class SharedMemory {
 public:
  void need(std::int64_t bytes);
  void declare(Lines& lines) const;

 private:
  std::int64_t bytes_ = 0;
};

/// Sums over rows, and of everything: each thread block writes its share to scratch memory, and a second kernel adds
/// the shares in a fixed order, so that every run gives the same bits.
class BlockSums {
 public:
  BlockSums(const fusion::SizedKernel& kernel, const Mapping& mapping, const RowPasses& passes, Numbers& numbers);

  [[nodiscard]] bool empty() const { return sums_.empty(); }
  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }
  /// Declares what each thread adds to.
  void declare(Lines& to) const;
  /// Counts a row, before its elements are added.
  void begin_row(Lines& to) const;
  /// Adds an element, or the value of a row.
  void add(const fusion::KernelNode& node, Lines& to) const;
  /// Adds over the threads of a thread block, and writes its share.
  void write(SharedMemory& shared, Lines& to);
  /// The body of the second kernel. Returns its thread blocks.
  std::int64_t finish(SharedMemory& shared, Lines& to);

  static constexpr int kFinishThreads = 256;

 private:
  struct Sum {
    const fusion::KernelNode* node;
    std::string accumulator;  ///< the variable's name
    std::string type;         ///< a share's
    std::string begin;        ///< where the shares begin in scratch memory, in bytes

    [[nodiscard]] bool is_total() const { return node->kind == fusion::KernelNode::Kind::kTotal; }
    [[nodiscard]] std::int64_t bytes() const;
    [[nodiscard]] std::string shares() const;
  };

  [[nodiscard]] bool has_moments() const;
  [[nodiscard]] std::string type_of(const fusion::KernelNode& node) const;
  [[nodiscard]] fusion::ComputeType real_type(const Sum& sum) const;
  [[nodiscard]] std::int64_t share_count() const { return mapping_.blocks * mapping_.chunks; }
  void write_columns(const Sum& sum, SharedMemory& shared, Lines& to) const;
  void write_columns_of_rows(const Sum& sum, SharedMemory& shared, Lines& to) const;
  [[nodiscard]] std::int64_t sum_bytes(const Sum& sum) const;
  void finish_columns(const Sum& sum, SharedMemory& shared, Lines& to);
  void store_columns(const Sum& sum, Lines& to);
  void finish_totals(SharedMemory& shared, Lines& to);

  const fusion::SizedKernel& kernel_;
  const Mapping& mapping_;
  const RowPasses& passes_;
  Numbers& numbers_;
  std::vector<Sum> sums_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace thunder::executors::cuda
