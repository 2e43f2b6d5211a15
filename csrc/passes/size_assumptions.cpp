#include "passes/size_assumptions.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "ir/trace_sizes.h"
#include "operators/elements.h"
#include "passes/symbol_facts.h"

namespace thunder::passes {
namespace {

bool makes_number(const ir::Condition& condition) {
  return condition.kind == ir::Condition::Kind::kEqual &&
         (condition.left.is_concrete() || condition.right.is_concrete());
}

class Assumptions {
 public:
  explicit Assumptions(const ir::Trace& trace) : trace_(trace), result_(trace), questions_(ir::traced_symbols(trace)) {}

  std::optional<ir::Trace> run() {
    for (const ir::ValueId input : trace_.inputs) assume_layout(input);
    for (const ir::BoundSymbol& symbol : trace_.symbols) {
      for_each_argument(symbol, [&](ir::ValueId id) { assume_operand(symbol, id); });
      for_each_result(symbol, [&](ir::ValueId id) { assume_layout(id); });
    }
    if (!is_changed_) return std::nullopt;
    result_.add_history(kSizeAssumptions);
    return std::move(result_);
  }

 private:
  using Question = std::function<ir::Answer()>;

  /// Makes the answer yes if conditions can, and if those decide the question or the trace needs them to be right. No
  /// symbol becomes a number: the trace would be for the size alone that it was traced with (`x[-7:]`, of seven rows).
  void assume(const Question& ask, bool is_needed) {
    const ir::Answer answer = ask();
    if (!answer.is_possible || answer.is_yes()) return;
    if (std::ranges::any_of(answer.conditions, makes_number)) {
      if (!is_needed) return;
      throw UserError(ErrorKind::kNotImplemented, "a size that was a symbol is needed as a number");
    }
    const ir::Trace before = result_;
    for (const ir::Condition& condition : answer.conditions) ir::assume(result_, condition);
    const std::vector<std::int64_t> symbols = ir::traced_symbols(result_);
    // Symbols are from two on: what divides the size that was traced may be all of it.
    const bool has_symbols = std::ranges::find(symbols, 1) == symbols.end();
    if (!has_symbols && is_needed) throw UserError(ErrorKind::kNotImplemented, "a size is needed as a number");
    questions_ = ir::SizeQuestions(symbols);
    const bool is_decided = is_needed || (has_symbols && ask().is_yes());
    if (!is_decided) result_ = before;
    questions_ = ir::SizeQuestions(ir::traced_symbols(result_));
    is_changed_ = is_changed_ || is_decided;
  }

  void assume_layout(ir::ValueId id) {
    if (result_.tensor_type(id) == nullptr) return;
    assume([&] { return questions_.is_dense(*result_.tensor_type(id)); }, /*is_needed=*/false);
    assume([&] { return questions_.is_contiguous(*result_.tensor_type(id)); }, /*is_needed=*/false);
  }

  void assume_operand(const ir::BoundSymbol& symbol, ir::ValueId operand) {
    const ir::ValueId result = single_result(symbol);
    if (result == ir::kNoValue || result_.tensor_type(result) == nullptr || result_.tensor_type(operand) == nullptr)
      return;
    const auto sizes_of = [&](ir::ValueId id) -> const ir::Dims& { return result_.tensor_type(id)->sizes; };
    if (symbol.op->view) {
      assume([&] { return questions_.are_equal(product_of(sizes_of(operand)), product_of(sizes_of(result))); },
             /*is_needed=*/false);
    } else if (operators::find_elements(*symbol.op) != nullptr) {
      const std::size_t count = sizes_of(operand).size();
      for (std::size_t i = 1; i <= count && i <= sizes_of(result).size(); ++i) {
        if (sizes_of(operand)[count - i] == ir::Dim(1)) continue;
        const auto are_equal = [&] {
          return questions_.are_equal(sizes_of(operand)[count - i], sizes_of(result)[sizes_of(result).size() - i]);
        };
        assume(are_equal, /*is_needed=*/true);
      }
    }
  }

  const ir::Trace& trace_;
  ir::Trace result_;
  ir::SizeQuestions questions_;
  bool is_changed_ = false;
};

}  // namespace

std::optional<ir::Trace> assume_sizes(const ir::Trace& trace) {
  if (ir::symbol_sources(trace).empty()) return std::nullopt;
  return Assumptions(trace).run();
}

}  // namespace thunder::passes
