#include "executors/cpu/packed_weight.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "base/rounding.h"
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
  run_tasks(
      divide_up(work.count, kBlockBytes), work.count > 4 * kBlockBytes,
      [](void* context, std::int64_t block) {
        Work& all = *static_cast<Work*>(context);
        const std::int64_t begin = block * kBlockBytes;
        const std::uint64_t part = checksum_of_block(all.bytes + begin, std::min(kBlockBytes, all.count - begin));
        all.sum += part * (2 * static_cast<std::uint64_t>(block) + 1);
      },
      &work);
  return work.sum;
}

/// A weight as it was seen, and what was made of it.
struct PackedWeight::Kept {
  explicit Kept(const at::Tensor& weight)
      : tensor(weight.getIntrusivePtr()),
        storage(weight.storage().getWeakStorageImpl()),
        data(weight.const_data_ptr()),
        version(weight._version()) {}

  // No other tensor, and no other storage, has the address while it is weakly held.
  [[nodiscard]] bool is_of(const at::Tensor& weight) const {
    return address == weight.unsafeGetTensorImpl() && storage_address == weight.storage().unsafeGetStorageImpl() &&
           data == weight.const_data_ptr() && version == weight._version();
  }

  const c10::weak_intrusive_ptr<c10::TensorImpl> tensor;
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const c10::TensorImpl* const address = tensor._unsafe_get_target();
  const c10::StorageImpl* const storage_address = storage._unsafe_get_target();
  const void* const data;
  const std::int64_t version;
  std::mutex mutex;  ///< guards the members below
  std::uint64_t checksum = 0;
  at::Tensor packed;
};

namespace {

using Kept = PackedWeight::Kept;

/// The weights that the programs of this process keep.
class KeptWeights {
 public:
  struct Found {
    std::shared_ptr<Kept> kept;
    bool is_new = false;
  };

  Found find(const at::Tensor& weight, const std::string& layout) {
    const std::scoped_lock lock(mutex_);
    std::weak_ptr<Kept>& known = known_[{weight.unsafeGetTensorImpl(), layout}];
    auto kept = known.lock();
    if (kept != nullptr && kept->is_of(weight)) return {std::move(kept)};
    kept = std::make_shared<Kept>(weight);
    known = kept;
    drop_dead();
    return {std::move(kept), true};
  }

 private:
  void drop_dead() {
    std::erase_if(known_, [](const auto& entry) {
      const std::shared_ptr<Kept> kept = entry.second.lock();
      if (kept == nullptr) return true;
      if (!kept->tensor.expired() && !kept->storage.expired()) return false;
      const std::scoped_lock lock(kept->mutex);
      kept->packed.reset();
      return true;
    });
  }

  std::mutex mutex_;
  std::map<std::pair<const void*, std::string>, std::weak_ptr<Kept>> known_;
};

KeptWeights& kept_weights() {
  static auto* const kKept = new KeptWeights;
  return *kKept;
}

}  // namespace

std::optional<at::Tensor> PackedWeight::of(const at::Tensor& weight, const Pack& pack) {
  if (weight.is_inference() || !weight.is_non_overlapping_and_dense()) return std::nullopt;
  std::shared_ptr<Kept> kept;
  {
    const std::scoped_lock lock(mutex_);
    if (kept_ == nullptr || !kept_->is_of(weight)) {
      auto [found, is_new] = kept_weights().find(weight, layout_);
      kept_ = std::move(found);
      if (is_new) return std::nullopt;
    }
    kept = kept_;
  }
  const std::scoped_lock lock(kept->mutex);
  const std::uint64_t sum = guard_ == WeightGuard::kBytes ? checksum(weight) : kept->checksum;
  if (!kept->packed.defined() || sum != kept->checksum) {
    kept->packed = pack(weight);
    kept->checksum = sum;
  }
  return kept->packed;
}

}  // namespace thunder::executors::cpu
