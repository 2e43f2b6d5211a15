#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "executors/cuda_kernels/kernel_source.h"

namespace thunder::executors::cuda {

/// The parameters of a kernel's functions: addresses of arrays, that of scratch memory, numbers.
class Parameters {
 public:
  explicit Parameters(const KernelSource& source)
      : array_count_(std::max<std::size_t>(source.array_count, 1)),
        words_(array_count_ + 1 + std::max<std::size_t>(source.numbers.size(), 1)) {
    std::ranges::copy(source.numbers, words_.begin() + static_cast<std::ptrdiff_t>(array_count_) + 1);
  }
  void add_array(const void* address) {
    if (given_ < array_count_) words_[given_++] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address));
  }
  void set_scratch(const void* address) {
    words_[array_count_] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address));
  }
  [[nodiscard]] std::span<const std::int64_t> words() const { return {words_.data(), words_.size()}; }

 private:
  std::size_t array_count_;
  std::size_t given_ = 0;
  c10::SmallVector<std::int64_t, 64> words_;
};

/// The argument of a launch for members of a batch, whose parameters have one size.
class BatchArgument {
 public:
  BatchArgument(std::size_t capacity, std::size_t words_of_each)
      : capacity_(capacity), words_of_each_(words_of_each), words_(capacity * (1 + words_of_each), 0) {
    std::fill_n(words_.begin(), capacity, std::numeric_limits<std::int64_t>::max());
  }
  [[nodiscard]] bool is_full() const { return count_ == capacity_; }
  void add(const Parameters& parameters, std::int64_t thread_blocks) {
    thread_blocks_ += thread_blocks;
    words_[count_] = thread_blocks_;
    std::ranges::copy(parameters.words(),
                      words_.begin() + static_cast<std::ptrdiff_t>(capacity_ + count_ * words_of_each_));
    ++count_;
  }
  /// Thread blocks of all members.
  [[nodiscard]] std::int64_t thread_blocks() const { return thread_blocks_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span<const std::int64_t>(words_));
  }

 private:
  std::size_t capacity_;
  std::size_t words_of_each_;
  std::size_t count_ = 0;
  std::int64_t thread_blocks_ = 0;
  std::vector<std::int64_t> words_;
};

}  // namespace thunder::executors::cuda
