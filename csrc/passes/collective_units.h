#pragma once

#include <cstdint>
#include <vector>

#include "ir/substitution.h"
#include "ir/trace.h"
#include "ir/uses.h"
#include "passes/pass.h"

namespace thunder::passes {

/// Operations of a trace that become one collective.
struct CollectiveUnit {
  std::vector<std::uint32_t> symbols;  ///< by position
  std::uint32_t place = 0;             ///< where all results are needed, or all arguments are there
  std::int64_t bytes = 0;              ///< those of the full tensors
};

/// An operation that asks for a collective.
struct CollectiveRequest {
  std::uint32_t symbol = 0;
  std::uint32_t place = 0;
  std::int64_t bytes = 0;
};

/// The options of operations that ask for collectives: the arguments from `first` on, among them the bucket's name.
struct CollectiveOptions {
  std::size_t first = 0;
  std::size_t bucket = 0;
};

/// Puts together those with equal options (group, number of processes, name of the bucket), dtypes and devices, unless
/// their bucket has no name. `earliest`: a unit's place is that of its first request, not of its last one. Sorted by
/// place.
[[nodiscard]] std::vector<CollectiveUnit> make_units(const ir::Trace& trace,
                                                     const std::vector<CollectiveRequest>& requests,
                                                     CollectiveOptions options, bool earliest);

/// Bytes of the largest unit; zero without one.
[[nodiscard]] std::int64_t largest_unit(const std::vector<CollectiveUnit>& units);

/// Puts collectives in the place of operations that ask for them: units start one after the other, and are waited for
/// in the same order.
class CollectiveRewriter {
 protected:
  CollectiveRewriter(const ir::Trace& trace, FindOperator find_operator, const char* pass);

  [[nodiscard]] const ir::BoundSymbol& symbol(std::uint32_t i) const { return trace_.symbols[i]; }
  /// Whether a symbol copies a tensor to another device.
  [[nodiscard]] bool is_move(std::uint32_t i) const;
  /// The type of the only result of a symbol.
  [[nodiscard]] const ir::TensorType& type_of(std::uint32_t i) const;

  /// Starts the next unit, with one tensor for each of its symbols: `name`, or `coalesced` for several. `options` are
  /// the arguments behind them, `types` those of the results.
  void start(const char* name, const char* coalesced, ir::ArgumentList given, ir::ArgumentList options,
             const std::vector<ir::TypePtr>& types);
  /// Waits for what the next unit that is not waited for gives for its symbol `k`.
  ir::ValueId wait(std::size_t k);
  /// That unit is no longer under way.
  void finish();

  ir::ValueId call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type);
  /// Both give the value itself where nothing is to be done.
  ir::ValueId cast(ir::ValueId value, ir::Dtype dtype);
  ir::ValueId contiguous(ir::ValueId value);
  /// A value with zeros behind its rows, or without its last rows, so that it has so many.
  ir::ValueId with_rows(ir::ValueId value, std::int64_t rows);

  const ir::Trace& trace_;
  ir::Uses uses_;
  std::vector<bool> is_replaced_;  ///< by symbol: part of a unit
  ir::Substitution replaced_;
  ir::Trace result_;
  ir::SourceLocation location_;  ///< that added symbols get
  std::vector<CollectiveUnit> units_;
  std::size_t next_start_ = 0;
  std::size_t next_wait_ = 0;
  std::int64_t in_flight_ = 0;  ///< bytes of the units that are under way

 private:
  FindOperator find_operator_;
  std::vector<std::vector<ir::ValueId>> started_;  ///< by unit
};

}  // namespace thunder::passes
