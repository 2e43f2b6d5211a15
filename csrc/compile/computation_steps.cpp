#include "compile/computation_steps.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <utility>

#include "bridge/constant.h"
#include "compile/attention_kernels.h"
#include "compile/execution.h"
#include "compile/overwritten_values.h"
#include "ir/trace_sizes.h"
#include "operators/facts.h"
#include "passes/alias_analysis.h"
#include "passes/constant_folding.h"
#include "passes/constant_masks.h"
#include "passes/grouped_keys.h"
#include "passes/merged_linears.h"
#include "passes/size_assumptions.h"
#include "passes/written_gelus.h"
#include "tracer/custom_gradient.h"
#include "transforms/channels_last.h"
#include "transforms/patch_convolutions.h"
#include "transforms/symbolic_grad.h"

namespace thunder::compile {
namespace {

/// The outputs of a trace without inputs.
std::vector<at::Tensor> run_constants(const ir::Trace& constants, const Compilation& compilation) {
  const runtime::Program program = lower_directly(constants, compilation.executors);
  std::vector<at::Tensor> results(program.output_count());
  program.run(std::span<at::Tensor>(), std::span(results));
  return results;
}

passes::MaskContent content_of(const at::Tensor& mask) {
  if (mask.numel() == 0) return passes::MaskContent::kOther;
  if (mask.all().item<bool>()) return passes::MaskContent::kAll;
  const at::Tensor triangle = at::ones({mask.size(-2), mask.size(-1)}, mask.options()).tril();
  const bool is_triangle = mask.size(-2) == mask.size(-1) && mask.eq(triangle).all().item<bool>();
  return is_triangle ? passes::MaskContent::kLowerTriangle : passes::MaskContent::kOther;
}

bool outputs_share_memory(const ir::Trace& trace) {
  const passes::AliasAnalysis aliases(trace);
  std::set<std::uint32_t> sets;
  bool share = false;
  for (const ir::Argument& output : trace.outputs) {
    ir::for_each_value(output, [&](ir::ValueId id) {
      share = share || (aliases.is_own_memory(id) && !sets.insert(aliases.set_of(id)).second);
    });
  }
  return share;
}

/// Whether a computation may be recorded again, with other layouts.
bool may_change_layouts(const Compilation& compilation) {
  const ir::Trace& computation = compilation.forward.history.last();
  // A tensor with another layout is a copy, which shares no memory.
  return !compilation.hands_out_numbers && !outputs_share_memory(computation) &&
         ir::symbol_sources(computation).empty();
}

}  // namespace

void assume_sizes(Compilation& compilation, const PassRunner& runner) {
  auto trace = passes::assume_sizes(compilation.forward.history.last());
  if (trace) runner.keep(passes::kSizeAssumptions, *std::move(trace), compilation.forward.history);
}

void fold_constants(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& trace = compilation.forward.history.last();
  const auto run = [&](const ir::Trace& constants) {
    std::vector<ir::ObjectConstant> objects;
    for (at::Tensor& result : run_constants(constants, compilation))
      objects.push_back(bridge::add_tensor(*trace.context(), std::move(result)));
    return objects;
  };
  runner.keep(passes::kConstantFolding, passes::fold_constants(trace, run, &find_operator),
              compilation.forward.history);
}

void simplify_masks(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& trace = compilation.forward.history.last();
  const auto is_attention = [](const ir::BoundSymbol& symbol) {
    return operators::has_fact(*symbol.op, operators::Fact::kIsAttention);
  };
  if (std::ranges::none_of(trace.symbols, is_attention)) return;
  // The content of a mask at some sizes says nothing of others.
  const auto read = [&](const ir::Trace& mask) {
    if (!ir::symbols_of(mask).empty()) return passes::MaskContent::kOther;
    return content_of(run_constants(mask, compilation).at(0));
  };
  runner.keep(passes::kConstantMasks, passes::simplify_masks(trace, read, &find_operator), compilation.forward.history);
}

void group_keys(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& trace = compilation.forward.history.last();
  const auto takes = [&](const passes::GroupedAttention& attention) { return takes_groups(trace, attention); };
  runner.keep(passes::kGroupedKeys, passes::group_keys(trace, ir::DeviceType::kCuda, takes),
              compilation.forward.history);
}

void make_patches(Compilation& compilation, const PassRunner& runner) {
  if (!fuses_on_gpu(compilation) || !may_change_layouts(compilation)) return;
  auto trace = transforms::patch_convolutions(compilation.forward.history.last(), ir::DeviceType::kCuda);
  if (trace) runner.keep(transforms::kPatchConvolutions, *std::move(trace), compilation.forward.history);
}

void keep_channels_last(Compilation& compilation, const PassRunner& runner) {
  if (!may_change_layouts(compilation)) return;
  const ir::Trace& computation = compilation.forward.history.last();
  auto trace = transforms::channels_last(computation, fuses_on_gpu(compilation));
  if (trace) runner.keep(transforms::kChannelsLast, *std::move(trace), compilation.forward.history);
}

void recognize_gelus(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& trace = compilation.forward.history.last();
  if (compilation.hands_out_numbers || !fuses_on_gpu(compilation, trace)) return;
  runner.keep(passes::kWrittenGelus, passes::recognize_gelus(trace, &find_operator), compilation.forward.history);
}

void merge_linears(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.fuses || compilation.hands_out_numbers) return;
  const auto looks_at_traces = [](const auto& transform) {
    return transform->post_optimization != nullptr || transform->check_collectives != nullptr;
  };
  if (std::ranges::any_of(compilation.transforms, looks_at_traces)) return;
  const auto looks_for_layers = [](const executors::Executor* executor) {
    const bool fuses_operations = executor->fuse != nullptr && executor->target == nullptr && !is_built_in(*executor);
    return executor->replaces != nullptr || fuses_operations;
  };
  if (std::ranges::any_of(compilation.executors, looks_for_layers)) return;
  const auto merges = [](const executors::Executor* executor) {
    return executor->fuse != nullptr && executor->target != nullptr && executor->target->merges != nullptr;
  };
  const auto executor = std::ranges::find_if(compilation.executors, merges);
  if (executor == compilation.executors.end()) return;
  const fusion::Target& target = *(*executor)->target;
  const ir::Trace& computation = compilation.forward.history.last();
  auto trace = passes::merge_linears(computation, *target.merges, target.accepts, &find_operator);
  if (trace && runs_by_equal_kernels(computation, *trace))
    runner.keep(passes::kMergedLinears, *std::move(trace), compilation.forward.history);
}

void differentiate(Compilation& compilation, const PassRunner& runner) {
  const ir::Trace& computation = compilation.forward.history.last();
  compilation.computation_index = compilation.forward.history.size() - 1;
  if (!transforms::needs_backward(computation)) {
    auto plain = tracer::without_custom_gradients(computation);
    if (plain) runner.keep("drop_custom_gradients", *std::move(plain), compilation.forward.history);
    return;
  }
  transforms::ForwardBackward gradient = ir::symbol_sources(computation).empty()
                                             ? transforms::forward_and_backward(computation)
                                             : transforms::symbolic_forward_and_backward(computation);
  gradient.forward = copy_overwritten_saved_values(gradient.forward, gradient.output_count);
  runner.keep("forward_and_backward", std::move(gradient.forward), compilation.forward.history);
  runner.keep("forward_and_backward", std::move(gradient.backward), compilation.backward.history);
  compilation.gradient = std::move(gradient);
}

}  // namespace thunder::compile
