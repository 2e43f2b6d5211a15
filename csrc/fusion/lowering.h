#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fusion/buffer_regions.h"
#include "fusion/iteration_space.h"
#include "fusion/kernel_graph.h"
#include "fusion/roles.h"
#include "ir/trace.h"

namespace thunder::fusion {

using Strides = std::vector<Dims>;  ///< for each input of a fusion

/// Those of the inputs of a fusion's region, as they were traced.
[[nodiscard]] Strides traced_strides(const ir::Trace& region);

using Value = KernelGraph::Value;

/// The view that an operation's lowering has of a fusion: its arguments as values of the kernel, and where its results
/// go.
class Lowering {
 public:
  /// The kernel of a fused symbol, for inputs of the given strides. Its arrays are the inputs, the results, and the
  /// tensors that results are copied to (see `copy_targets`). nullopt: there is none.
  [[nodiscard]] static std::optional<KernelGraph> lower(const BoundSymbol& fused, const Trace& trace,
                                                        const Strides& strides, const Target& target);

  [[nodiscard]] KernelGraph& graph() { return *graph_; }
  [[nodiscard]] const FusionRole& role(const BoundSymbol& symbol) const {
    return roles_[static_cast<std::size_t>(&symbol - fused_.nested.data())];
  }
  [[nodiscard]] const ir::TensorType* type(const BoundSymbol& symbol, std::size_t argument) const;
  [[nodiscard]] const ir::TensorType& result_type(const BoundSymbol& symbol, std::size_t result = 0) const;
  /// The type in which a result's elements are computed.
  [[nodiscard]] ComputeType result_type_of(const BoundSymbol& symbol, std::size_t result = 0) const;
  /// The type in which arguments of different kinds meet, as they do for a comparison.
  [[nodiscard]] ComputeType common_type(const BoundSymbol& symbol, std::size_t count) const;

  /// Argument `i`, a value or a number, in the type.
  [[nodiscard]] Value argument(const BoundSymbol& symbol, std::size_t i, ComputeType type);
  /// Rows of argument `i`, a matrix that comes from memory, as `rows` chooses them.
  [[nodiscard]] Value gather(const BoundSymbol& symbol, std::size_t i, Value rows);
  /// Random numbers of the elements that a symbol goes over, at the state that argument `i` has.
  [[nodiscard]] Value random(const BoundSymbol& symbol, std::size_t i);
  /// The result of a symbol that joins parts, which come from memory.
  [[nodiscard]] Value assemble(const BoundSymbol& symbol);
  /// Argument `i` as it would be in memory: what is compared must be equal to what was stored elsewhere.
  [[nodiscard]] Value rounded_argument(const BoundSymbol& symbol, std::size_t i, ComputeType type);
  /// Argument `i` has one element for each row, and comes from memory in a dtype narrower than its type.
  [[nodiscard]] bool is_loaded_row(const BoundSymbol& symbol, std::size_t i);
  Value number(ComputeType type, double value);
  Value number(ComputeType type, const Dim& value) { return number(type, ir::SizeRatio{.numerator = value}); }
  Value number(ComputeType type, const ir::SizeRatio& value) { return graph_->ratio(type, value); }
  Value apply(ElementOp op, std::span<const Value> arguments);
  Value apply(ElementOp op, std::initializer_list<Value> arguments) {
    return apply(op, std::span(arguments.begin(), arguments.size()));
  }
  /// `op` of the value and argument `i`; the value itself where the argument is left out.
  Value apply_if_given(ElementOp op, Value value, const BoundSymbol& symbol, std::size_t i);

  /// Whether anybody reads a result.
  [[nodiscard]] bool is_read(const BoundSymbol& symbol, std::size_t result) const;
  void set(const BoundSymbol& symbol, std::size_t result, Value value);
  /// The result is rounded to a narrower floating-point dtype for those who read it here.
  void set_rounded(const BoundSymbol& symbol, Value value, ir::Dtype dtype);
  void set_column_sum(const BoundSymbol& symbol, std::size_t result, Value value, const ir::SizeRatio& scale);
  /// Results `mean` and `variance` (none where it is not asked for) of each column; the variance times `scale`.
  void set_column_moments(const BoundSymbol& symbol, std::optional<std::size_t> mean, std::size_t variance, Value value,
                          const ir::SizeRatio& scale);
  /// The sum of all elements, divided by total `divisor`. Returns its number.
  std::uint32_t set_total(const BoundSymbol& symbol, std::size_t result, Value value, const ir::SizeRatio& scale,
                          std::optional<std::uint32_t> divisor);
  /// A sum that only divides others.
  std::uint32_t add_total(Value value) {
    return graph_->total(value, std::nullopt, ir::Dtype::kFloat32, {}, std::nullopt);
  }

