#include "passes/contiguous_copies.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ir/uses.h"
#include "operators/names.h"
#include "operators/reorderings.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// A value as a permutation of another one: dimension `i` of the first is dimension `order[i]` of the second.
struct Permuted {
  ir::ValueId source = ir::kNoValue;
  std::vector<std::size_t> order;
  bool is_read_once = true;  ///< the values between the two, and the second, have no other reader
};

ir::TensorType permuted(const ir::TensorType& type, const std::vector<std::size_t>& order) {
  ir::TensorType result = type;
  for (std::size_t i = 0; i < order.size(); ++i) {
    result.sizes[i] = type.sizes[order[i]];
    result.strides[i] = type.strides[order[i]];
  }
  return result;
}

class Rewriter {
 public:
  Rewriter(const ir::Trace& trace, ir::DeviceType device, std::size_t caller_outputs, FindOperator find_operator)
      : trace_(trace),
        device_(device),
        find_operator_(find_operator),
        uses_(trace),
        aliases_(trace),
        result_(trace.empty_copy(kContiguousCopies)) {
    for (std::size_t i = 0; i < std::min(caller_outputs, trace.outputs.size()); ++i) {
      ir::for_each_value(trace.outputs[i], [&](ir::ValueId id) { given_out_.push_back(id); });
    }
  }

  ir::Trace run() {
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      if (!is_contiguous_copy(symbol) || !(add_view(symbol) || add_joined(symbol))) result_.add(symbol);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool is_contiguous_copy(const ir::BoundSymbol& symbol) const {
    const bool is_copy = symbol.op->name == operators::kClone && symbol.arguments.size() == 2 &&
                         symbol.arguments[1] == ir::Argument(ir::MemoryFormat::kContiguous);
    if (!is_copy && symbol.op->name != "aten::contiguous") return false;
    const ir::ValueId result = single_result(symbol);
    const ir::TensorType* type = trace_.tensor_type(result);
    return type != nullptr && type->device.type == device_ && is_contiguous(*type) && !ir::has_symbols(*type) &&
           type->storage_offset == ir::Dim(0) && !aliases_.is_written(result) &&
           !aliases_.is_written(value_argument(symbol, 0));
  }

  [[nodiscard]] const ir::BoundSymbol* maker(ir::ValueId id) const {
    const std::uint32_t place = uses_.maker(id);
    return place == kNoPlace ? nullptr : &trace_.symbols[place];
  }

  /// The value that the argument of a copy permutes.
  [[nodiscard]] Permuted source_of(const ir::BoundSymbol& copy) const {
    Permuted found{value_argument(copy, 0), {}};
    found.order.resize(trace_.tensor_type(found.source)->sizes.size());
    std::iota(found.order.begin(), found.order.end(), std::size_t{0});
    while (true) {
      found.is_read_once = found.is_read_once && uses_.count(found.source) == 1;
      const ir::BoundSymbol* view = maker(found.source);
      const auto inner = view == nullptr ? std::nullopt : operators::permutation_of(*view, found.order.size());
      if (!inner) return found;
      for (std::size_t& dim : found.order) dim = (*inner)[dim];
      found.source = value_argument(*view, 0);
    }
  }

  /// The value that another one has the elements of, with strides of its own.
  [[nodiscard]] ir::ValueId without_strides(ir::ValueId id) const {
    const ir::BoundSymbol* restride = maker(id);
    return restride != nullptr && restride->op->name == "thunder::restride" ? value_argument(*restride, 0)
                                                                            : ir::kNoValue;
  }

  /// Whether the caller gets the value, or memory that it lies in.
  [[nodiscard]] bool is_given_out(ir::ValueId id) const {
    return std::ranges::any_of(given_out_, [&](ir::ValueId output) { return aliases_.may_alias(output, id); });
  }

  bool add_view(const ir::BoundSymbol& copy) {
    const Permuted from = source_of(copy);
    const ir::ValueId source = without_strides(from.source);
    const ir::ValueId result = single_result(copy);
    if (source == ir::kNoValue ||
        !same_layout(permuted(*trace_.tensor_type(source), from.order), *trace_.tensor_type(result))) {
      return false;
    }
    if (aliases_.is_written(source) || is_given_out(source) || is_given_out(result)) return false;
    ir::BoundSymbol view = copy;
    view.op = find_operator_("aten::permute", "");
    view.arguments = {ir::Argument(source), list_of(from.order)};
    result_.add(std::move(view));
    return true;
  }

  bool add_joined(const ir::BoundSymbol& copy) {
    const Permuted from = source_of(copy);
    const ir::BoundSymbol* join = maker(from.source);
    const bool is_identity = std::ranges::is_sorted(from.order);
    if (join == nullptr || !from.is_read_once || is_identity || !join->op->overload.empty()) return false;
    const bool stacks = join->op->name == "aten::stack";
    const auto* parts = join->arguments[0].get<ir::ArgumentList>();
    const auto* given = join->arguments.size() < 2 ? nullptr : join->arguments[1].get<std::int64_t>();
    if ((!stacks && join->op->name != operators::kCat) || parts == nullptr) return false;
    const std::size_t dim = wrap_dim(given == nullptr ? 0 : *given, from.order.size());
    std::vector<std::size_t> order = from.order;  // becomes that of the parts
    const auto place = std::ranges::find(order, dim) - order.begin();
    if (stacks) {
      order.erase(order.begin() + place);
      for (std::size_t& each : order) each -= each > dim ? 1 : 0;
    }
    const auto fits = [&](const ir::Argument& part) {
      const auto* id = part.get<ir::ValueId>();
      return id != nullptr && trace_.tensor_type(*id)->sizes.size() == order.size() && !aliases_.is_written(*id);
    };
    if (!std::ranges::all_of(*parts, fits)) return false;
    ir::BoundSymbol joined = copy;
    joined.op = join->op;
    ir::ArgumentList list;
    for (const ir::Argument& part : *parts)
      list.emplace_back(permute(std::get<ir::ValueId>(part.content), order, copy));
    joined.arguments = {ir::Argument(std::move(list)), ir::Argument(static_cast<std::int64_t>(place))};
    result_.add(std::move(joined));
    return true;
  }

  ir::ValueId permute(ir::ValueId value, const std::vector<std::size_t>& order, const ir::BoundSymbol& for_symbol) {
    if (std::ranges::is_sorted(order)) return value;
    return ir::add_call(result_, *find_operator_("aten::permute", ""), {ir::Argument(value), list_of(order)},
                        ir::make_type(permuted(*trace_.tensor_type(value), order)), {}, for_symbol.location);
  }

  static ir::Argument list_of(const std::vector<std::size_t>& order) {
    ir::ArgumentList dims;
    for (const std::size_t dim : order) dims.emplace_back(static_cast<std::int64_t>(dim));
    return ir::Argument(std::move(dims));
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  FindOperator find_operator_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  ir::Trace result_;
  std::vector<ir::ValueId> given_out_;
};

}  // namespace

ir::Trace avoid_contiguous_copies(const ir::Trace& trace, ir::DeviceType device, std::size_t caller_outputs,
                                  ir::FindOperator find_operator) {
  return Rewriter(trace, device, caller_outputs, find_operator).run();
}

}  // namespace thunder::passes
