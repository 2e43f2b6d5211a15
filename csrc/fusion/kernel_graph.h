#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "ir/size.h"
#include "operators/element_op.h"

namespace thunder::fusion {

using ir::Dim;
using ir::Dims;
using operators::ElementOp;

/// The type that elements are computed in: bfloat16 and float16 in float, integers exactly.
enum class ComputeType : std::uint8_t { kFloat, kDouble, kInteger, kBool };
/// Whether kernels compute with elements of the dtype.
[[nodiscard]] bool has_compute_type(ir::Dtype dtype);
/// Only where there is one.
[[nodiscard]] ComputeType compute_type(ir::Dtype dtype);

/// The elements that a value has: one for each of the domain, one for each row, or one for everything.
enum class Extent : std::uint8_t { kElements, kRows, kConstant };

enum class Reduction : std::uint8_t { kSum, kMax, kMin };

// Sizes are expressions over symbols (`Dim`) in a kernel graph, and numbers in a `SizedKernel`.

/// The box that a kernel runs over: `outer` sizes are the rows, the rest of the elements the columns. Reductions go
/// over the columns of a row; sums over rows, and of everything, are known when the kernel ends.
template <typename Size>
struct BasicDomain {
  std::vector<Size> outer;
  Size columns = 1;
  bool splits_columns = false;  ///< nothing is reduced: columns need not stay together
  /// An array that lies in memory as the domain does has so many columns of all rows, then the next ones; 0:
  /// complete rows.
  Size run = 0;
  Size blocks = 1;  ///< that the rows are cut into, for sums over the rows of each
  /// Rows of a block are interleaved in memory: their first elements come first, then the second ones.
  bool interleaved = false;
};

/// The interval of one of the domain's sizes over which an array lies: index `begin` of the domain is its first
/// element.
template <typename Size>
struct BasicInterval {
  Size begin = 0;
  Size end = 0;  ///< may be outside of the domain, as `begin` may
  Size stride = 0;
};

/// An array that stands somewhere in the domain.
template <typename Size>
struct BasicPart {
  std::uint32_t array = 0;
  std::vector<BasicInterval<Size>> outer;  ///< one for each of the domain's outer sizes
  BasicInterval<Size> runs;
  BasicInterval<Size> columns;  ///< columns of a run
};

/// How the domain reads or writes an array. Strides are in elements.
template <typename Size>
struct BasicAccess {
  std::uint32_t array = 0;
  ir::Dtype dtype = ir::Dtype::kFloat32;
  std::vector<Size> outer_strides;  ///< one for each of the domain's outer sizes
  Size inner_stride = 0;            ///< between columns (of a run); 0 with kRows
  Extent extent = Extent::kElements;
  Size run = 0;  ///< columns after which the next begin `run_stride` further; 0: one stride does for all
  Size run_stride = 0;
  Size table_rows = 0;  ///< for kGather and kStore: rows among which an index chooses, `table_stride` apart
  Size table_stride = 0;
  std::vector<BasicPart<Size>> parts = {};  ///< for kAssemble: later ones hide earlier ones; for kStore the only one
  bool is_dense = false;                    ///< for kStore: it lies in memory as the domain, or its rows, do
};

/// A sum over rows, or over everything, which is known when all rows are done.
template <typename Size, typename Scale>
struct BasicSum {
  std::optional<std::uint32_t> array;  ///< none: it only divides others; of moments the mean's
  std::optional<std::uint32_t> variance;
  ir::Dtype dtype = ir::Dtype::kFloat32;
  Scale scale = {};                      ///< that the sum, or the variance of a population, is multiplied by
  Size blocks = 1;                       ///< blocks of rows: so many sums, one after the other
  std::optional<std::uint32_t> divisor;  ///< for a total: sums[divisor]
};

using KernelDomain = BasicDomain<Dim>;
using Interval = BasicInterval<Dim>;
using Part = BasicPart<Dim>;
using Access = BasicAccess<Dim>;
using KernelSum = BasicSum<Dim, ir::SizeRatio>;

/// A step of a kernel. Steps that it reads stand before it.
struct KernelNode {
  enum class Kind : std::uint8_t {
    kLoad,           ///< accesses[index]
    kGather,         ///< kLoad for the rows of a table that `operands[0]` chooses
    kAssemble,       ///< the parts of accesses[index]; elsewhere `operands[0]`, if there is an elsewhere
    kRandom,         ///< an element's random number, above 0 and up to 1, at the state that accesses[index] reads
    kConstant,       ///< `number`, or `integer` of type kInteger
    kRatio,          ///< the number that ratios[index] is for certain sizes
    kElement,        ///< `op` of the operands
    kRound,          ///< `operands[0]` as a narrower `dtype` holds it
    kConvert,        ///< `operands[0]` in another type
    kExpand,         ///< `operands[0]` as elements, or as rows: the node's extent says which
    kReduce,         ///< `reduction` of each row
    kMean,           ///< mean of each row
    kVariance,       ///< variance of each row of `operands[1]` with mean `operands[0]`, over the columns less `number`
    kPick,           ///< for each row of `operands[0]` the element at the column in `operands[1]`
    kScatterAdd,     ///< `operands[0]`, plus `operands[2]` at the column in `operands[1]` of each row
    kStore,          ///< `operands[0]` into accesses[index], at the row of a table that `operands[1]` chooses, if any
    kColumnSum,      ///< sums[index]: over rows, one for each column
    kColumnMoments,  ///< mean and variance of each column
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

/// A kernel for certain sizes.
struct SizedKernel {
  BasicDomain<std::int64_t> domain;
  std::vector<KernelNode> nodes;
  std::vector<BasicAccess<std::int64_t>> accesses;
  std::vector<BasicSum<std::int64_t, double>> sums;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> overwritten;  ///< see KernelGraph::overwrite
};

/// A fusion as a kernel of any target: loads, arithmetic, reductions and stores over one domain. Sizes may be
/// expressions over symbols: one graph is for all sizes. Arrays are numbered: the fusion's inputs, then its results.
class KernelGraph {
 public:
  enum class Value : std::uint32_t {};

