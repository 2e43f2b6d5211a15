#include "dispatch/call/equal_program.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "ir/condition.h"
#include "ir/equality.h"
#include "ir/trace_sizes.h"

namespace thunder::dispatch {
namespace {

bool can_be_shared(const ir::Trace& recorded, const compile::Options& options) {
  const auto is_built_in = [](const executors::Executor* executor) { return compile::is_built_in(*executor); };
  return recorded.context()->objects.empty() && options.transforms.empty() && !options.prepack_weights &&
         std::ranges::all_of(options.executors, is_built_in);
}

/// Whether what was compiled from an equal trace is for the sizes that this one was traced with. Derivatives may have
/// added conditions (`s1` is odd), and passes equalities, by which a symbol has become an expression of another one.
bool is_for_sizes_of(const ir::Trace& recorded, const compile::Compiled& computation) {
  const std::vector<ir::SymbolSource> sources = ir::symbol_sources(recorded);
  if (sources.empty()) return true;
  std::vector<std::int64_t> symbols(sources.back().symbol + 1);
  for (const ir::SymbolSource& source : sources) {
    symbols[source.symbol] =
        recorded.tensor_type(recorded.inputs[source.input])->sizes[source.dim].hint / source.factor;
  }
  const ir::Trace compiled = computation.forward_traces().back();
  const auto is_alike = [&](const ir::Dim& made, const ir::Dim& traced) {
    return ir::evaluate(made, symbols) == traced.hint;
  };
  for (std::size_t i = 0; i < recorded.inputs.size(); ++i) {
    const ir::TensorType* made = compiled.tensor_type(compiled.inputs.at(i));
    const ir::TensorType* traced = recorded.tensor_type(recorded.inputs[i]);
    if (made == nullptr || traced == nullptr) continue;
    if (!std::ranges::equal(made->sizes, traced->sizes, is_alike)) return false;
    if (!std::ranges::equal(made->strides, traced->strides, is_alike)) return false;
  }
  const auto holds = [&](const ir::Condition& condition) { return ir::holds(condition, symbols); };
  return std::ranges::all_of(compiled.conditions, holds);
}

}  // namespace

void share_or_compile(const ir::Trace& recorded, const compile::Options& options,
                      std::span<const std::shared_ptr<const Specialization>> known, Specialization& specialization) {
  if (can_be_shared(recorded, options)) {
    specialization.fingerprint = ir::hash_value(recorded);
    for (const auto& other : known) {
      if (other->fingerprint != specialization.fingerprint || !(other->state == specialization.state)) continue;
      if (!ir::is_same(recorded, other->computation->recorded())) continue;
      if (!is_for_sizes_of(recorded, *other->computation)) continue;
      specialization.computation = other->computation;
      return;
    }
  }
  specialization.computation = compile::compile(recorded, options);
  const bool keeps_symbols = ir::symbol_sources(recorded).empty() ||
                             !ir::symbol_sources(specialization.computation->forward_traces().back()).empty();
  THUNDER_CHECK(keeps_symbols, "dispatch", "a program for many sizes was made one for the sizes of its trace");
}

}  // namespace thunder::dispatch
