#include "passes/in_place.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

/// The operator that computes the same into memory that it is given.
struct InPlaceForm {
  const ir::Operator* op = nullptr;  ///< null: there is none
  bool is_out = false;               ///< the memory is one more argument, at the end; else it is the first one
  std::size_t candidates = 1;        ///< which of the first arguments may give their memory
};

bool is_in_place_form(const ir::Operator& op, const ir::Operator& candidate) {
  if (candidate.parameters.size() != op.parameters.size() || candidate.results.size() != 1 || candidate.view)
    return false;
  for (std::size_t i = 0; i < op.parameters.size(); ++i) {
    if (candidate.parameters[i].type != op.parameters[i].type || candidate.parameters[i].mutated != (i == 0))
      return false;
  }
  return true;
}

InPlaceForm find_form(const ir::Operator& op, FindOperator find_operator) {
  if (op.results.size() != 1 || op.view || op.parameters.empty() || operators::has_fact(op, operators::Fact::kResizes))
    return {};
  if (const auto form = operators::out_form(op)) {
    const ir::Operator* out = find_operator(op.name, form->overload);
    const bool fits = out != nullptr && out->parameters.size() == op.parameters.size() + 1;
    return {fits ? out : nullptr, true, form->candidates};
  }
  const ir::Operator* in_place = find_operator(op.name + "_", op.overload);
  if (in_place == nullptr || !is_in_place_form(op, *in_place)) return {};
  return {in_place, false, operators::is_commutative(op) ? std::size_t{2} : std::size_t{1}};
}

class Introducer {
 public:
  Introducer(const ir::Trace& trace, FindOperator find_operator)
      : result_(trace.empty_copy(kInPlace.name)),
        aliases_(trace),
        find_operator_(find_operator),
        last_use_(aliases_.last_uses(trace)),
        bytes_(trace.value_count(), 0) {
    for (const ir::BoundSymbol& symbol : trace.symbols) {
      // The first value of a set is the whole of its memory.
      for_each_result(symbol, [&](ir::ValueId id) {
        std::int64_t& bytes = bytes_[aliases_.set_of(id)];
        if (bytes == 0) bytes = size_in_bytes(trace.tensor_type(id));
      });
    }
    for (const ir::BoundSymbol& symbol : trace.symbols) keep_arguments_until_wait(symbol);
    result_.symbols = trace.symbols;
  }

  ir::Trace run() {
    for (std::size_t i = 0; i < result_.symbols.size(); ++i) rewrite(result_.symbols[i], i);
    return std::move(result_);
  }

 private:
  /// An asynchronous operation uses its arguments as long as its results are used, which the wait for it returns.
  void keep_arguments_until_wait(const ir::BoundSymbol& symbol) {
    if (!operators::has_fact(*symbol.op, operators::Fact::kAsynchronous)) return;
    std::uint32_t last = 0;
    for_each_result(symbol, [&](ir::ValueId id) { last = std::max(last, last_use_[aliases_.set_of(id)]); });
    for_each_argument(symbol, [&](ir::ValueId id) {
      last_use_[aliases_.set_of(id)] = std::max(last_use_[aliases_.set_of(id)], last);
    });
  }

  void rewrite(ir::BoundSymbol& symbol, std::size_t position) {
    const ir::ValueId result = single_result(symbol);
    if (result == ir::kNoValue || !is_pure(symbol) || aliases_.is_written(result)) return;
    const ir::TensorType* type = result_.tensor_type(result);
    if (size_in_bytes(type) < kInPlaceBytes || !is_dense(*type)) return;
    const auto [entry, is_new] = forms_.try_emplace(symbol.op);
    if (is_new) entry->second = find_form(*symbol.op, find_operator_);
    const InPlaceForm& form = entry->second;
    if (form.op == nullptr) return;
    for (std::size_t i = 0; i < form.candidates; ++i) {
      if (!gives_memory(symbol, i, *type, position)) continue;
      if (i != 0 && !form.is_out && !may_swap(symbol)) continue;
      write_into(symbol, i, form);
      return;
    }
  }

  /// Whether argument `i` dies here, alone in memory that is just right for the result.
  [[nodiscard]] bool gives_memory(const ir::BoundSymbol& symbol, std::size_t i, const ir::TensorType& type,
                                  std::size_t position) const {
    const ir::ValueId target = value_argument(symbol, i);
    const ir::TensorType* target_type = target == ir::kNoValue ? nullptr : result_.tensor_type(target);
    if (target_type == nullptr || !same_layout(*target_type, type)) return false;
    const std::uint32_t set = aliases_.set_of(target);
    if (!aliases_.is_own_memory(target) || last_use_[set] != position || bytes_[set] != size_in_bytes(&type))
      return false;
    std::size_t uses = 0;
    for_each_argument(symbol, [&](ir::ValueId id) { uses += aliases_.set_of(id) == set ? 1 : 0; });
    return uses == 1;
  }

  /// `a + b` is `b + a` unless the second one is scaled.
  static bool may_swap(const ir::BoundSymbol& symbol) {
    return symbol.arguments.size() == 2 || symbol.arguments[2] == ir::Argument(1);
  }

  void write_into(ir::BoundSymbol& symbol, std::size_t i, const InPlaceForm& form) {
    const ir::ValueId target = value_argument(symbol, i);
    const ir::ValueId result = single_result(symbol);
    symbol.op = form.op;
    if (form.is_out) {
      symbol.arguments.emplace_back(target);
    } else if (i != 0) {
      std::swap(symbol.arguments[0], symbol.arguments[i]);
    }
    const std::uint32_t last_use = last_use_[aliases_.set_of(result)];
    const std::int64_t bytes = bytes_[aliases_.set_of(result)];
    aliases_.join(target, result);
    last_use_[aliases_.set_of(result)] = last_use;
    bytes_[aliases_.set_of(result)] = bytes;
  }

  ir::Trace result_;
  AliasAnalysis aliases_;
  FindOperator find_operator_;
  std::vector<std::uint32_t> last_use_;  ///< by alias set
  std::vector<std::int64_t> bytes_;      ///< by alias set
  std::unordered_map<const ir::Operator*, InPlaceForm> forms_;
};

}  // namespace

ir::Trace introduce_in_place(const ir::Trace& trace, FindOperator find_operator) {
  return Introducer(trace, find_operator).run();
}

}  // namespace thunder::passes
