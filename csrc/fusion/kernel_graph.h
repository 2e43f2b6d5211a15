#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "operators/element_op.h"

namespace thunder::fusion {

using operators::ElementOp;

/// What elements are computed in: bfloat16 and float16 in float, integers exactly.
enum class ComputeType : std::uint8_t { kFloat, kDouble, kInteger, kBool };
/// Whether kernels compute with elements of the dtype.
[[nodiscard]] bool has_compute_type(ir::Dtype dtype);
/// Only where there is one.
[[nodiscard]] ComputeType compute_type(ir::Dtype dtype);

/// What there is of a value: an element for each of the domain, one for each row, or one for everything.
enum class Extent : std::uint8_t { kElements, kRows, kConstant };

enum class Reduction : std::uint8_t { kSum, kMax, kMin };

/// The box that a kernel runs over: `outer` sizes are the rows, the rest of the elements the columns. Reductions go
/// over the columns of a row; sums over rows, and of everything, are known when the kernel ends.
struct KernelDomain {
  std::vector<std::int64_t> outer;
  std::int64_t columns = 1;
  bool splits_columns = false;  ///< nothing is reduced: columns need not stay together
  /// What lies in memory as the domain does has so many columns of all rows, then the next ones; 0: whole rows.
  std::int64_t run = 0;
  std::int64_t blocks = 1;  ///< that the rows are cut into, for sums over the rows of each
  /// Rows of a block lie side by side: in memory come their first elements, then the second ones.
  bool side_by_side = false;

  [[nodiscard]] std::int64_t rows() const;
  friend bool operator==(const KernelDomain&, const KernelDomain&) = default;
};

/// The interval of one of the domain's sizes over which an array lies: index `begin` of the domain is its first
/// element.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;  ///< may be outside of the domain, as `begin` may
  std::int64_t stride = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// An array that stands somewhere in the domain.
struct Part {
  std::uint32_t array = 0;
  std::vector<Interval> outer;  ///< one for each of the domain's outer sizes
  Interval runs;
  Interval columns;  ///< of a run
  friend bool operator==(const Part&, const Part&) = default;
};

/// How the domain reads or writes an array. Strides are in elements.
struct Access {
  std::uint32_t array = 0;
  ir::Dtype dtype = ir::Dtype::kFloat32;
  std::vector<std::int64_t> outer_strides;  ///< one for each of the domain's outer sizes
  std::int64_t inner_stride = 0;            ///< between columns (of a run); 0 with kRows
  Extent extent = Extent::kElements;
  std::int64_t run = 0;  ///< columns after which the next begin `run_stride` further; 0: one stride does for all
  std::int64_t run_stride = 0;
  std::int64_t table_rows = 0;  ///< of kGather: among which an index chooses, `table_stride` apart
  std::int64_t table_stride = 0;
  std::vector<Part> parts = {};  ///< of kAssemble: later ones hide earlier ones; of kStore the only place there is
  bool is_dense = false;         ///< of kStore: it lies in memory as the domain, or its rows, do
  friend bool operator==(const Access&, const Access&) = default;
};

/// A step of a kernel. Steps that it reads stand before it.
struct KernelNode {
  enum class Kind : std::uint8_t {
    kLoad,           ///< accesses[index]
    kGather,         ///< the same, of the rows of a table that `operands[0]` chooses
    kAssemble,       ///< the parts of accesses[index]; elsewhere `operands[0]`, if there is an elsewhere
    kConstant,       ///< `number`, or `integer` of type kInteger
    kElement,        ///< `op` of the operands
    kRound,          ///< `operands[0]` as a narrower `dtype` holds it
    kConvert,        ///< `operands[0]` in another type
    kExpand,         ///< `operands[0]` as elements, or as rows: the node's extent says which
    kReduce,         ///< `reduction` of each row
    kMean,           ///< of each row
    kVariance,       ///< of each row of `operands[1]`, whose mean is `operands[0]`, over the columns less `number`
    kPick,           ///< for each row of `operands[0]` the element at the column in `operands[1]`
    kScatterAdd,     ///< `operands[0]`, plus `operands[2]` at the column in `operands[1]` of each row
    kStore,          ///< `operands[0]` into accesses[index]
    kColumnSum,      ///< sums[index]: over rows, one for each column
    kColumnMoments,  ///< the same: mean and variance of each column
    kTotal,          ///< sums[index]: over everything
  };
  Kind kind = Kind::kElement;
  ElementOp op = ElementOp::kAdd;
  Reduction reduction = Reduction::kSum;
  ComputeType type = ComputeType::kFloat;
  Extent extent = Extent::kConstant;
  ir::Dtype dtype = ir::Dtype::kFloat32;
  std::uint32_t operands[3] = {0, 0, 0};
  std::uint32_t operand_count = 0;
  std::uint32_t index = 0;
  double number = 0;
  std::int64_t integer = 0;
};

/// What is known when all rows are done.
struct KernelSum {
  std::optional<std::uint32_t> array;  ///< none: it only divides others; of moments the mean's
  std::optional<std::uint32_t> variance;
  ir::Dtype dtype = ir::Dtype::kFloat32;
  double scale = 1;                      ///< that the sum, or the variance of a population, is multiplied by
  std::int64_t blocks = 1;               ///< of rows: so many sums, one after the other
  std::optional<std::uint32_t> divisor;  ///< of a total: sums[divisor]
};

/// A fusion as a kernel of any target: loads, arithmetic, reductions and stores over one domain.
/// Arrays are numbered: the fusion's inputs, then its results.
class KernelGraph {
 public:
  enum class Value : std::uint32_t {};

