#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "ir/trace.h"

namespace thunder::executors {

/// Equal for regions that compute the same of inputs of equal types and strides.
[[nodiscard]] std::string key_of_region(const ir::Trace& region);

/// The fusions that programs have now, by key: equal ones are one object. Thread-safe.
template <typename Fusion>
class FusionMemo {
 public:
  /// Null: no program has it.
  [[nodiscard]] std::shared_ptr<const Fusion> find(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    const auto known = known_.find(key);
    return known == known_.end() ? nullptr : known->second.lock();
  }
  template <typename Make>
  std::shared_ptr<const Fusion> get(const std::string& key, const Make& make) {
    {
      const std::scoped_lock lock(mutex_);
      if (auto known = known_[key].lock()) return known;
    }
    std::shared_ptr<const Fusion> made = make();
    const std::scoped_lock lock(mutex_);
    known_[key] = made;
    return made;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const Fusion>> known_;
};

}  // namespace thunder::executors
