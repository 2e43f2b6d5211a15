#include "fusion/kernel_graph.h"

#include <algorithm>

namespace thunder::fusion {

bool has_compute_type(ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kBool:
    case ir::Dtype::kUint8:
    case ir::Dtype::kInt8:
    case ir::Dtype::kInt16:
    case ir::Dtype::kInt32:
    case ir::Dtype::kInt64:
    case ir::Dtype::kFloat16:
    case ir::Dtype::kBfloat16:
    case ir::Dtype::kFloat32:
    case ir::Dtype::kFloat64:
      return true;
    default:
      return false;
  }
}

ComputeType compute_type(ir::Dtype dtype) {
  if (dtype == ir::Dtype::kBool) return ComputeType::kBool;
  if (dtype == ir::Dtype::kFloat64) return ComputeType::kDouble;
  return ir::is_floating_point(dtype) ? ComputeType::kFloat : ComputeType::kInteger;
}

namespace {

using ir::evaluate;

BasicInterval<std::int64_t> at_sizes(const Interval& interval, ir::SymbolValues symbols) {
  return {evaluate(interval.begin, symbols), evaluate(interval.end, symbols), evaluate(interval.stride, symbols)};
}

BasicPart<std::int64_t> at_sizes(const Part& part, ir::SymbolValues symbols) {
  BasicPart<std::int64_t> sized{part.array, {}, at_sizes(part.runs, symbols), at_sizes(part.columns, symbols)};
  for (const Interval& interval : part.outer) sized.outer.push_back(at_sizes(interval, symbols));
  return sized;
}

BasicAccess<std::int64_t> at_sizes(const Access& access, ir::SymbolValues symbols) {
  BasicAccess<std::int64_t> sized;
  sized.array = access.array;
  sized.dtype = access.dtype;
  sized.outer_strides = evaluate(access.outer_strides, symbols);
  sized.inner_stride = evaluate(access.inner_stride, symbols);
  sized.extent = access.extent;
  sized.run = evaluate(access.run, symbols);
  sized.run_stride = evaluate(access.run_stride, symbols);
  sized.table_rows = evaluate(access.table_rows, symbols);
  sized.table_stride = evaluate(access.table_stride, symbols);
  for (const Part& part : access.parts) sized.parts.push_back(at_sizes(part, symbols));
  sized.is_dense = access.is_dense;
  return sized;
}

/// Makes a node a constant: `value` in its type.
void set_number(KernelNode& node, double value) {
  node.kind = KernelNode::Kind::kConstant;
  if (node.type == ComputeType::kInteger) {
    node.integer = static_cast<std::int64_t>(value);
  } else {
    node.number = value;
  }
}

}  // namespace

SizedKernel KernelGraph::at(ir::SymbolValues symbols) const {
  SizedKernel sized;
  sized.domain = {evaluate(domain_.outer, symbols), evaluate(domain_.columns, symbols), domain_.splits_columns,
                  evaluate(domain_.run, symbols),   evaluate(domain_.blocks, symbols),  domain_.interleaved};
  sized.nodes = nodes_;
  for (KernelNode& node : sized.nodes) {
    if (node.kind == Kind::kRatio) set_number(node, ratios_[node.index].at(symbols));
  }
  for (const Access& access : accesses_) sized.accesses.push_back(at_sizes(access, symbols));
  for (const KernelSum& sum : sums_) {
    sized.sums.push_back(
        {sum.array, sum.variance, sum.dtype, sum.scale.at(symbols), evaluate(sum.blocks, symbols), sum.divisor});
  }
  sized.overwritten = overwritten_;
  return sized;
}

KernelNode KernelGraph::make(Kind kind, ComputeType type, Extent extent, std::span<const Value> operands) {
  KernelNode node;
  node.kind = kind;
  node.type = type;
  node.extent = extent;
  node.operand_count = static_cast<std::uint32_t>(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) node.operands[i] = static_cast<std::uint32_t>(operands[i]);
  return node;
}

KernelGraph::Value KernelGraph::add(KernelNode node) {
  nodes_.push_back(node);
  return Value{static_cast<std::uint32_t>(nodes_.size() - 1)};
}

KernelGraph::Value KernelGraph::add_access(KernelNode node, Access access) {
  node.index = static_cast<std::uint32_t>(accesses_.size());
  accesses_.push_back(std::move(access));
  return add(node);
}

