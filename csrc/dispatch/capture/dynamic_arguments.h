#pragma once

#include <Python.h>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatch/call/size_history.h"
#include "dispatch/call/trace_options.h"
#include "interpreter/guards/guard_step.h"
#include "ir/condition.h"
#include "tracer/size_shadows.h"

namespace thunder::dispatch {

/// The size, or stride, that a symbol is now, and as it was in an earlier call.
struct SymbolSizes {
  std::int64_t now = 0;
  std::int64_t before = 0;
  bool is_stride = false;
  friend auto operator<=>(const SymbolSizes&, const SymbolSizes&) = default;
};
/// Symbols that are needed as numbers, with the line that needs them.
using PinnedSizes = std::map<SymbolSizes, std::string>;

/// Whether a tensor is a `torch.nn.Parameter`, whose sizes do not change.
[[nodiscard]] bool is_parameter(PyObject* tensor);

/// The names under which a history of sizes has those that follow from data, in the order of the program; empty where
/// an operation gives none: `nonzero in model.py, line 12`, with a count where a line gives several.
class DataSizePaths {
 public:
  /// `data_sized`: those of earlier calls, and what the program added since.
  [[nodiscard]] const std::vector<std::string>& of(std::span<const tracer::DataSized> data_sized);

 private:
  std::vector<std::string> paths_;
  std::map<std::string, int> counts_;
};

/// Which sizes of the tensors among a call's arguments are symbols. Sizes that are equal are one: programs compute with
/// tensors whose sizes fit, and a call where they are no longer equal is another specialization's. Sizes of zero and
/// one are numbers, as are those of tensors whose strides follow no rule.
class DynamicArguments {
 public:
  /// `pinned`: sizes, of the arguments, that earlier attempts found to be needed as numbers.
  /// `changing`: inputs whose sizes earlier calls had other values for.
  DynamicArguments(const interpreter::CallArguments& arguments, DynamicSizes which, const PinnedSizes& pinned,
                   const SizeHistory::Inputs& changing);

  /// Whether the constructor has found a tensor among the arguments: what their attributes hold is not looked at there.
  [[nodiscard]] bool is_argument(PyObject* tensor) const { return by_tensor_.contains(tensor); }
  /// An input that was found at `path` is this tensor.
  void find(PyObject* tensor, const std::string& path);
  /// Whether an int that was found at `path` is a symbol.
  [[nodiscard]] bool is_symbol(const std::string& path, std::int64_t number) const;
  /// The tensor stands for the int that was found at `path`; returns its symbol.
  std::uint32_t add_number(PyObject* tensor, const std::string& path);

  [[nodiscard]] const std::vector<tracer::SizeSymbol>& symbols() const { return symbols_; }
  /// Conditions that strides which are symbols meet at each call.
  [[nodiscard]] const std::vector<ir::Condition>& layouts() const { return layouts_; }
  [[nodiscard]] SymbolSizes values_of(std::uint32_t symbol) const {
    return {symbols_[symbol].traced, before_[symbol], symbols_[symbol].is_stride};
  }
  /// By dimension; empty: all are numbers.
  [[nodiscard]] std::vector<std::optional<std::uint32_t>> symbols_of(PyObject* tensor) const;
  /// How the strides of a tensor that has symbols follow from its sizes, and which of them are symbols.
  [[nodiscard]] ir::StrideRule rule_of(PyObject* tensor) const;
  /// By dimension, for sizes that follow from data and were found at `path`.
  [[nodiscard]] std::vector<std::optional<std::uint32_t>> symbols_of(const std::string& path,
                                                                     const SizeHistory::Sizes& sizes) const;

 private:
  struct Bounds {
    std::int64_t least = 2;
    std::int64_t most = 0;
    bool is_given = false;  ///< by the user
  };
  [[noreturn]] static void refuse_size(std::int64_t dim, std::int64_t size, const Bounds& bounds);
  void add(PyObject* object, int depth);
  void add_tensor(PyObject* object);
  /// nullopt: the size is a number.
  [[nodiscard]] std::optional<Bounds> bounds_of(PyObject* marks, std::int64_t dim) const;
  /// Bounds of each size of an input whose strides follow a rule: rows that are as far apart at all sizes do not
  /// overlap. nullopt: several sizes together decide that.
  [[nodiscard]] static std::optional<std::vector<Bounds>> bounds_by(const SizeHistory::Changing& input,
                                                                    const ir::StrideRule& rule);
  void add_changing(const std::string& path, const SizeHistory::Changing& input);
  /// Gives the free strides of a rule symbols, but for those that are pinned. `symbols`: of the sizes.
  void add_strides(ir::StrideRule& rule, const SizeHistory::Sizes& sizes,
                   const std::vector<std::optional<std::uint32_t>>& symbols, const SizeHistory::Sizes& strides,
                   const SizeHistory::Sizes& before);
  /// `before`: the size of an earlier call. Sizes that were not equal then are two symbols, as are a size and a stride.
  std::uint32_t symbol_for(const SymbolSizes& sizes, const Bounds& bounds);

  DynamicSizes which_;
  const PinnedSizes& pinned_;
  const SizeHistory::Inputs& changing_;
  std::vector<tracer::SizeSymbol> symbols_;
  std::vector<std::int64_t> before_;  ///< by symbol
  std::vector<ir::Condition> layouts_;
  std::map<std::string, std::vector<std::optional<std::uint32_t>>> by_path_;
  std::map<std::string, ir::StrideRule> rules_by_path_;
  std::unordered_map<PyObject*, std::vector<std::optional<std::uint32_t>>> by_tensor_;
  std::unordered_map<PyObject*, ir::StrideRule> rules_;  ///< by tensor, as `by_tensor_`
};

}  // namespace thunder::dispatch
