#include "executors/cpu/packed_filter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

#include "executors/cpu/threads.h"

namespace thunder::executors::cpu {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18U;

/// Sums, and sums of those as they were on the way, in lanes that a compiler makes vectors of.
std::uint64_t checksum_of_block(const char* bytes, std::int64_t count) {
  constexpr std::size_t kLanes = 8;
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15U;
  std::array<std::uint64_t, kLanes> sums{};
  std::array<std::uint64_t, kLanes> sums_of_sums{};
  constexpr auto kStep = static_cast<std::int64_t>(sizeof(sums));
  std::array<std::uint64_t, kLanes> words;
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    std::memcpy(words.data(), bytes + i, sizeof(words));
    for (std::size_t k = 0; k < kLanes; ++k) sums[k] += words[k];
    for (std::size_t k = 0; k < kLanes; ++k) sums_of_sums[k] += sums[k];
  }
  words = {};
  std::memcpy(words.data(), bytes + i, static_cast<std::size_t>(count - i));
  std::uint64_t result = 0;
  for (std::size_t k = 0; k < kLanes; ++k) {
    for (const std::uint64_t part : {sums[k], sums_of_sums[k], words[k]}) result = (result ^ part) * kPrime;
  }
  return result;
}

}  // namespace

std::uint64_t checksum(const at::Tensor& tensor) {
  struct Work {
    const char* bytes;
    std::int64_t count;
    std::atomic<std::uint64_t> sum = 0;
  };
  Work work{static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::int64_t>(tensor.nbytes())};
  run_tasks((work.count + kBlockBytes - 1) / kBlockBytes, work.count > 4 * kBlockBytes,
            [](void* context, std::int64_t block) {
              Work& all = *static_cast<Work*>(context);
              const std::int64_t begin = block * kBlockBytes;
              const std::uint64_t part = checksum_of_block(all.bytes + begin, std::min(kBlockBytes, all.count - begin));
              all.sum += part * (2 * static_cast<std::uint64_t>(block) + 1);
            },
            &work);
  return work.sum;
}

std::optional<at::Tensor> PackedFilter::of(const at::Tensor& filter, const Pack& pack) {
  if (filter.is_inference() || !filter.is_non_overlapping_and_dense()) return std::nullopt;
  const std::scoped_lock lock(mutex_);
  const c10::intrusive_ptr<c10::TensorImpl> seen = seen_.lock();
  const auto version = static_cast<std::uint32_t>(filter._version());
  if (!seen || seen.get() != filter.unsafeGetTensorImpl() || version != version_) {
    seen_ = c10::weak_intrusive_ptr<c10::TensorImpl>(filter.getIntrusivePtr());
    version_ = version;
    packed_.reset();
    return std::nullopt;
  }
  const std::uint64_t sum = checksum(filter);
  if (!packed_.defined() || sum != checksum_) {
    packed_ = pack(filter);
    checksum_ = sum;
  }
  return packed_;
}

}  // namespace thunder::executors::cpu