  explicit KernelGraph(KernelDomain domain) : domain_(std::move(domain)) {}

  Value load(Access access);
  /// For each row that one of a table which `rows` chooses.
  Value gather(Access table, Value rows);
  /// The array that the access's parts make together, and elsewhere a constant; nullopt: there is no elsewhere.
  Value assemble(Access access, std::optional<Value> fill);
  /// Uniform random numbers of all elements, in the order of memory, at a state (`base/philox.h`).
  Value random(std::uint32_t state);
  Value constant(ComputeType type, double value);
  Value integer(std::int64_t value);
  Value ratio(ComputeType type, const ir::SizeRatio& ratio);
  Value element(ElementOp op, std::span<const Value> operands);
  /// The value as the dtype holds it; integers wrap around.
  Value round(Value value, ir::Dtype dtype);
  Value convert(Value value, ComputeType type);
  /// A value of rows, or a constant, as elements.
  Value expand(Value value);
  /// A constant as a value of rows.
  Value expand_rows(Value value);
  Value reduce(Reduction reduction, Value value);
  /// Value `difference` is `value` less `rows`, which are infinite only where `value` is in all of a row: so its
  /// largest element follows from that of `value`.
  void set_difference(Value difference, Value value, Value rows) { differences_.push_back({difference, value, rows}); }
  /// Mean and variance of each row; the variance is divided by the columns less `correction`.
  std::pair<Value, Value> moments(Value value, double correction);
  Value pick(Value value, Value columns);
  Value scatter_add(Value value, Value columns, Value added);

  /// Writes a value to an array that lies as the domain, or its rows, do.
  void store(Value value, std::uint32_t array, ir::Dtype dtype);
  /// Writes a value to an array where rows may lie apart.
  void store(Value value, Access access);
  /// Writes a value to that row of a table which `rows`, a value of rows, chooses.
  void store(Value value, Access table, Value rows);
  /// The sums of columns over all rows, or for each of the domain's blocks.
  void column_sum(Value value, std::uint32_t array, ir::Dtype dtype, const ir::SizeRatio& scale, const Dim& blocks = 1);
  /// Mean and variance of each column, of all rows or for each block; the variance is that of a population times
  /// `scale`. nullopt: the value is not needed.
  void column_moments(Value value, std::optional<std::uint32_t> mean, std::optional<std::uint32_t> variance,
                      ir::Dtype dtype, const ir::SizeRatio& scale, const Dim& blocks);
  /// The sum of all elements; it goes to an array, divided by total `divisor` if that is given. Returns its number.
  std::uint32_t total(Value value, std::optional<std::uint32_t> array, ir::Dtype dtype, const ir::SizeRatio& scale,
                      std::optional<std::uint32_t> divisor);
  /// Arrays `input` and `output` may be the same memory, where the target has read all of it before it writes.
  void overwrite(std::uint32_t input, std::uint32_t output) { overwritten_.emplace_back(input, output); }

  /// The kernel where the symbols have these values.
  [[nodiscard]] SizedKernel at(ir::SymbolValues symbols = {}) const;

  [[nodiscard]] ComputeType type(Value value) const { return node(value).type; }
  [[nodiscard]] Extent extent(Value value) const { return node(value).extent; }

 private:
  using Kind = KernelNode::Kind;
  struct Difference {
    Value difference;
    Value value;
    Value rows;
  };

  [[nodiscard]] const KernelNode& node(Value value) const { return nodes_[static_cast<std::uint32_t>(value)]; }
  [[nodiscard]] std::optional<Value> known_reduction(Reduction reduction, Value value);
  [[nodiscard]] static KernelNode make(Kind kind, ComputeType type, Extent extent, std::span<const Value> operands);
  Value add(KernelNode node);
  Value add_access(KernelNode node, Access access);
  std::uint32_t add_sum(KernelNode node, KernelSum sum);

  KernelDomain domain_;
  std::vector<KernelNode> nodes_;
  std::vector<Access> accesses_;
  std::vector<KernelSum> sums_;
  std::vector<ir::SizeRatio> ratios_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> overwritten_;
  std::vector<Difference> differences_;  ///< see `set_difference`
};

}  // namespace thunder::fusion