std::uint32_t KernelGraph::add_sum(KernelNode node, KernelSum sum) {
  node.index = static_cast<std::uint32_t>(sums_.size());
  sums_.push_back(sum);
  add(node);
  return node.index;
}

KernelGraph::Value KernelGraph::load(Access access) {
  const KernelNode node = make(Kind::kLoad, compute_type(access.dtype), access.extent, {});
  return add_access(node, std::move(access));
}

KernelGraph::Value KernelGraph::gather(Access table, Value rows) {
  const KernelNode node = make(Kind::kGather, compute_type(table.dtype), Extent::kElements, {&rows, 1});
  return add_access(node, std::move(table));
}

KernelGraph::Value KernelGraph::assemble(Access access, std::optional<Value> fill) {
  const auto operands = fill ? std::span<const Value>(&*fill, 1) : std::span<const Value>();
  const KernelNode node = make(Kind::kAssemble, compute_type(access.dtype), Extent::kElements, operands);
  return add_access(node, std::move(access));
}

KernelGraph::Value KernelGraph::random(std::uint32_t state) {
  Access access;
  access.array = state;
  access.dtype = ir::Dtype::kInt64;
  access.outer_strides.assign(domain_.outer.size(), 0);
  access.extent = Extent::kConstant;
  return add_access(make(Kind::kRandom, ComputeType::kFloat, Extent::kElements, {}), std::move(access));
}

KernelGraph::Value KernelGraph::constant(ComputeType type, double value) {
  KernelNode node = make(Kind::kConstant, type, Extent::kConstant, {});
  node.number = value;
  return add(node);
}

KernelGraph::Value KernelGraph::integer(std::int64_t value) {
  KernelNode node = make(Kind::kConstant, ComputeType::kInteger, Extent::kConstant, {});
  node.integer = value;
  return add(node);
}

KernelGraph::Value KernelGraph::ratio(ComputeType type, const ir::SizeRatio& ratio) {
  KernelNode node = make(Kind::kRatio, type, Extent::kConstant, {});
  if (const auto value = ratio.value()) {
    set_number(node, *value);
  } else {
    node.index = static_cast<std::uint32_t>(ratios_.size());
    ratios_.push_back(ratio);
  }
  return add(node);
}

KernelGraph::Value KernelGraph::element(ElementOp op, std::span<const Value> operands) {
  Extent extent = Extent::kConstant;
  for (const Value operand : operands) extent = std::min(extent, this->extent(operand));
  const ComputeType type = operators::is_comparison(op) ? ComputeType::kBool : this->type(operands.back());
  KernelNode node = make(Kind::kElement, type, extent, operands);
  node.op = op;
  return add(node);
}

KernelGraph::Value KernelGraph::round(Value value, ir::Dtype dtype) {
  KernelNode node = make(Kind::kRound, type(value), extent(value), {&value, 1});
  node.dtype = dtype;
  return add(node);
}

KernelGraph::Value KernelGraph::convert(Value value, ComputeType type) {
  return this->type(value) == type ? value : add(make(Kind::kConvert, type, extent(value), {&value, 1}));
}

KernelGraph::Value KernelGraph::expand(Value value) {
  const bool is_expanded = extent(value) == Extent::kElements;
  return is_expanded ? value : add(make(Kind::kExpand, type(value), Extent::kElements, {&value, 1}));
}

KernelGraph::Value KernelGraph::expand_rows(Value value) {
  const bool is_constant = extent(value) == Extent::kConstant;
  return is_constant ? add(make(Kind::kExpand, type(value), Extent::kRows, {&value, 1})) : value;
}

