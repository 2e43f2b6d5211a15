#include "dispatch/call/compile_computation.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "dispatch/call/equal_program.h"
#include "dispatch/segments/segment_traces.h"
#include "ir/trace_sizes.h"
#include "operators/facts.h"
#include "operators/names.h"
#include "tracer/data_dependence.h"
#include "tracer/python_function.h"

namespace thunder::dispatch {
namespace {

/// Whether a program is long enough for handing the GIL over to pay, or waits for threads that may need it: those of a
/// process group give back tensors of Python.
bool should_release_gil(const ir::Trace& trace) {
  constexpr std::size_t kShortProgram = 16;
  return trace.symbols.size() > kShortProgram || std::ranges::any_of(trace.symbols, [](const auto& symbol) {
           return operators::communicates(*symbol.op) || symbol.op->name == operators::kGatherShards;
         });
}

/// Where effects are deferred, running statistics are written by copies.
void keep_versions_of_statistics(const ir::Trace& trace, runtime::Versions& versions) {
  for (const std::uint32_t input : inputs_with_statistics(trace)) {
    const auto is_noted = [&](const auto& noted) { return noted.first == input; };
    if (std::ranges::none_of(versions.inputs, is_noted)) versions.inputs.emplace_back(input, 0);
  }
}

void note_versions(const ir::Trace& trace, const runtime::Versions& versions, SegmentPath& path) {
  for (std::size_t i = 0; i < versions.outputs.size(); ++i) {
    const auto* id = trace.outputs[i].get<ir::ValueId>();
    if (id != nullptr && versions.outputs[i] != 0) path.versions.emplace(*id, versions.outputs[i]);
  }
  for (const auto& [input, count] : versions.inputs) path.writes.emplace(trace.inputs[input], count);
}

}  // namespace

void compile_computation(const ir::Trace& trace, std::span<const std::shared_ptr<const Specialization>> known,
                         const compile::Options& options, Specialization& specialization) {
  specialization.releases_gil = should_release_gil(trace);
  specialization.random = bridge::random_sources(trace, &operators::may_draw);
  const auto stands_alone = [](const ir::BoundSymbol& symbol) { return tracer::stands_alone(*symbol.op); };
  specialization.checks_values = std::ranges::any_of(trace.symbols, tracer::looks_at_data);
  const auto alone = std::ranges::find_if(trace.symbols, stands_alone);
  if (specialization.checks_values || alone != trace.symbols.end()) {
    keep_versions_of_statistics(trace, specialization.plan.versions);
    std::vector<const SegmentPath*> others;
    for (const auto& other : known) {
      if (!other->path.empty()) others.push_back(&other->path);
    }
    specialization.path = make_path(trace, others, options);
    if (!specialization.path.empty()) {
      note_versions(trace, specialization.plan.versions, specialization.path);
      specialization.computation = traces_of(trace, specialization.path);
      return;
    }
  }
  if (!ir::found_symbols(trace).empty()) {
    throw UserError(ErrorKind::kNotImplemented, "thunder.jit: a size that follows from data is needed as a number");
  }
  if (alone != trace.symbols.end()) {
    throw UserError(ErrorKind::kNotImplemented,
                    "thunder.jit: not supported inside a jitted function: a backward that runs as Python in a program "
                    "that makes random generators");
  }
  if (!specialization.checks_values) specialization.statistics = statistics_before_errors(trace);
  share_or_compile(specialization.checks_values ? defer_effects(trace) : trace, options, known, specialization);
}

}  // namespace thunder::dispatch
