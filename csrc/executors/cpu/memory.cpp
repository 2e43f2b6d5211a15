#include "executors/cpu/memory.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

namespace thunder::executors::cpu {
namespace {

/// Blocks are whole huge pages; what is smaller than half of one is the system allocator's.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kSmallest = kHugePage / 2;
/// A block may be larger than what is asked for by an eighth.
constexpr std::size_t kSlack = 8;
/// Allocations after which a block that nobody took goes back.
constexpr std::uint64_t kAge = 512;

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
  std::uint64_t freed_at = 0;
};

class Pool {
 public:
  Block* take(std::size_t bytes) {
    const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    std::vector<Block*> old;
    Block* block = nullptr;
    {
      const std::scoped_lock lock(mutex_);
      ++clock_;
      auto best = free_.end();
      for (auto candidate = free_.begin(); candidate != free_.end(); ++candidate) {
        const std::size_t size = (*candidate)->bytes;
        if (size < rounded || size > rounded + rounded / kSlack) continue;
        if (best == free_.end() || size <= (*best)->bytes) best = candidate;  // of equals the warmest
      }
      if (best != free_.end()) {
        block = *best;
        free_.erase(best);
      }
      while (!free_.empty() && free_.front()->freed_at + kAge < clock_) {
        old.push_back(free_.front());
        free_.erase(free_.begin());
      }
    }
    std::ranges::for_each(old, &release);
    return block != nullptr ? block : map(rounded);
  }

  void give_back(Block* block) {
    const std::scoped_lock lock(mutex_);
    block->freed_at = clock_;
    free_.push_back(block);
  }

  /// A fork in the middle of `take` would leave the child a lock that nobody opens.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  static Block* map(std::size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, kHugePage, bytes) != 0) throw std::bad_alloc();
    madvise(memory, bytes, MADV_HUGEPAGE);
    return new Block{memory, bytes, 0};
  }
  static void release(Block* block) {
    std::free(block->memory);  // NOLINT(cppcoreguidelines-no-malloc): of posix_memalign
    delete block;
  }

  std::mutex mutex_;
  std::vector<Block*> free_;  ///< in the order in which they came back
  std::uint64_t clock_ = 0;
};

/// Never destroyed: tensors may outlive everything.
Pool& pool() {
  static Pool* const kPool = [] {
    static auto* const kMade = new Pool;
    pthread_atfork([] { kMade->lock(); }, [] { kMade->unlock(); }, [] { kMade->unlock(); });
    return kMade;
  }();
  return *kPool;
}

class ResultMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes < kSmallest) return c10::GetAllocator(c10::kCPU)->allocate(bytes);
    Block* block = pool().take(bytes);
    return {block->memory, block, &give_back, c10::Device(c10::kCPU)};
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    std::memcpy(destination, source, count);
  }

 private:
  static void give_back(void* context) { pool().give_back(static_cast<Block*>(context)); }
};

}  // namespace

c10::Allocator& result_memory() {
  static auto* const kMemory = new ResultMemory;
  return *kMemory;
}

}  // namespace thunder::executors::cpu