  explicit KernelGraph(KernelDomain domain) : domain_(std::move(domain)) {}

  Value load(Access access);
  /// For each row that one of a table which `rows` chooses.
  Value gather(Access table, Value rows);
  /// What the access's parts are put together to, and elsewhere a constant; nullopt: there is no elsewhere.
  Value assemble(Access access, std::optional<Value> fill);
  Value constant(ComputeType type, double value);
  Value integer(std::int64_t value);
  Value element(ElementOp op, std::span<const Value> operands);
  /// The value as the dtype holds it; integers wrap around.
  Value round(Value value, ir::Dtype dtype);
  Value convert(Value value, ComputeType type);
  /// A value of rows, or a constant, as elements.
  Value expand(Value value);
  /// A constant as a value of rows.
  Value expand_rows(Value value);
  Value reduce(Reduction reduction, Value value);
  /// Mean and variance of each row; the variance is divided by the columns less `correction`.
  std::pair<Value, Value> moments(Value value, double correction);
  Value pick(Value value, Value columns);
  Value scatter_add(Value value, Value columns, Value added);

  /// Writes a value to an array that lies as the domain, or its rows, do.
  void store(Value value, std::uint32_t array, ir::Dtype dtype);
  /// The same where rows may lie apart.
  void store(Value value, Access access);
  /// Of all rows, or one for each of the domain's blocks.
  void column_sum(Value value, std::uint32_t array, ir::Dtype dtype, double scale, std::int64_t blocks = 1);
  /// Mean and variance of each column, of all rows or for each block; the variance is that of a population times
  /// `scale`. What has no array is read by nobody.
  void column_moments(Value value, std::optional<std::uint32_t> mean, std::optional<std::uint32_t> variance,
                      ir::Dtype dtype, double scale, std::int64_t blocks);
  /// The sum of all elements; it goes to an array, divided by total `divisor` if that is given. Returns its number.
  std::uint32_t total(Value value, std::optional<std::uint32_t> array, ir::Dtype dtype, double scale,
                      std::optional<std::uint32_t> divisor);
  /// Arrays `input` and `output` may be the same memory, where the target has read all of it before it writes.
  void overwrite(std::uint32_t input, std::uint32_t output) { overwritten_.emplace_back(input, output); }

  [[nodiscard]] ComputeType type(Value value) const { return node(value).type; }
  [[nodiscard]] Extent extent(Value value) const { return node(value).extent; }

  [[nodiscard]] const KernelDomain& domain() const { return domain_; }
  [[nodiscard]] const std::vector<KernelNode>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<Access>& accesses() const { return accesses_; }
  [[nodiscard]] const std::vector<KernelSum>& sums() const { return sums_; }
  [[nodiscard]] const std::vector<std::pair<std::uint32_t, std::uint32_t>>& overwritten() const { return overwritten_; }

 private:
  using Kind = KernelNode::Kind;

  [[nodiscard]] const KernelNode& node(Value value) const { return nodes_[static_cast<std::uint32_t>(value)]; }
  [[nodiscard]] static KernelNode make(Kind kind, ComputeType type, Extent extent, std::span<const Value> operands);
  Value add(KernelNode node);
  Value add_access(KernelNode node, Access access);
  std::uint32_t add_sum(KernelNode node, KernelSum sum);

  KernelDomain domain_;
  std::vector<KernelNode> nodes_;
  std::vector<Access> accesses_;
  std::vector<KernelSum> sums_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> overwritten_;
};

}  // namespace thunder::fusion
