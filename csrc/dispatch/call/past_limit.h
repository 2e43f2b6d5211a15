#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace thunder::dispatch {

/// How calls are served that meet data which no specialization was made for, once there are as many as there may be:
/// traced for themselves, which runs the segments that are known, or in eager. Both are tried and timed, and the one
/// whose fastest call was faster serves the others. Under the lock of the cache, or the GIL.
class PastLimit {
 public:
  enum class Way : std::uint8_t { kTrace, kEager };

  [[nodiscard]] Way next() const {
    if (traced_.calls < kTried) return Way::kTrace;
    if (eager_.calls < kTried) return Way::kEager;
    return traced_.fastest < eager_.fastest ? Way::kTrace : Way::kEager;
  }
  void note(Way way, double seconds) {
    Times& times = way == Way::kTrace ? traced_ : eager_;
    times.fastest = std::min(times.fastest, seconds);
    ++times.calls;
  }

 private:
  static constexpr std::uint64_t kTried = 3;  ///< calls, as the first ones find cold caches
  struct Times {
    double fastest = std::numeric_limits<double>::infinity();
    std::uint64_t calls = 0;
  };
  Times traced_, eager_;
};

}  // namespace thunder::dispatch
