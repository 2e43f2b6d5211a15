#include "passes/constant_folding.h"

#include <algorithm>
#include <utility>

#include "ir/extraction.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

bool takes_values(const ir::BoundSymbol& symbol) {
  bool any = false;
  for_each_argument(symbol, [&](ir::ValueId) { any = true; });
  return any;
}

class Folder {
 public:
  explicit Folder(const ir::Trace& trace)
      : trace_(trace),
        aliases_(trace),
        is_known_(trace.value_count(), false),
        is_read_(trace.value_count(), false),
        part_(ir::empty_part(trace, kConstantFolding)) {
    for (const ir::BoundSymbol& symbol : trace.symbols) {
      const bool known = is_constant(symbol) || is_computable(symbol);
      is_folded_.push_back(known && takes_values(symbol));
      if (known) {
        part_.add(symbol);
        for_each_result(symbol, [&](ir::ValueId id) { is_known_[ir::index_of(id)] = true; });
      } else {
        for_each_argument(symbol, [&](ir::ValueId id) { is_read_[ir::index_of(id)] = true; });
      }
    }
    for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
      for_each_kept(i, [&](ir::ValueId id) { part_.outputs.emplace_back(id); });
    }
  }

  ir::Trace run(const RunConstants& run, const ir::Operator& constant) {
    std::vector<ir::ObjectConstant> constants;
    if (!part_.outputs.empty()) constants = run(part_);
    ir::Trace result = trace_.empty_copy(kConstantFolding);
    std::size_t next = 0;
    for (std::size_t i = 0; i < trace_.symbols.size(); ++i) {
      if (!is_folded_[i]) result.add(trace_.symbols[i]);
      for_each_kept(i, [&](ir::ValueId id) {
        ir::BoundSymbol symbol;
        symbol.op = &constant;
        symbol.arguments = {ir::Argument(constants.at(next++))};
        symbol.results = {ir::Argument(id)};
        symbol.location = trace_.symbols[i].location;
        symbol.comment = "folded: " + trace_.symbols[i].op->name;
        result.add(std::move(symbol));
      });
    }
    return result;
  }

 private:
  /// Visits the results of symbol `i` that become constants when it is folded.
  template <typename Visitor>
  void for_each_kept(std::size_t i, Visitor&& visit) const {
    if (!is_folded_[i]) return;
    for_each_result(trace_.symbols[i], [&](ir::ValueId id) {
      if (is_read_[ir::index_of(id)]) visit(id);
    });
  }

  [[nodiscard]] bool is_computable(const ir::BoundSymbol& symbol) const {
    if (!is_pure(symbol) || !symbol.op->name.starts_with("aten::")) return false;
    // A run has the sizes.
    const auto has_sizes = [](const ir::Argument& argument) { return ir::has_symbols(argument); };
    if (std::ranges::any_of(symbol.arguments, has_sizes)) return false;
    bool computable = true;
    for_each_argument(symbol, [&](ir::ValueId id) { computable = computable && is_known_[ir::index_of(id)]; });
    for_each_result(symbol, [&](ir::ValueId id) {
      const ir::TensorType* type = trace_.tensor_type(id);
      computable = computable && type != nullptr && !type->requires_grad && size_in_bytes(type) <= kFoldedBytes;
      computable = computable && !aliases_.touches_output(id) && !aliases_.is_written(id);
    });
    return computable;
  }

  const ir::Trace& trace_;
  AliasAnalysis aliases_;
  std::vector<bool> is_known_;   ///< value: follows from constants
  std::vector<bool> is_read_;    ///< value: by a symbol that stays
  std::vector<bool> is_folded_;  ///< by symbol
  ir::Trace part_;               ///< symbols that read constants only; gives the results that others read
};

}  // namespace

ir::Trace fold_constants(const ir::Trace& trace, const RunConstants& run, FindOperator find_operator) {
  return Folder(trace).run(run, *find_operator(kConstantName, ""));
}

}  // namespace thunder::passes
