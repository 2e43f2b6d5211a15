#include "passes/layout_cleanup.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operators/reorderings.h"
#include "passes/symbol_facts.h"
#include "passes/value_rewriter.h"

namespace thunder::passes {
namespace {

using Permutation = std::vector<std::size_t>;

/// The range of a dtype: an integer of so many bits besides the sign, or a float of so many significant and exponent
/// bits.
struct Range {
  int digits = 0;
  int exponent = 0;  ///< 0: an integer
  bool is_signed = false;
};

std::optional<Range> range_of(ir::Dtype dtype) {
  switch (dtype) {
    case ir::Dtype::kBool:
      return Range{1, 0, false};
    case ir::Dtype::kUint8:
      return Range{8, 0, false};
    case ir::Dtype::kInt8:
      return Range{7, 0, true};
    case ir::Dtype::kInt16:
      return Range{15, 0, true};
    case ir::Dtype::kInt32:
      return Range{31, 0, true};
    case ir::Dtype::kInt64:
      return Range{63, 0, true};
    case ir::Dtype::kFloat16:
      return Range{11, 5, true};
    case ir::Dtype::kBfloat16:
      return Range{8, 8, true};
    case ir::Dtype::kFloat32:
      return Range{24, 8, true};
    case ir::Dtype::kFloat64:
      return Range{53, 11, true};
    case ir::Dtype::kUint16:
    case ir::Dtype::kUint32:
    case ir::Dtype::kUint64:
    case ir::Dtype::kComplex32:
    case ir::Dtype::kComplex64:
    case ir::Dtype::kComplex128:
    case ir::Dtype::kFloat8E4m3fn:
    case ir::Dtype::kFloat8E5m2:
    case ir::Dtype::kFloat8E4m3fnuz:
    case ir::Dtype::kFloat8E5m2fnuz:
    case ir::Dtype::kFloat8E8m0fnu:
      return std::nullopt;
  }
  return std::nullopt;
}

const ir::TensorType* argument_type(const ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::ValueId argument = value_argument(symbol, 0);
  return argument == ir::kNoValue ? nullptr : rewriter.type(argument);
}

/// The first argument, where the result is the same tensor.
ir::ValueId unchanged(const ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::TensorType* from = argument_type(symbol, rewriter);
  const ir::TensorType* to = rewriter.type(single_result(symbol));
  return from != nullptr && to != nullptr && same_layout(*from, *to) ? value_argument(symbol, 0) : ir::kNoValue;
}

ir::ValueId identity(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) { return unchanged(symbol, rewriter); }

// --- views that keep the order of the elements

bool keeps_order(const ir::Operator& op) {
  return operators::is_reshape(op) || op.name == "aten::unsqueeze" || op.name == "aten::squeeze";
}

/// Whether a reshape of `origin` gives the tensor that reshapes of reshapes of it give: where one of them copies, the
/// result may lie in memory otherwise than one that is a view.
bool gives_alike(ir::ValueId origin, const ir::TensorType& type, const ValueRewriter& rewriter) {
  const ir::TensorType* from = rewriter.type(origin);
  return from != nullptr && operators::strides_of_reshape(*from, type.sizes) == type.strides;
}

ir::ValueId reshape(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::TensorType* type = rewriter.type(single_result(symbol));
  if (!keeps_order(*symbol.op) || type == nullptr) return ir::kNoValue;
  bool only_views = symbol.op->name == "aten::view";
  bool joined_by_views = only_views;
  bool only_reshapes = operators::is_reshape(*symbol.op);
  ir::ValueId origin = value_argument(symbol, 0);
  ir::ValueId joined = origin;  ///< the furthest value behind reshapes alone that gives the same
  while (origin != ir::kNoValue) {
    const ir::TensorType* from = rewriter.type(origin);
    if (from != nullptr && same_layout(*from, *type)) return origin;
    const ir::BoundSymbol* maker = rewriter.maker(origin);
    if (maker == nullptr || !keeps_order(*maker->op)) break;
    only_reshapes = only_reshapes && operators::is_reshape(*maker->op);
    only_views = only_views && maker->op->name == "aten::view";
    origin = value_argument(*maker, 0);
    // A copy is not to be made later than it was where a write lies in between.
    if (!only_views && !rewriter.is_constant_memory(origin)) continue;
    if (!only_reshapes || !gives_alike(origin, *type, rewriter)) continue;
    joined = origin;
    joined_by_views = only_views;
  }
  if (joined == value_argument(symbol, 0)) return ir::kNoValue;
  const ir::Operator* op = joined_by_views ? symbol.op : rewriter.find_operator("aten::reshape", "");
  if (op == nullptr) return ir::kNoValue;
  symbol.op = op;
  symbol.arguments[0] = joined;
  return ir::kNoValue;
}

// --- permutations

std::optional<Permutation> permutation_of(const ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::TensorType* type = argument_type(symbol, rewriter);
  return type == nullptr ? std::nullopt : operators::permutation_of(symbol, type->sizes.size());
}

ir::ValueId permute(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const auto outer = permutation_of(symbol, rewriter);
  if (!outer) return ir::kNoValue;
  if (const ir::ValueId same = unchanged(symbol, rewriter); same != ir::kNoValue) return same;
  const ir::BoundSymbol* maker = rewriter.maker(value_argument(symbol, 0));
  const auto inner = maker == nullptr ? std::nullopt : permutation_of(*maker, rewriter);
  if (!inner) return ir::kNoValue;
  const ir::ValueId origin = value_argument(*maker, 0);
  ir::ArgumentList dims;
  bool is_identity = true;
  for (std::size_t i = 0; i < outer->size(); ++i) {
    dims.emplace_back((*inner)[(*outer)[i]]);
    is_identity = is_identity && (*inner)[(*outer)[i]] == i;
  }
  if (is_identity) return origin;
  const ir::Operator* op = rewriter.find_operator("aten::permute", "");
  if (op == nullptr) return ir::kNoValue;
  symbol.op = op;
  symbol.arguments = {origin, std::move(dims)};
  return ir::kNoValue;
}

ir::ValueId expand(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  if (const ir::ValueId same = unchanged(symbol, rewriter); same != ir::kNoValue) return same;
  const ir::ValueId argument = value_argument(symbol, 0);
  const ir::BoundSymbol* maker = argument == ir::kNoValue ? nullptr : rewriter.maker(argument);
  if (maker == nullptr || maker->op != symbol.op) return ir::kNoValue;
  ir::ArgumentList sizes;
  for (const ir::Dim& size : rewriter.type(single_result(symbol))->sizes) sizes.emplace_back(size);
  symbol.arguments[0] = maker->arguments[0];
  symbol.arguments[1] = std::move(sizes);
  return ir::kNoValue;
}

// --- casts

/// A copy in another dtype and nothing else.
bool only_casts(const ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  const ir::Operator& op = *symbol.op;
  if (op.name != "aten::_to_copy" && (op.name != "aten::to" || op.overload != "dtype")) return false;
  const ir::TensorType* from = argument_type(symbol, rewriter);
  const ir::TensorType* to = rewriter.type(single_result(symbol));
  if (from == nullptr || to == nullptr) return false;
  return from->sizes == to->sizes && from->strides == to->strides && from->device == to->device &&
         from->layout == to->layout;
}

/// `to(…, copy=True)`: in memory of its own, though the schema says that it may be a view.
bool asks_for_copy(const ir::BoundSymbol& symbol) {
  const auto& parameters = symbol.op->parameters;
  for (std::size_t i = 0; i < symbol.arguments.size() && i < parameters.size(); ++i) {
    const auto* value = symbol.arguments[i].get<bool>();
    if (parameters[i].name == "copy" && value != nullptr) return *value;
  }
  return false;
}

ir::ValueId cast(ir::BoundSymbol& symbol, const ValueRewriter& rewriter) {
  if (asks_for_copy(symbol)) return ir::kNoValue;
  if (const ir::ValueId same = unchanged(symbol, rewriter); same != ir::kNoValue) return same;
  if (!only_casts(symbol, rewriter)) return ir::kNoValue;
  const ir::BoundSymbol* maker = rewriter.maker(value_argument(symbol, 0));
  if (maker == nullptr || !only_casts(*maker, rewriter)) return ir::kNoValue;
  const ir::ValueId origin = value_argument(*maker, 0);
  const ir::Dtype first = rewriter.type(origin)->dtype;
  const ir::Dtype last = rewriter.type(single_result(symbol))->dtype;
  if (!rewriter.is_constant_memory(origin) || !cast_is_exact(first, argument_type(symbol, rewriter)->dtype)) {
    return ir::kNoValue;
  }
  if (first == last) return origin;
  // The integer that an out-of-range number becomes depends on the dtype that it is converted from.
  const bool to_integer = !ir::is_floating_point(last) && last != ir::Dtype::kBool;
  const bool through_float = ir::is_floating_point(argument_type(symbol, rewriter)->dtype);
  if (ir::is_complex(last) || (to_integer && through_float && !cast_is_exact(first, last))) return ir::kNoValue;
  symbol.arguments[0] = origin;
  return ir::kNoValue;
}

ValueRewriter::Rule layout_rule(const ir::Operator& op) {
  static const std::unordered_map<std::string_view, ValueRewriter::Rule> kRules = {
      {"aten::view", &reshape},         {"aten::reshape", &reshape},
      {"aten::_unsafe_view", &reshape}, {"aten::unsqueeze", &reshape},
      {"aten::squeeze", &reshape},      {"aten::t", &permute},
      {"aten::transpose", &permute},    {"aten::permute", &permute},
      {"aten::expand", &expand},        {"aten::slice", &identity},
      {"aten::alias", &identity},       {"aten::detach", &identity},
      {"aten::lift_fresh", &identity},  {"aten::clone", &identity},
      {"aten::_to_copy", &cast},        {"aten::to", &cast},
  };
  const auto found = kRules.find(op.name);
  return found == kRules.end() ? nullptr : found->second;
}

}  // namespace

bool cast_is_exact(ir::Dtype from, ir::Dtype to) {
  const std::optional<Range> source = range_of(from);
  const std::optional<Range> target = range_of(to);
  if (!source || !target) return false;
  if (source->exponent > target->exponent || source->digits > target->digits) return false;
  return target->is_signed || !source->is_signed;
}

ir::Trace clean_up_layout(const ir::Trace& trace, FindOperator find_operator) {
  return ValueRewriter(trace, kLayoutCleanup.name, find_operator).run(&layout_rule);
}

}  // namespace thunder::passes
