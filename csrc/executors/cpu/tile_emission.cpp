#include "executors/cpu/tile_emission.h"

#include <utility>
#include <vector>

#include "executors/tiles/tile_builder.h"

namespace thunder::executors::cpu {
namespace {

using fusion::KernelNode;
using operators::ElementOp;
using Value = TileBuilder::Value;

TileOp tile_op(ElementOp op) {
  switch (op) {
#define THUNDER_TILE_OP(name, spelling, arity) \
  case ElementOp::name:                        \
    return TileOp::name;
    THUNDER_FORALL_ELEMENT_FUNCTIONS(THUNDER_TILE_OP) THUNDER_FORALL_ELEMENT_SYMBOLS(THUNDER_TILE_OP)
#undef THUNDER_TILE_OP
  }
  return TileOp::kCopy;
}

ComputeType compute_type_of(fusion::ComputeType type) {
  switch (type) {
    case fusion::ComputeType::kFloat:
      return ComputeType::kFloat;
    case fusion::ComputeType::kDouble:
      return ComputeType::kDouble;
    case fusion::ComputeType::kInteger:
      return ComputeType::kInt;
    case fusion::ComputeType::kBool:
      return ComputeType::kBool;
  }
  return ComputeType::kFloat;
}

/// The operation that rounds to a narrower dtype.
TileOp rounding_to(ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kBfloat16:
      return TileOp::kToBfloat16;
    case ir::Dtype::kFloat16:
      return TileOp::kToHalf;
    case ir::Dtype::kInt32:
      return TileOp::kToInt32;
    case ir::Dtype::kInt16:
      return TileOp::kToInt16;
    case ir::Dtype::kInt8:
      return TileOp::kToInt8;
    case ir::Dtype::kUint8:
      return TileOp::kToUint8;
    default:
      return TileOp::kCopy;
  }
}

Extent tile_extent(fusion::Extent extent) {
  switch (extent) {
    case fusion::Extent::kElements:
      return Extent::kTile;
    case fusion::Extent::kRows:
      return Extent::kRow;
    case fusion::Extent::kConstant:
      return Extent::kConstant;
  }
  return Extent::kTile;
}

ReduceOp reduce_op(fusion::Reduction reduction) {
  switch (reduction) {
    case fusion::Reduction::kSum:
      return ReduceOp::kSum;
    case fusion::Reduction::kMax:
      return ReduceOp::kMax;
    case fusion::Reduction::kMin:
      return ReduceOp::kMin;
  }
  return ReduceOp::kSum;
}

Interval interval_of(const fusion::BasicInterval<std::int64_t>& interval) {
  return {interval.begin, interval.end, interval.stride};
}

Access tile_access(const fusion::BasicAccess<std::int64_t>& from) {
  Access access;
  access.array = from.array;
  access.storage = *storage_of(from.dtype);
  access.outer_strides = from.outer_strides;
  access.inner_stride = from.inner_stride;
  access.extent = tile_extent(from.extent);
  access.run = from.run;
  access.run_stride = from.run_stride;
  access.table_rows = from.table_rows;
  access.table_stride = from.table_stride;
  for (const fusion::BasicPart<std::int64_t>& part : from.parts) {
    access.parts.push_back({part.array, {}, interval_of(part.runs), interval_of(part.columns)});
    for (const fusion::BasicInterval<std::int64_t>& outer : part.outer)
      access.parts.back().outer.push_back(interval_of(outer));
  }
  return access;
}

TileDomain tile_domain(const fusion::BasicDomain<std::int64_t>& domain) {
  return {domain.outer, domain.columns, domain.splits_columns, domain.run, domain.blocks, domain.interleaved};
}

/// Builds the steps of a kernel in their order.
class Emitter {
 public:
  explicit Emitter(const fusion::SizedKernel& kernel) : kernel_(kernel), builder_(tile_domain(kernel.domain)) {}

  std::optional<TileProgram> emit() {
    for (const KernelNode& node : kernel_.nodes) {
      const std::optional<Value> value = emit(node);
      if (!value) return std::nullopt;
      values_.push_back(*value);
    }
    for (const auto& [input, output] : kernel_.overwritten) builder_.overwrite(input, output);
    return builder_.build();
  }

 private:
  using Kind = KernelNode::Kind;
  static constexpr Value kNothing{0xffffffffU};

  [[nodiscard]] Value operand(const KernelNode& node, std::size_t i = 0) const { return values_[node.operands[i]]; }
  [[nodiscard]] Access access(const KernelNode& node) const { return tile_access(kernel_.accesses[node.index]); }

  std::optional<Value> apply(TileOp op, const KernelNode& node) {
    std::vector<Value> operands;
    for (std::size_t i = 0; i < node.operand_count; ++i) operands.push_back(operand(node, i));
    return builder_.element(op, operands);
  }

