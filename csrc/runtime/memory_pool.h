#pragma once

#include <cstddef>

namespace thunder::runtime {

/// Large CPU tensors (1 MiB and more) that programs make take their memory from one pool of the process, and give it
/// back when they die, wherever that is. Fresh memory costs more than what is computed in it: the system hands out
/// large blocks page by page, zeroed. The pool never holds more than programs have needed at one time: before it asks
/// the system for a block beyond that, it returns cached ones; those that no run has used for a while go back, too, and
/// all of them when the last program dies.

/// While one is alive, large CPU tensors that its thread makes come from the pool.
class PoolScope {
 public:
  PoolScope();
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
};

/// Held by whatever may run: the last one to die empties the pool.
class PoolUser {
 public:
  PoolUser();
  ~PoolUser();
  PoolUser(const PoolUser&) = delete;
  PoolUser& operator=(const PoolUser&) = delete;
};

/// In bytes.
struct PoolStatistics {
  std::size_t live = 0;
  std::size_t cached = 0;
  std::size_t peak = 0;  ///< the most that was live at one time
};
[[nodiscard]] PoolStatistics pool_statistics();

}  // namespace thunder::runtime
