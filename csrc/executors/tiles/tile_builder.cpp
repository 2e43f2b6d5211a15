#include "executors/tiles/tile_builder.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace thunder::executors::cpu {

/// A constant as it lies in memory.
double TileBuilder::slot_of(const Node& node) {
  if (node.compute_type == ComputeType::kFloat) {
    return std::bit_cast<double>(std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(node.number))});
  }
  if (node.compute_type == ComputeType::kBool) return std::bit_cast<double>(std::uint64_t{node.number != 0});
  return node.number;
}

TileBuilder::Node TileBuilder::make_node(Kind kind, ComputeType compute_type, Extent extent,
                                         std::span<const Value> arguments) const {
  Node made;
  made.kind = kind;
  made.compute_type = compute_type;
  made.extent = extent;
  made.phase = made.works_on_tiles() ? 0 : -1;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const Node& argument = node(arguments[i]);
    const bool waits = made.works_on_tiles() && argument.extent == Extent::kRow;
    made.arguments[i] = static_cast<std::uint32_t>(arguments[i]);
    made.phase = std::max(made.phase, argument.phase + (waits ? 1 : 0));
  }
  return made;
}

TileBuilder::Value TileBuilder::add(Node node) {
  const bool has_effect = node.kind == Kind::kStore || node.kind == Kind::kColumnSum || node.kind == Kind::kTotal;
  if (!has_effect) {
    const auto known = std::ranges::find(nodes_, node);
    if (known != nodes_.end()) return Value{static_cast<std::uint32_t>(known - nodes_.begin())};
  }
  nodes_.push_back(node);
  return Value{static_cast<std::uint32_t>(nodes_.size() - 1)};
}

std::uint32_t TileBuilder::place_of(Access access) {
  const auto known = std::ranges::find(accesses_, access);
  const auto place = static_cast<std::uint32_t>(known - accesses_.begin());
  if (known == accesses_.end()) accesses_.push_back(std::move(access));
  return place;
}

TileBuilder::Value TileBuilder::load(Access access) {
  Node node = make_node(Kind::kLoad, compute_type_of(access.storage), access.extent, {});
  node.index = place_of(std::move(access));
  return add(node);
}

TileBuilder::Value TileBuilder::gather(Access table, Value rows) {
  Node node = make_node(Kind::kGather, compute_type_of(table.storage), Extent::kTile, {&rows, 1});
  node.index = place_of(std::move(table));
  return add(node);
}

TileBuilder::Value TileBuilder::assemble(Access access, std::optional<Value> fill) {
  Node node = make_node(Kind::kAssemble, compute_type_of(access.storage), Extent::kTile,
                        fill ? std::span<const Value>(&*fill, 1) : std::span<const Value>());
  if (fill) node.kernel = kernels().element(TileOp::kCopy, node.compute_type, 1);
  node.index = place_of(std::move(access));
  return add(node);
}

TileBuilder::Value TileBuilder::constant(ComputeType compute_type, double value) {
  Node node = make_node(Kind::kElement, compute_type, Extent::kConstant, {});
  node.is_constant = true;
  node.number = value;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& other = nodes_[i];
    if (other.is_constant && other.compute_type == compute_type &&
        std::bit_cast<std::uint64_t>(other.number) == std::bit_cast<std::uint64_t>(value)) {
      return Value{i};
    }
  }
  nodes_.push_back(node);
  return Value{static_cast<std::uint32_t>(nodes_.size() - 1)};
}

TileBuilder::Value TileBuilder::integer(std::int64_t value) {
  return constant(ComputeType::kInt, std::bit_cast<double>(value));
}

std::optional<TileBuilder::Value> TileBuilder::element(TileOp op, std::span<const Value> arguments) {
  const ComputeType compute_type = this->compute_type(arguments.back());
  Extent extent = Extent::kConstant;
  for (const Value argument : arguments) extent = std::min(extent, this->extent(argument));
  std::vector<Extent> extents;
  for (const Value argument : arguments) extents.push_back(this->extent(argument));
  const unsigned scalars = scalars_of(extents, extent);
  const ElementKernel kernel = kernels().element(op, compute_type, scalars);
  if (kernel == nullptr && scalars != 0 && extent == Extent::kTile) {
    std::vector<Value> tiles;
    for (const Value argument : arguments) tiles.push_back(expand(argument));
    return element(op, tiles);
  }
  if (kernel == nullptr) return std::nullopt;
  const bool compares = (op >= TileOp::kEqual && op <= TileOp::kGreaterEqual) || op == TileOp::kIsNan;
  const ComputeType result_lane = compares || op == TileOp::kConvertToBool ? ComputeType::kBool
                                  : op == TileOp::kConvertToFloat          ? ComputeType::kFloat
                                  : op == TileOp::kConvertToDouble         ? ComputeType::kDouble
                                  : op == TileOp::kConvertToInt            ? ComputeType::kInt
                                                                           : compute_type;
  Node result = make_node(Kind::kElement, result_lane, extent, arguments);
  result.op = op;
  result.kernel = kernel;
  return extent == Extent::kConstant ? fold(result, arguments) : add(result);
}