  /// nullopt: no kernel has the operation. Steps that give no value give kNothing.
  std::optional<Value> emit(const KernelNode& node) {
    switch (node.kind) {
      case Kind::kLoad:
        return builder_.load(access(node));
      case Kind::kGather:
        return builder_.gather(access(node), operand(node));
      case Kind::kAssemble:
        return builder_.assemble(access(node),
                                 node.operand_count == 0 ? std::nullopt : std::make_optional(operand(node)));
      case Kind::kConstant:
        return node.type == fusion::ComputeType::kInteger ? builder_.integer(node.integer)
                                                          : builder_.constant(compute_type_of(node.type), node.number);
      case Kind::kRatio:
        return std::nullopt;  // a sized kernel has none
      case Kind::kElement:
        return apply(tile_op(node.op), node);
      case Kind::kRound:
        return apply(rounding_to(node.dtype), node);
      case Kind::kConvert:
        return builder_.convert(operand(node), compute_type_of(node.type));
      case Kind::kExpand:
        return node.extent == fusion::Extent::kRows ? builder_.expand_rows(operand(node))
                                                    : builder_.expand(operand(node));
      case Kind::kReduce:
        return builder_.reduce(reduce_op(node.reduction), operand(node));
      case Kind::kMean:
        return builder_.moments(operand(node), node.number).first;
      case Kind::kVariance:
        return builder_.moments(operand(node, 1), node.number).second;
      case Kind::kPick:
        return builder_.pick(operand(node), operand(node, 1));
      case Kind::kRandom:
        return std::nullopt;  // no fusion of this target has one
      case Kind::kScatterAdd:
        return builder_.scatter_add(operand(node), operand(node, 1), operand(node, 2));
      case Kind::kStore:
        emit_store(node);
        return kNothing;
      case Kind::kColumnSum:
      case Kind::kColumnMoments:
      case Kind::kTotal:
        emit_sum(node);
        return kNothing;
    }
    return std::nullopt;
  }

  void emit_store(const KernelNode& node) {
    const fusion::BasicAccess<std::int64_t>& to = kernel_.accesses[node.index];
    if (to.is_dense) {
      builder_.store(operand(node), to.array, *storage_of(to.dtype));
    } else {
      builder_.store(operand(node), tile_access(to));
    }
  }

  void emit_sum(const KernelNode& node) {
    const auto& sum = kernel_.sums[node.index];
    const Storage storage = *storage_of(sum.dtype);
    if (node.kind == Kind::kColumnSum) {
      builder_.column_sum(operand(node), sum.array.value(), storage, sum.scale, sum.blocks);
    } else if (node.kind == Kind::kColumnMoments) {
      builder_.column_moments(operand(node), sum.array, sum.variance, storage, sum.scale, sum.blocks);
    } else {
      const auto divisor = sum.divisor ? std::make_optional(totals_.at(*sum.divisor)) : std::nullopt;
      totals_.resize(kernel_.sums.size());
      totals_[node.index] = builder_.total(operand(node), sum.array, storage, sum.scale, divisor);
    }
  }

  const fusion::SizedKernel& kernel_;
  TileBuilder builder_;
  std::vector<Value> values_;
  std::vector<std::uint32_t> totals_;  ///< by sum of the graph
};

bool accepts(const ir::TensorType& type) { return type.device.type == ir::DeviceType::kCpu; }

bool has(ElementOp op, fusion::ComputeType type) {
  return kernels().element(tile_op(op), compute_type_of(type), 0) != nullptr;
}

}  // namespace

constinit const fusion::Target kTarget{
    .accepts = &accepts,
    .has = &has,
    .least_run = 16,
    .least_moved_run = 64,  // with fewer, PyTorch is as fast
    .least_reduced_run = 64,
    .least_interleaved = 64,      // worth being moved by itself
    .longest_interleaved = 1024,  // worked on together, they stay in the second-level cache
    .least_of_functions = 8,      // below it PyTorch's softmax is as fast
    .least_block = 4,
    .least_repeated_block = 2048,  // a tile is not put together of several
};

std::optional<Storage> storage_of(ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kBool:
      return Storage::kBool;
    case ir::Dtype::kUint8:
      return Storage::kUint8;
    case ir::Dtype::kInt8:
      return Storage::kInt8;
    case ir::Dtype::kInt16:
      return Storage::kInt16;
    case ir::Dtype::kInt32:
      return Storage::kInt32;
    case ir::Dtype::kInt64:
      return Storage::kInt64;
    case ir::Dtype::kFloat16:
      return Storage::kHalf;
    case ir::Dtype::kBfloat16:
      return Storage::kBfloat16;
    case ir::Dtype::kFloat32:
      return Storage::kFloat;
    case ir::Dtype::kFloat64:
      return Storage::kDouble;
    default:
      return std::nullopt;
  }
}

std::optional<TileProgram> emit_tiles(const fusion::SizedKernel& kernel) { return Emitter(kernel).emit(); }

}  // namespace thunder::executors::cpu
