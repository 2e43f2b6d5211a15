#include "runtime/memory_pool.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

namespace thunder::runtime {
namespace {

constexpr std::size_t kSmallest = std::size_t{1} << 20U;
constexpr std::size_t kPage = std::size_t{1} << 12U;
constexpr std::size_t kHugePage = std::size_t{1} << 21U;
/// A cached block is given for a request down to this share of its size.
constexpr std::size_t kLeastPercent = 80;
/// Blocks that this many runs have not used go back to the system.
constexpr std::uint64_t kRunsUntilReturned = 64;

thread_local int scope_depth = 0;
std::atomic<int> user_count = 0;

void* allocate_pages(std::size_t size) {
  const bool is_huge = size >= 2 * kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, is_huge ? kHugePage : kPage, size) != 0) return nullptr;
  if (is_huge) madvise(memory, size, MADV_HUGEPAGE);
  return memory;
}

void release(void* memory);

class Pool {
 public:
  /// Null when the system has nothing to give.
  void* take(std::size_t requested) {
    const std::size_t size = (requested + kPage - 1) / kPage * kPage;
    const std::scoped_lock lock(mutex_);
    void* memory = take_cached(size);
    return memory == nullptr ? take_new(size) : memory;
  }

  /// False for memory that is not the pool's.
  bool give_back(void* memory) {
    const std::scoped_lock lock(mutex_);
    const auto found = live_.find(memory);
    if (found == live_.end()) return false;
    cached_.emplace(found->second, Cached{memory, run_.load()});
    cached_bytes_ += found->second;
    live_bytes_ -= found->second;
    live_.erase(found);
    return true;
  }

  void end_run() {
    const std::uint64_t run = ++run_;
    if (run % kRunsUntilReturned != 0) return;
    const std::scoped_lock lock(mutex_);
    std::erase_if(cached_, [&](const auto& entry) {
      const bool is_old = entry.second.last_used + kRunsUntilReturned < run;
      if (is_old) free_cached(entry.first, entry.second);
      return is_old;
    });
  }

  void empty() {
    const std::scoped_lock lock(mutex_);
    return_cached(cached_bytes_);
  }

  /// Around a fork, so that the new process finds the pool unlocked.
  std::mutex& mutex() { return mutex_; }

  PoolStatistics statistics() {
    const std::scoped_lock lock(mutex_);
    return {live_bytes_, cached_bytes_, peak_bytes_};
  }

 private:
  struct Cached {
    void* memory;
    std::uint64_t last_used;
  };

  void* take_cached(std::size_t size) {
    auto found = cached_.lower_bound(size);
    if (found == cached_.end() || size * 100 < found->first * kLeastPercent) return nullptr;
    found = std::prev(cached_.upper_bound(found->first));  // the warmest of equals
    const auto [block_size, block] = *found;
    cached_.erase(found);
    cached_bytes_ -= block_size;
    return enter(block.memory, block_size);
  }

  void* take_new(std::size_t size) {
    const std::size_t allowed = std::max(peak_bytes_, live_bytes_ + size);
    const std::size_t held = live_bytes_ + cached_bytes_ + size;
    if (held > allowed) return_cached(held - allowed);
    void* memory = allocate_pages(size);
    return memory == nullptr ? nullptr : enter(memory, size);
  }

  void* enter(void* memory, std::size_t size) {
    live_.emplace(memory, size);
    live_bytes_ += size;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    return memory;
  }

  void free_cached(std::size_t size, const Cached& block) {
    std::free(block.memory);
    cached_bytes_ -= size;
  }

  /// Returns at least `size` bytes to the system, of the blocks that waited longest, while there are any.
  void return_cached(std::size_t size) {
    const std::size_t target = cached_bytes_ - std::min(size, cached_bytes_);
    while (cached_bytes_ > target) {
      const auto oldest =
          std::ranges::min_element(cached_, {}, [](const auto& entry) { return entry.second.last_used; });
      free_cached(oldest->first, oldest->second);
      cached_.erase(oldest);
    }
  }

  std::mutex mutex_;
  std::multimap<std::size_t, Cached> cached_;  ///< by size
  std::unordered_map<void*, std::size_t> live_;
  std::size_t live_bytes_ = 0;
  std::size_t cached_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  std::atomic<std::uint64_t> run_ = 0;
};

Pool& pool() {
  static auto* const kPool = [] {
    const auto unlock = [] { pool().mutex().unlock(); };
    pthread_atfork([] { pool().mutex().lock(); }, unlock, unlock);
    return new Pool;  // lives as long as the process: tensors may outlive everything else
  }();
  return *kPool;
}

/// PyTorch's own allocator of CPU memory, but for what programs make.
class PoolAllocator final : public c10::Allocator {
 public:
  explicit PoolAllocator(c10::Allocator* system) : system_(system) {}

  c10::DataPtr allocate(std::size_t size) override {
    if (scope_depth == 0 || size < kSmallest) return system_->allocate(size);
    void* memory = pool().take(size);
    if (memory == nullptr) return system_->allocate(size);
    c10::profiledCPUMemoryReporter().New(memory, size);
    return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, std::size_t size) const override {
    default_copy_data(target, source, size);
  }

  void release_to_system(void* memory) { system_->raw_deallocate(memory); }

 private:
  c10::Allocator* system_;
};

PoolAllocator& allocator() {
  static auto* const kAllocator = [] {
    constexpr std::uint8_t kPriority = 1;  // above PyTorch's
    auto* made = new PoolAllocator(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, kPriority);
    return made;
  }();
  return *kAllocator;
}

void release(void* memory) {
  if (!pool().give_back(memory)) return allocator().release_to_system(memory);
  c10::profiledCPUMemoryReporter().Delete(memory);
}

}  // namespace

PoolScope::PoolScope() { ++scope_depth; }
PoolScope::~PoolScope() {
  if (--scope_depth == 0) pool().end_run();
}

PoolUser::PoolUser() {
  static_cast<void>(allocator());
  ++user_count;
}
PoolUser::~PoolUser() {
  if (--user_count == 0) pool().empty();
}

PoolStatistics pool_statistics() { return pool().statistics(); }

}  // namespace thunder::runtime