/// An operation of constants, computed now.
TileBuilder::Value TileBuilder::fold(const Node& made, std::span<const Value> arguments) {
  double slots[3] = {0, 0, 0};
  for (std::size_t i = 0; i < arguments.size(); ++i) slots[i] = slot_of(node(arguments[i]));
  double out = 0;
  made.kernel(&out, &slots[0], &slots[1], &slots[2], 1);
  if (made.compute_type == ComputeType::kFloat) {
    out = std::bit_cast<float>(static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(out)));
  } else if (made.compute_type == ComputeType::kBool) {
    out = static_cast<double>(std::bit_cast<std::uint64_t>(out) & 1U);
  }
  return constant(made.compute_type, out);
}

unsigned TileBuilder::scalars_of(std::span<const Extent> arguments, Extent result) const {
  unsigned scalars = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_column = domain_.interleaved && arguments[i] == Extent::kRow;  // one for each row of a tile
    if (arguments[i] != result && !is_column) scalars |= 1U << i;
  }
  return scalars;
}

TileBuilder::Value TileBuilder::copy(Value value, Extent extent) {
  const Extent given = this->extent(value);
  Node result = make_node(Kind::kElement, compute_type(value), extent, {&value, 1});
  result.op = TileOp::kCopy;
  result.kernel = kernels().element(TileOp::kCopy, result.compute_type, scalars_of({&given, 1}, extent));
  return add(result);
}

TileBuilder::Value TileBuilder::expand(Value value) {
  return extent(value) == Extent::kTile ? value : copy(value, Extent::kTile);
}

TileBuilder::Value TileBuilder::expand_rows(Value value) {
  return extent(value) == Extent::kConstant ? copy(value, Extent::kRow) : value;
}

TileBuilder::Value TileBuilder::convert(Value value, ComputeType compute_type) {
  if (this->compute_type(value) == compute_type) return value;
  const TileOp op = compute_type == ComputeType::kFloat    ? TileOp::kConvertToFloat
                    : compute_type == ComputeType::kDouble ? TileOp::kConvertToDouble
                    : compute_type == ComputeType::kInt    ? TileOp::kConvertToInt
                                                           : TileOp::kConvertToBool;
  return *element(op, std::span(&value, 1));
}

TileBuilder::Value TileBuilder::reduce(ReduceOp op, Value value) {
  const ComputeType result_lane = compute_type(value) == ComputeType::kBool ? ComputeType::kInt : compute_type(value);
  Node result = make_node(Kind::kReduce, result_lane, Extent::kRow, {&value, 1});
  result.reduce_op = op;
  return add(result);
}

std::pair<TileBuilder::Value, TileBuilder::Value> TileBuilder::moments(Value value, double correction) {
  Node mean = make_node(Kind::kMoments, compute_type(value), Extent::kRow, {&value, 1});
  mean.number = correction;
  const Value first = add(mean);
  Node variance = mean;  // a name for what the mean's instruction gives besides
  variance.pair = static_cast<std::uint32_t>(first);
  return {first, add(variance)};
}

TileBuilder::Value TileBuilder::pick(Value value, Value columns) {
  const Value arguments[] = {value, columns};
  return add(make_node(Kind::kPick, compute_type(value), Extent::kRow, arguments));
}

TileBuilder::Value TileBuilder::scatter_add(Value value, Value columns, Value added) {
  const Value arguments[] = {value, columns, added};
  return add(make_node(Kind::kScatterAdd, compute_type(value), Extent::kTile, arguments));
}

void TileBuilder::store(Value value, std::uint32_t array, Storage storage) {
  store(value, dense_access(array, storage));
}

void TileBuilder::store(Value value, Access access) {
  Node result = make_node(Kind::kStore, compute_type(value), extent(value), {&value, 1});
  result.index = static_cast<std::uint32_t>(accesses_.size());
  accesses_.push_back(std::move(access));
  add(result);
}

void TileBuilder::column_sum(Value value, std::uint32_t array, Storage storage, double scale, std::int64_t blocks) {
  Node result = make_node(Kind::kColumnSum, compute_type(value), Extent::kTile, {&value, 1});
  result.index = static_cast<std::uint32_t>(column_sums_.size());
  column_sums_.push_back({compute_type(value), storage, static_cast<std::int32_t>(array), -1, scale, blocks});
  add(result);
}

void TileBuilder::column_moments(Value value, std::optional<std::uint32_t> mean, std::optional<std::uint32_t> variance,
                                 Storage storage, double scale, std::int64_t blocks) {
  const auto number_of = [](std::optional<std::uint32_t> array) {
    return array ? static_cast<std::int32_t>(*array) : -1;
  };
  column_sum(value, 0, storage, scale, blocks);
  Sum& sum = column_sums_.back();
  sum.array = number_of(mean);
  sum.is_moments = true;
  sum.variance = number_of(variance);
}

std::uint32_t TileBuilder::total(Value value, std::optional<std::uint32_t> array, Storage storage, double scale,
                                 std::optional<std::uint32_t> divisor) {
  Node result = make_node(Kind::kTotal, compute_type(value), extent(value), {&value, 1});
  result.index = static_cast<std::uint32_t>(totals_.size());
  totals_.push_back({compute_type(value), storage, array ? static_cast<std::int32_t>(*array) : -1,
                     divisor ? static_cast<std::int32_t>(*divisor) : -1, scale});
  add(result);
  return result.index;
}

}  // namespace thunder::executors::cpu
