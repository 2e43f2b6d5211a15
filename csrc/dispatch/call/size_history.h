#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace thunder::dispatch {

/// Remembers what the traces of one callable saw of the sizes of their inputs, by where the inputs were found
/// (`cache.layers[0].keys`). A size that is met with a second value is a symbol from then on, unless it was pinned
/// once. Under the lock of the cache that traces.
class SizeHistory {
 public:
  using Sizes = std::vector<std::int64_t>;
  /// An input with sizes that change: each as it is now and as it was before; -1 before: it is a number.
  struct Changing {
    Sizes sizes;
    Sizes before;
    friend bool operator==(const Changing&, const Changing&) = default;
  };
  using Inputs = std::map<std::string, Changing>;

  /// The sizes of an input that change, if there are some.
  [[nodiscard]] Changing compare(const std::string& path, const Sizes& sizes) const;
  /// A trace with this input was kept.
  void note(const std::string& path, const Sizes& sizes);
  /// A program needs this size as a number.
  void pin(const std::string& path, std::size_t dim);

 private:
  struct Input {
    Sizes sizes;                  ///< in the last trace
    Sizes before;                 ///< the last one that was another, by dimension; -1: there is none
    std::vector<bool> is_pinned;  ///< by dimension
  };
  std::map<std::string, Input> inputs_;
};

}  // namespace thunder::dispatch