/// A reduction that follows from another one, or was made before. A row's sum of zeros and one element is that element.
std::optional<KernelGraph::Value> KernelGraph::known_reduction(Reduction reduction, Value value) {
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    const bool is_equal = nodes_[i].kind == Kind::kReduce && nodes_[i].reduction == reduction &&
                          nodes_[i].operands[0] == static_cast<std::uint32_t>(value);
    if (is_equal) return Value{i};
  }
  const auto known = std::ranges::find(differences_, value, &Difference::difference);
  if (reduction == Reduction::kMax && known != differences_.end()) {
    const Value operands[] = {reduce(reduction, known->value), known->rows};
    return element(ElementOp::kSubtract, operands);
  }
  if (reduction != Reduction::kSum) return std::nullopt;
  const KernelNode scattered = node(value);
  if (scattered.kind == Kind::kRound) {  // zeros stay as they are
    const auto sum = known_reduction(reduction, Value{scattered.operands[0]});
    const bool is_of_zeros = sum && nodes_[scattered.operands[0]].kind == Kind::kScatterAdd;
    return is_of_zeros ? std::make_optional(round(*sum, scattered.dtype)) : std::nullopt;
  }
  if (scattered.kind != Kind::kScatterAdd) return std::nullopt;
  const KernelNode& background = nodes_[scattered.operands[0]];
  if (background.kind != Kind::kExpand) return std::nullopt;
  const KernelNode& zero = nodes_[background.operands[0]];
  if (zero.kind != Kind::kConstant || zero.number != 0 || zero.integer != 0) return std::nullopt;
  const Value summands[] = {Value{background.operands[0]}, Value{scattered.operands[2]}};
  return expand_rows(element(ElementOp::kAdd, summands));
}

KernelGraph::Value KernelGraph::reduce(Reduction reduction, Value value) {
  if (const auto known = known_reduction(reduction, value)) return *known;
  const ComputeType result = type(value) == ComputeType::kBool ? ComputeType::kInteger : type(value);
  KernelNode node = make(Kind::kReduce, result, Extent::kRows, {&value, 1});
  node.reduction = reduction;
  return add(node);
}

std::pair<KernelGraph::Value, KernelGraph::Value> KernelGraph::moments(Value value, double correction) {
  KernelNode mean = make(Kind::kMean, type(value), Extent::kRows, {&value, 1});
  mean.number = correction;
  const Value first = add(mean);
  const Value operands[] = {first, value};
  KernelNode variance = make(Kind::kVariance, type(value), Extent::kRows, operands);
  variance.number = correction;
  return {first, add(variance)};
}

KernelGraph::Value KernelGraph::pick(Value value, Value columns) {
  const Value operands[] = {value, columns};
  return add(make(Kind::kPick, type(value), Extent::kRows, operands));
}

KernelGraph::Value KernelGraph::scatter_add(Value value, Value columns, Value added) {
  const Value operands[] = {value, columns, added};
  return add(make(Kind::kScatterAdd, type(value), Extent::kElements, operands));
}

void KernelGraph::store(Value value, std::uint32_t array, ir::Dtype dtype) {
  Access access;
  access.array = array;
  access.dtype = dtype;
  access.extent = extent(value);
  access.is_dense = true;
  store(value, std::move(access));
}

void KernelGraph::store(Value value, Access access) {
  add_access(make(Kind::kStore, type(value), extent(value), {&value, 1}), std::move(access));
}

void KernelGraph::store(Value value, Access table, Value rows) {
  const Value operands[] = {value, rows};
  add_access(make(Kind::kStore, type(value), extent(value), operands), std::move(table));
}

void KernelGraph::column_sum(Value value, std::uint32_t array, ir::Dtype dtype, const ir::SizeRatio& scale,
                             const Dim& blocks) {
  KernelSum sum;
  sum.array = array;
  sum.dtype = dtype;
  sum.scale = scale;
  sum.blocks = blocks;
  add_sum(make(Kind::kColumnSum, type(value), Extent::kElements, {&value, 1}), sum);
}

void KernelGraph::column_moments(Value value, std::optional<std::uint32_t> mean, std::optional<std::uint32_t> variance,
                                 ir::Dtype dtype, const ir::SizeRatio& scale, const Dim& blocks) {
  KernelSum sum;
  sum.array = mean;
  sum.variance = variance;
  sum.dtype = dtype;
  sum.scale = scale;
  sum.blocks = blocks;
  add_sum(make(Kind::kColumnMoments, type(value), Extent::kElements, {&value, 1}), sum);
}

std::uint32_t KernelGraph::total(Value value, std::optional<std::uint32_t> array, ir::Dtype dtype,
                                 const ir::SizeRatio& scale, std::optional<std::uint32_t> divisor) {
  KernelSum sum;
  sum.array = array;
  sum.dtype = dtype;
  sum.scale = scale;
  sum.divisor = divisor;
  return add_sum(make(Kind::kTotal, type(value), extent(value), {&value, 1}), sum);
}

}  // namespace thunder::fusion