 private:
  struct Made {
    Value value;
    std::optional<ir::Dtype> rounding;
  };
  /// The slice of a result that is stored, if that is not all of it.
  struct Slice {
    ir::Dims start;  ///< by dimension
    const ir::TensorType* type;
  };
  /// Rows of an input that a result is copied to.
  struct RowTarget {
    ir::ValueId index;  ///< an input with the number of each row
    std::size_t dim = 0;
    Dims strides;  ///< the input's, 0 along `dim`
    Dim size = 0;  ///< the input's, along `dim`
    Dim stride = 0;
  };
  struct Failure {};  ///< thrown by an operation that no kernel has, caught by `lower`

  Lowering(const BoundSymbol& fused, const Trace& trace, const Strides& strides, const Target& target);

  [[nodiscard]] bool is_destination(const BoundSymbol& symbol) const;
  void find_destinations(std::span<const BoundSymbol> destinations);
  /// The operations that compute something: others, at the end, say where results go to.
  [[nodiscard]] std::span<const BoundSymbol> computing() const { return std::span(fused_.nested).first(roles_.size()); }
  [[nodiscard]] Value rounded(Value value, ir::Dtype dtype);
  void add_row_target(const BoundSymbol& symbol);
  [[nodiscard]] bool add_row_accesses(std::vector<Dims>& accesses) const;
  void store_in_rows(Value value, std::uint32_t array, const ir::TensorType& type, const RowTarget& target);
  bool find_space();
  bool find_domain();
  void lower_symbols();
  void store_results();
  [[nodiscard]] Dims strides_over_space(ir::ValueId id, const BoundSymbol& reader, std::size_t argument) const;
  [[nodiscard]] Dims strides_over_space(const ir::TensorType& type, const Dims& strides, const ir::TensorType& over,
                                        const std::vector<std::size_t>& dims) const;
  [[nodiscard]] Access access_of(std::uint32_t array, ir::Dtype dtype, const Dims& strides) const;
  template <typename Visitor>
  void for_each_dim(const ir::TensorType& over, Visitor visit) const;
  [[nodiscard]] std::optional<std::vector<Interval>> intervals_over_space(const BufferRegion& part,
                                                                          const ir::TensorType& over) const;
  [[nodiscard]] std::optional<std::vector<Interval>> intervals_over_space(const Slice& slice,
                                                                          const ir::TensorType& over) const;
  [[nodiscard]] std::optional<std::vector<Interval>> intervals_over_space(const std::vector<Interval>& by_dim,
                                                                          const ir::TensorType& over) const;
  [[nodiscard]] std::optional<std::vector<std::vector<Interval>>> find_parts() const;
  [[nodiscard]] Part part_of(std::uint32_t array, const std::vector<Interval>& intervals) const;
  [[nodiscard]] Dim repeated_blocks(const Dims& sizes, const std::vector<Dims>& accesses) const;
  template <typename T>
  [[nodiscard]] std::vector<T> rows_first(const std::vector<T>& by_size) const;
  [[nodiscard]] Value load(ir::ValueId id, const BoundSymbol& reader, std::size_t argument);
  [[nodiscard]] std::optional<std::uint32_t> array_of(const BoundSymbol& symbol, std::size_t result) const;

  const BoundSymbol& fused_;
  const Trace& trace_;
  const Strides& input_strides_;
  const Target& target_;
  std::vector<FusionRole> roles_;                             ///< by nested symbol
  IterationSpace space_;                                      ///< the space that all of them go over together
  std::unordered_map<std::uint32_t, std::uint32_t> inputs_;   ///< value -> array
  std::unordered_map<std::uint32_t, std::uint32_t> outputs_;  ///< value -> array
  std::vector<ir::ValueId> stored_;                           ///< the values of `outputs_`
  std::unordered_map<std::uint32_t, Dims> copy_strides_;      ///< by result: strides of the tensor that it is copied to
  std::unordered_map<std::uint32_t, RowTarget> row_targets_;  ///< by result
  std::unordered_map<std::uint32_t, Slice> slices_;           ///< by result
  std::unordered_map<std::uint32_t, Made> made_;
  std::vector<std::size_t> rows_;    ///< places of the space's sizes that are rows
  std::vector<std::size_t> places_;  ///< the positions of all sizes, the rows' first
  std::vector<std::size_t> joined_;  ///< by size, the rows' first: the size of the domain that it is part of
  std::size_t outer_count_ = 0;      ///< how many of the domain's sizes are rows
  Dim run_ = 0;                      ///< columns of a run, where some inputs step through rows in two ways; 0: none do
  std::unique_ptr<KernelGraph> graph_;
};

}  // namespace thunder::fusion
