#include "executors/cuda/batch.h"

#include <utility>

#include "executors/api/operands.h"
#include "fusion/batch_members.h"
#include "fusion/region.h"
#include "ir/symbol_values.h"
#include "ir/trace_sizes.h"

namespace thunder::executors::cuda {

Batch::Batch(const ir::BoundSymbol& batch, const ir::Trace& trace, const fusion::Target& target, Engine& engine,
             bool waits)
    : engine_(engine),
      symbols_(ir::symbols_of(fusion::region_of(batch, trace))),
      input_count_(ir::distinct_values(batch.arguments).size()) {
  for (fusion::BatchMember& member : fusion::members_of(batch)) {
    members_.push_back({Fusion::of(*member.kernel, trace, target, engine, {.waits = waits, .is_batched = true}),
                        std::move(member.inputs), member.result_count});
  }
}

std::vector<std::shared_ptr<const Fusion>> Batch::fusions() const {
  std::vector<std::shared_ptr<const Fusion>> fusions;
  for (const Member& member : members_) fusions.push_back(member.fusion);
  return fusions;
}

std::vector<Batch::Running> Batch::prepare(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const {
  std::vector<Running> all;
  all.reserve(members_.size());
  for (const Member& member : members_) {
    Running& running = all.emplace_back();
    for (const std::size_t input : member.inputs) running.inputs.push_back(inputs[input]);
    const std::vector<std::uint32_t>& own = member.fusion->symbols();
    if (!own.empty()) running.symbols.resize(own.back() + 1, 0);
    for (const std::uint32_t symbol : own) running.symbols[symbol] = symbols[symbol];
    running.run = member.fusion->prepare(running.symbols, running.inputs.data());
  }
  return all;
}

/// Launches those of one module together, in order of the first of each.
void Batch::launch(std::vector<Running>& running) const {
  for (auto first = running.begin(); first != running.end(); ++first) {
    if (first->run == nullptr || first->is_launched) continue;
    std::vector<const Fusion::Run*> together;
    std::vector<Running*> taken;
    for (auto next = first; next != running.end() && together.size() < first->run->source().capacity; ++next) {
      const bool fits = next->run != nullptr && !next->is_launched && &next->run->module == &first->run->module &&
                        next->run->device() == first->run->device();
      if (!fits) continue;
      together.push_back(next->run.get());
      taken.push_back(&*next);
    }
    const bool is_done = Fusion::launch(together, engine_);
    for (Running* each : taken) {
      each->is_launched = true;
      if (!is_done) {
        each->run.reset();
      } else {
        Fusion::hold(*each->run, each->inputs.data(), engine_);
      }
    }
  }
}

void Batch::run(std::vector<c10::IValue>& stack) const {
  const std::vector<std::int64_t> symbols = take_symbols(stack, symbols_);
  std::vector<Running> running = prepare(symbols, stack.data() + (stack.size() - input_count_));
  launch(running);
  stack.resize(stack.size() - input_count_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (running[i].run == nullptr) {
      members_[i].fusion->run_operations(running[i].symbols, running[i].inputs);
      for (c10::IValue& result : running[i].inputs) stack.push_back(std::move(result));
      continue;
    }
    Fusion::finish(*running[i].run, running[i].inputs.data());
    for (at::Tensor& result : running[i].run->results) stack.emplace_back(std::move(result));
  }
}

}  // namespace thunder::executors::cuda
