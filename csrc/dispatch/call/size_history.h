#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/stride_rule.h"

namespace thunder::dispatch {

/// Remembers what the traces of one callable saw of the sizes of their inputs, by where the inputs were found
/// (`cache.layers[0].keys`). A size that is met with a second value is a symbol from then on, unless it was pinned.
/// Under the lock of the cache that traces.
class SizeHistory {
 public:
  using Sizes = std::vector<std::int64_t>;
  /// An input's; numbers, and sizes that follow from data, have no strides.
  struct Shape {
    Sizes sizes;
    Sizes strides{};
  };
  using Shapes = std::map<std::string, Shape>;
  /// An input with sizes that change: each as it is now and as it was before; -1 before: it is a number. A size that
  /// was the same before is a guess.
  struct Changing {
    Sizes sizes;
    Sizes before;
    ir::StrideRule rule{};  ///< how its strides follow from its sizes
    Sizes strides{};        ///< where it has free ones: as they are now
    Sizes strides_before{};
    friend bool operator==(const Changing&, const Changing&) = default;
  };
  using Inputs = std::map<std::string, Changing>;
  /// A tensor among the inputs of a trace.
  struct Seen {
    Shape shape;
    bool has_integers = false;
  };

  /// The sizes of an input that change, if there are some and its strides follow from them by a rule.
  [[nodiscard]] Changing compare(const std::string& path, const Shape& shape) const;
  /// Adds the inputs of a trace with sizes that change, by where they were found. Where a size changes for the first
  /// time, sizes of tensors that were needed as numbers beside it may be symbols again (that of a mask beside keys
  /// which had one length so far).
  void add_changes(Inputs& changing, const Shapes& shapes);
  /// Adds sizes that have not changed yet and are likely to, so that a batch and a length that change one after the
  /// other need one program: where another size of the tensor changes, its first size, and both of a matrix of
  /// integers; and sizes of other inputs that are equal to those.
  void add_guesses(Inputs& changing, const std::map<std::string, Seen>& seen) const;
  /// Guesses made a program need numbers: there are none from now on.
  void refuse_guesses() { may_guess_ = false; }
  /// A trace with this input was kept.
  void note(const std::string& path, const Shape& shape);
  /// Inputs of one trace with other sizes were found at this path (values of a dict by tensor): nothing is known of it.
  void ignore(const std::string& path) { ignored_.insert(path); }
  /// Why a size is pinned: it is needed as a number, or the program is one of few sizes (a cache that is about to be
  /// full), which others are not.
  enum class PinKind : std::uint8_t { kNeeded, kFewSizes };
  /// A program needs this size as a number; `line` says where. It may be for the value that the size has (the rows but
  /// the last one, of two), so that it is a symbol once more at the next value, and at some more where this one's
  /// program is one of few sizes.
  void pin(const std::string& path, std::size_t dim, const std::string& line, PinKind kind = PinKind::kNeeded);
  /// A program has this size as a symbol.
  void unpin(const std::string& path, std::size_t dim);
  /// A program needs the distance of rows in this dimension as a number.
  void pin_stride(const std::string& path, std::size_t dim);
  [[nodiscard]] bool is_pinned(const std::string& path, std::size_t dim) const { return pin_of(path, dim) != nullptr; }
  /// The line that pinned a size; null: none did.
  [[nodiscard]] const std::string* pin_of(const std::string& path, std::size_t dim) const;

 private:
  struct Pin {
    std::string line;
    int weight = 0;  ///< grows each time that it is pinned
    [[nodiscard]] bool is_final() const { return weight >= kFinal; }
  };
  static constexpr int kFinal = 6;
  struct Input {
    Sizes sizes;                      ///< in the last trace
    Sizes strides;                    ///< likewise
    Sizes before;                     ///< the last one that was another, by dimension; -1: there is none
    std::map<std::size_t, Pin> pins;  ///< by dimension
    Sizes strides_before{};           ///< as `before`
    /// Dimensions in which rows have been apart by another distance than sizes tell, and those in which that is needed
    /// as a number.
    std::set<std::size_t> free_strides{};
    std::set<std::size_t> pinned_strides{};

    /// Whether a dimension with this size has a number.
    [[nodiscard]] bool is_number(std::size_t dim, std::int64_t size) const;
  };
  /// The rule of an input's strides, which they followed in the last trace, too.
  [[nodiscard]] static std::optional<ir::StrideRule> rule_of(const Input& known, const Shape& shape);
  /// An input whose sizes are all numbers.
  [[nodiscard]] static Changing with_numbers(const Input& known, const Shape& shape, ir::StrideRule rule);
  /// An input with so many dimensions, as it was; null: nothing is known of it.
  [[nodiscard]] const Input* find(const std::string& path, std::size_t dims) const;
  /// Whether a size of an input is another one for the first time.
  [[nodiscard]] bool changes_first(const std::string& path, const Sizes& sizes) const;
  /// Whether size `dim` of an input that was `seen` at `path` may be guessed to change.
  [[nodiscard]] bool may_change(const std::string& path, const Seen& seen, std::size_t dim) const;

  std::map<std::string, Input> inputs_;
  std::set<std::string> ignored_;
  bool may_guess_ = true;
};

/// The name in a SizeHistory of a number that was found at `path`.
[[nodiscard]] std::string number_path(const std::string& path);
/// Its name as a number that is no symbol.
[[nodiscard]] std::string value_path(const std::string& path);
[[nodiscard]] bool is_number_path(std::string_view path);

/// Whether a size is taken for one that changes without having done so.
[[nodiscard]] bool has_guesses(const SizeHistory::Inputs& changing);
void remove_guesses(SizeHistory::Inputs& changing);

}  // namespace thunder::dispatch
