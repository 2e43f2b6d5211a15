// Pairs of operations that become one: what the first gives is read by the second alone, and never leaves the
// processor.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "executors/tiles/tile_builder.h"

namespace thunder::executors::cpu {
namespace {

/// `second`, whose argument `position` is what `first` gives, as one operation of the first one's arguments and the
/// other one of the second.
std::optional<TileOp> pair_of(TileOp first, TileOp second, int position) {
  const bool multiplies = second == TileOp::kMultiply;
  switch (first) {
    case TileOp::kMultiply:
      if (multiplies) return TileOp::kMultiplyMultiply;
      if (second == TileOp::kAdd) return TileOp::kMultiplyAdd;
      if (second == TileOp::kSubtract) return position == 0 ? TileOp::kMultiplySubtract : TileOp::kSubtractProduct;
      return std::nullopt;
    case TileOp::kAdd:
      if (multiplies) return TileOp::kAddMultiply;
      return second == TileOp::kAdd ? std::make_optional(TileOp::kAddAdd) : std::nullopt;
    case TileOp::kSubtract:
      return multiplies ? std::make_optional(TileOp::kSubtractMultiply) : std::nullopt;
    default:
      return std::nullopt;
  }
}

/// `second` of x and of `first(x)`, as one operation of x.
std::optional<TileOp> composition_of(TileOp first, TileOp second) {
  struct Row {
    TileOp first;
    TileOp second;
    TileOp both;
  };
  constexpr Row kRows[] = {{TileOp::kSigmoid, TileOp::kMultiply, TileOp::kSilu},
                           {TileOp::kSigmoid, TileOp::kSiluSlope, TileOp::kSiluDerivative},
                           {TileOp::kNormalCdf, TileOp::kMultiply, TileOp::kGelu},
                           {TileOp::kNormalCdf, TileOp::kGeluSlope, TileOp::kGeluDerivative},
                           {TileOp::kTailOfGelu, TileOp::kGeluOfTail, TileOp::kGeluTanh},
                           {TileOp::kTailOfGelu, TileOp::kGeluTanhSlope, TileOp::kGeluTanhDerivative}};
  for (const Row& row : kRows) {
    if (row.first == first && row.second == second) return row.both;
  }
  return std::nullopt;
}

}  // namespace

struct TileBuilder::Pairs {
  Pairs(TileBuilder& owner, const Readers& readers_before)
      : builder(owner), nodes(owner.nodes_), readers(readers_before), is_gone(nodes.size(), false) {}

  TileBuilder& builder;
  std::vector<Node>& nodes;
  const Readers& readers;
  std::vector<bool> is_gone;

  void join() {
    for (Node& node : nodes) {
      if (node.is_constant) continue;
      const bool is_sum = node.kind == Kind::kReduce && node.reduce_op == ReduceOp::kSum;
      if (node.kind == Kind::kElement && node.extent == Extent::kTile) {
        compose(node) || join_element(node, 0) || join_element(node, 1);
      } else if (is_sum || (node.kind == Kind::kColumnSum && !builder.column_sums_[node.index].is_moments)) {
        join_sum(node);
      }
    }
    renumber();
  }

  /// Null: argument `position` is not what the node alone reads, at the same time.
  [[nodiscard]] const Node* only_read_by(const Node& node, int position) const {
    const std::uint32_t argument = node.arguments[position];
    if (argument == kNone || readers[argument].size() != 1) return nullptr;
    const Node& first = nodes[argument];
    const bool fits = first.kind == Kind::kElement && !first.is_constant && first.extent == Extent::kTile &&
                      first.compute_type == ComputeType::kFloat && first.phase == node.phase;
    return fits ? &first : nullptr;
  }

  bool compose(Node& node) {
    const std::uint32_t made = std::max(node.arguments[0], node.arguments[1]);  // after what it is made of
    const Node* first = made == kNone ? nullptr : only_read_by(node, made == node.arguments[0] ? 0 : 1);
    const auto op = first == nullptr ? std::nullopt : composition_of(first->op, node.op);
    if (!op || std::min(node.arguments[0], node.arguments[1]) != first->arguments[0]) return false;
    const ElementKernel kernel = kernels().element(*op, ComputeType::kFloat, 0);
    if (kernel == nullptr) return false;
    is_gone[made] = true;
    node.op = *op;
    node.kernel = kernel;
    std::ranges::copy(std::to_array({first->arguments[0], kNone, kNone}), node.arguments);
    return true;
  }

  bool join_element(Node& node, int position) {
    const Node* first = only_read_by(node, position);
    const auto op = first == nullptr ? std::nullopt : pair_of(first->op, node.op, position);
    if (!op) return false;
    const std::uint32_t arguments[] = {first->arguments[0], first->arguments[1], node.arguments[1 - position]};
    const Extent extents[] = {nodes[arguments[0]].extent, nodes[arguments[1]].extent, nodes[arguments[2]].extent};
    const unsigned scalars = builder.scalars_of(extents, Extent::kTile);
    const ElementKernel kernel = kernels().element(*op, ComputeType::kFloat, scalars);
    if (kernel == nullptr) return false;
    is_gone[node.arguments[position]] = true;
    node.op = *op;
    node.kernel = kernel;
    std::ranges::copy(arguments, node.arguments);
    return true;
  }

  /// The sum of a product.
  void join_sum(Node& node) {
    const Node* first = only_read_by(node, 0);
    if (first == nullptr || builder.domain_.interleaved) return;
    const bool is_square = first->op == TileOp::kSquare;
    if (!is_square && first->op != TileOp::kMultiply) return;
    const std::uint32_t arguments[] = {first->arguments[0], first->arguments[is_square ? 0 : 1]};
    if (!std::ranges::all_of(arguments, [&](std::uint32_t i) { return is_own_tile(nodes[i]); })) return;
    is_gone[node.arguments[0]] = true;
    std::ranges::copy(arguments, node.arguments);
  }

  /// Not one row for all of a block.
  [[nodiscard]] bool is_own_tile(const Node& node) const {
    return node.extent == Extent::kTile &&
           (node.kind != Kind::kLoad || !builder.block_stride(builder.accesses_[node.index]));
  }

  void renumber() {
    std::vector<std::uint32_t> place(nodes.size(), kNone);
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (is_gone[i]) continue;
      place[i] = count;
      nodes[count++] = nodes[i];
    }
    nodes.resize(count);
    for (Node& node : nodes) {
      for (std::uint32_t& argument : node.arguments) argument = argument == kNone ? kNone : place[argument];
      if (node.pair != kNone) node.pair = place[node.pair];
    }
  }
};

void TileBuilder::join_pairs(const Readers& readers) { Pairs(*this, readers).join(); }

}  // namespace thunder::executors::cpu
