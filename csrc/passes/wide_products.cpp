#include "passes/wide_products.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "ir/uses.h"
#include "operators/names.h"
#include "passes/alias_analysis.h"
#include "passes/pass.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

class Widener {
 public:
  Widener(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator)
      : trace_(trace),
        device_(device),
        wide_(find_operator("aten::mm", "dtype")),
        uses_(trace),
        aliases_(trace),
        result_(trace.empty_copy(kWideProducts)) {}

  ir::Trace run() {
    std::vector<std::uint32_t> cast_of(trace_.symbols.size(), kNoPlace);  // product -> the cast that it becomes
    std::vector<bool> is_dropped(trace_.symbols.size(), false);
    for (std::uint32_t i = 0; wide_ != nullptr && i < trace_.symbols.size(); ++i) {
      cast_of[i] = only_cast(trace_.symbols[i]);
      if (cast_of[i] != kNoPlace) is_dropped[cast_of[i]] = true;
    }
    for (std::uint32_t i = 0; i < trace_.symbols.size(); ++i) {
      if (is_dropped[i]) continue;
      ir::BoundSymbol symbol = trace_.symbols[i];
      if (cast_of[i] != kNoPlace) {
        symbol.op = wide_;
        symbol.arguments.emplace_back(ir::Dtype::kFloat32);
        symbol.results = trace_.symbols[cast_of[i]].results;
      }
      result_.add(std::move(symbol));
    }
    return std::move(result_);
  }

 private:
  /// The cast to float32, for the caller, that alone reads a product; kNoPlace: there is none. A cast that others read
  /// is part of their fusion, which reads fewer bytes of it.
  [[nodiscard]] std::uint32_t only_cast(const ir::BoundSymbol& product) const {
    if (product.op->name != "aten::mm" || !product.op->overload.empty()) return kNoPlace;
    const ir::ValueId value = single_result(product);
    const ir::TensorType* type = trace_.tensor_type(value);
    const bool is_narrow = type != nullptr && ir::is_half(type->dtype) && type->device.type == device_;
    if (!is_narrow || uses_.count(value) != 1 || uses_.is_output(value) || aliases_.is_written(value)) return kNoPlace;
    const std::uint32_t reader = uses_.readers(value).front();
    const ir::BoundSymbol& cast = trace_.symbols[reader];
    const ir::TensorType* wide = result_type(cast, trace_);
    const bool casts = cast.op->name == operators::kCast && wide != nullptr && wide->dtype == ir::Dtype::kFloat32 &&
                       wide->device == type->device && wide->sizes == type->sizes && wide->strides == type->strides;
    return casts && is_only_given_out(single_result(cast)) && is_contiguous(*wide) ? reader : kNoPlace;
  }

  /// Whether the caller gets the value, or views of it, and nobody computes with it. The gradients of weights that were
  /// joined are rows of one matrix. Rows that are added to it, those of an embedding, are in its memory in the end.
  [[nodiscard]] bool is_only_given_out(ir::ValueId id) const {
    if (id == ir::kNoValue) return false;
    const auto gives_out = [&](std::uint32_t reader) {
      const ir::BoundSymbol& view = trace_.symbols[reader];
      bool gives = operators::is_view(*view.op) || adds_rows_to(id, view);
      for_each_result(view, [&](ir::ValueId result) { gives = gives && is_only_given_out(result); });
      return gives;
    };
    return (uses_.is_output(id) || !uses_.readers(id).empty()) && std::ranges::all_of(uses_.readers(id), gives_out);
  }

  [[nodiscard]] bool adds_rows_to(ir::ValueId table, const ir::BoundSymbol& symbol) const {
    return symbol.op->name == "aten::index_put" && value_argument(symbol, 0) == table && uses_.count(table) == 1;
  }

  const ir::Trace& trace_;
  ir::DeviceType device_;
  const ir::Operator* wide_;
  ir::Uses uses_;
  AliasAnalysis aliases_;
  ir::Trace result_;
};

}  // namespace

ir::Trace widen_products(const ir::Trace& trace, ir::DeviceType device, FindOperator find_operator) {
  return Widener(trace, device, find_operator).run();
}

}  // namespace thunder::passes
