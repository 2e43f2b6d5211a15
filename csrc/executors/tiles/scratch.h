#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace thunder::executors::cpu {

inline constexpr std::int64_t kAlignment = 64;

struct Free {
  void operator()(char* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
};
using Memory = std::unique_ptr<char[], Free>;

inline Memory allocate(std::int64_t bytes) {
  return Memory(static_cast<char*>(
      ::operator new[](static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)), std::align_val_t{kAlignment})));
}

/// Scratch memory of this thread, kept between runs; a run inside another one has its own.
class Scratch {
 public:
  explicit Scratch(std::int64_t bytes) {
    if (kept().memory != nullptr && kept().bytes >= bytes) {
      lent_ = std::move(kept());
    } else {
      lent_ = {allocate(bytes), bytes};
    }
    kept() = {};
  }
  ~Scratch() { kept() = std::move(lent_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] char* data() const { return lent_.memory.get(); }

 private:
  struct Block {
    Memory memory;
    std::int64_t bytes = 0;
  };
  static Block& kept() {
    static thread_local Block block;
    return block;
  }
  Block lent_;
};

}  // namespace thunder::executors::cpu
