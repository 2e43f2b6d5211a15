#include "compile/pipeline.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/parallel.h"
#include "bridge/constant.h"
#include "compile/attention_kernels.h"
#include "compile/collectives.h"
#include "compile/execution.h"
#include "compile/overwritten_values.h"
#include "compile/saved_values.h"
#include "fusion/batches.h"
#include "fusion/buffer_assignment.h"
#include "fusion/operations.h"
#include "fusion/partition.h"
#include "fusion/target.h"
#include "ir/trace_sizes.h"
#include "passes/alias_analysis.h"
#include "passes/aligned_matmuls.h"
#include "passes/common_subexpression_elimination.h"
#include "passes/constant_folding.h"
#include "passes/constant_masks.h"
#include "passes/contiguous_copies.h"
#include "passes/convolution_biases.h"
#include "passes/counted_dropouts.h"
#include "passes/dead_code_elimination.h"
#include "passes/depthwise_gradients.h"
#include "passes/grouped_attention.h"
#include "passes/grouped_keys.h"
#include "passes/layout_cleanup.h"
#include "passes/log_softmax_statistics.h"
#include "passes/memory_order.h"
#include "passes/merged_linears.h"
#include "passes/pass.h"
#include "passes/rematerialization.h"
#include "passes/rotations.h"
#include "passes/size_assumptions.h"
#include "passes/wide_products.h"
#include "passes/written_gelus.h"
#include "tracer/custom_gradient.h"
#include "transforms/channels_last.h"
#include "transforms/patch_convolutions.h"
#include "transforms/symbolic_grad.h"

namespace thunder::passes {

// Passes that nobody but the pipeline calls: each is a source of its name.
extern const Pass kAlgebraicSimplification;
extern const Pass kColumnSums;
extern const Pass kEmbeddingGradients;
extern const Pass kGradientBuckets;
extern const Pass kGradientMarks;
extern const Pass kGradientScatters;
extern const Pass kLateWrites;
extern const Pass kParameterGathers;
extern const Pass kSliceGradients;

}  // namespace thunder::passes

namespace thunder::compile {
namespace {

void assume_sizes(Compilation& compilation, const PassRunner& runner) {
  auto trace = passes::assume_sizes(compilation.forward.history.last());
  if (trace) runner.keep(passes::kSizeAssumptions, *std::move(trace), compilation.forward.history);
}

/// The outputs of a trace without inputs.
std::vector<at::Tensor> run_constants(const ir::Trace& constants, const Compilation& compilation) {
  const runtime::Program program = lower_directly(constants, compilation.executors);
  std::vector<at::Tensor> results(program.output_count());
  program.run(std::span<at::Tensor>(), std::span(results));
  return results;
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

passes::MaskContent content_of(const at::Tensor& mask) {
  if (mask.numel() == 0) return passes::MaskContent::kOther;
  if (mask.all().item<bool>()) return passes::MaskContent::kAll;
  const at::Tensor triangle = at::ones({mask.size(-2), mask.size(-1)}, mask.options()).tril();
  const bool is_triangle = mask.size(-2) == mask.size(-1) && mask.eq(triangle).all().item<bool>();
  return is_triangle ? passes::MaskContent::kLowerTriangle : passes::MaskContent::kOther;
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

/// The target of the executor that fuses operations on a GPU; null: none does.
const fusion::Target* target_on_gpu(const Compilation& compilation) {
  ir::TensorType on_gpu;
  on_gpu.device.type = ir::DeviceType::kCuda;
  const auto fuses = [&](const executors::Executor* executor) {
    return executor->fuse != nullptr && executor->target != nullptr && executor->target->accepts(on_gpu);
  };
  const auto found = std::ranges::find_if(compilation.executors, fuses);
  return !compilation.fuses || found == compilation.executors.end() ? nullptr : (*found)->target;
}

/// Whether an executor of the compilation fuses operations on a GPU.
bool fuses_on_gpu(const Compilation& compilation) { return target_on_gpu(compilation) != nullptr; }

bool is_on_gpu(const ir::Trace& trace) {
  return std::ranges::any_of(trace.inputs, [&](ir::ValueId id) {
    const ir::TensorType* type = trace.tensor_type(id);
    return type != nullptr && type->device.type == ir::DeviceType::kCuda;
  });
}

/// Whether a computation may be recorded again, with other layouts.
bool may_change_layouts(const Compilation& compilation) {
  const ir::Trace& computation = compilation.forward.history.last();
  // A tensor with another layout is a copy, which shares no memory.
  return !compilation.hands_out_numbers && !outputs_share_memory(computation) &&
         ir::symbol_sources(computation).empty();
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
  if (compilation.hands_out_numbers || !fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kWrittenGelus, passes::recognize_gelus(trace, &find_operator), compilation.forward.history);
}

// Executors and transforms of the user look for the layers of the program, and those that let processes talk for the
// gradient of each weight.
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

void eliminate_in_forward(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  runner.keep(passes::kCommonSubexpressionElimination.name,
              passes::eliminate_common_subexpressions(line.history.last(), saved_range(compilation).begin),
              line.history);
}

void drop_saved(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.gradient) return;
  auto [forward, backward] = drop_unused_saved_values(
      compilation.forward.history.last(), compilation.backward.history.last(), compilation.gradient->output_count);
  runner.keep("drop_unused_saved_values", std::move(forward), compilation.forward.history);
  runner.keep("drop_unused_saved_values", std::move(backward), compilation.backward.history);
}

void rematerialize(Compilation& compilation, const PassRunner& runner) {
  if (!compilation.gradient || compilation.rematerialize == passes::Recompute::kNothing) return;
  auto [forward, backward] =
      passes::rematerialize(compilation.forward.history.last(), compilation.backward.history.last(),
                            {compilation.rematerialize, compilation.gradient->output_count}, &find_operator);
  runner.keep(passes::kRematerialization, std::move(forward), compilation.forward.history);
  runner.keep(passes::kRematerialization, std::move(backward), compilation.backward.history);
}

// Executors and transforms of the user run Python: one trace after the other, on the thread that compiles.
void rewrite_for_executors(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const auto rewrites = [](const executors::Executor* executor) { return executor->replaces != nullptr; };
  if (std::ranges::none_of(compilation.executors, rewrites)) return;
  TraceHistory& history = line.history;
  runner.keep("transform_for_execution", transform_for_execution(history.last(), compilation.executors), history);
  auto fused = run_fusion_passes(history.last(), compilation.executors);
  if (fused) runner.keep("fusion", *std::move(fused), history);
}

void transform_forward(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  for (const auto& transform : compilation.transforms) {
    line.before_transforms.push_back(line.history.size() - 1);
    runner.keep("transform " + transform->name,
                apply_post_optimization(*transform, line.history.last(), saved_range(compilation)), line.history);
  }
}

void transform_backward(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const SavedRange in_forward = saved_range(compilation);
  const SavedRange in_backward{0, in_forward.end - in_forward.begin};
  const TraceLine& forward = compilation.forward;
  for (std::size_t i = 0; i < compilation.transforms.size(); ++i) {
    const TraceTransform& transform = *compilation.transforms[i];
    const std::size_t given = forward.before_transforms[i];
    // It may keep, between the two, what it did to the forward.
    if (line.is_for_some) static_cast<void>(apply_post_optimization(transform, forward.history.at(given), in_forward));
    runner.keep("transform " + transform.name, apply_post_optimization(transform, line.history.last(), in_backward),
                line.history);
    require_matching_saved(transform, forward.history.at(given + 1), in_forward, line.history.last(), in_backward);
  }
}

void group_attention(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (compilation.gradient || !fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kGroupedAttention, passes::group_attention(trace, ir::DeviceType::kCuda, &find_operator),
              line.history);
}

/// How many outputs the caller gets; all of those of a backward.
std::size_t given_out(const Compilation& compilation, const TraceLine& line) {
  return &line == &compilation.forward ? saved_range(compilation).begin : line.history.last().outputs.size();
}

void avoid_copies(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(
      passes::kContiguousCopies,
      passes::avoid_contiguous_copies(trace, ir::DeviceType::kCuda, given_out(compilation, line), &find_operator),
      line.history);
}

void fuse_rotations(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kRotations, passes::fuse_rotations(trace, ir::DeviceType::kCuda, &find_operator), line.history);
}

void split_biases(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kConvolutionBiases,
              passes::split_convolution_biases(trace, ir::DeviceType::kCuda, &find_operator), line.history);
}

void convolve_gradients(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  const fusion::Target* target = target_on_gpu(compilation);
  if (target == nullptr || target->convolves_depthwise_gradients == nullptr || !is_on_gpu(trace)) return;
  runner.keep(passes::kDepthwiseGradients,
              passes::convolve_depthwise_gradients(trace, target->convolves_depthwise_gradients, &find_operator),
              line.history);
}

void align_matmuls(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kAlignedMatmuls,
              passes::align_matmuls(trace, ir::DeviceType::kCuda, given_out(compilation, line), &find_operator),
              line.history);
}

void widen_products(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kWideProducts, passes::widen_products(trace, ir::DeviceType::kCuda, &find_operator),
              line.history);
}

void count_dropouts(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(passes::kCountedDropouts, passes::count_dropouts(trace, ir::DeviceType::kCuda, &find_operator),
              line.history);
}

void save_statistics(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const ir::Trace& trace = line.history.last();
  if (!compilation.gradient || !fuses_on_gpu(compilation) || !is_on_gpu(trace)) return;
  runner.keep(
      passes::kLogSoftmaxStatistics,
      passes::save_log_softmax_statistics(trace, ir::DeviceType::kCuda, saved_range(compilation).begin, &find_operator),
      line.history);
}

void fuse(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  if (!compilation.fuses) return;
  auto fused = run_built_in_fusion_passes(line.history.last(), compilation.executors);
  if (fused) runner.keep(fusion::kFusionPartition, *std::move(fused), line.history);
}

ir::Trace assign_buffers(const ir::Trace& trace, passes::FindOperator find_operator) {
  const auto target = [](std::string_view executor) { return find_executor(executor)->target; };
  return fusion::assign_buffers(trace, target, find_operator);
}
constexpr passes::Pass kBufferAssignment{fusion::kBufferAssignment, &assign_buffers};

/// The trace with batches of kernels of each executor that launches several at once.
void batch_kernels(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  for (std::size_t i = 0; compilation.fuses && i < compilation.executors.size(); ++i) {
    const executors::Executor& executor = *compilation.executors[i];
    if (executor.target == nullptr || executor.target->largest_in_batch == 0) continue;
    const auto before = std::span(compilation.executors).first(i);
    const fusion::BatchModel model{
        .executor = executor.name,
        .target = executor.target,
        .role = [&](const ir::BoundSymbol& symbol,
                    const ir::Trace& trace) { return fusion::role_of(symbol, trace, *executor.target); },
        .is_claimed =
            [before](const ir::BoundSymbol& symbol, const ir::Trace& trace) {
              return std::ranges::any_of(before, [&](const auto* each) { return each->claim(*each, symbol, trace); });
            },
        .inputs_die = &line != &compilation.forward,
    };
    auto batched = fusion::batch_kernels(line.history.last(), model);
    if (batched) runner.keep(fusion::kKernelBatches, *std::move(batched), line.history);
  }
}

void drop_unread(const Compilation& compilation, TraceLine& line, const PassRunner& runner) {
  const SavedRange saved = saved_range(compilation);
  ir::Trace trace = drop_unread_inputs(line.history.last(), saved.end - saved.begin, line.reads);
  if (std::ranges::find(line.reads, false) == line.reads.end()) return;
  runner.keep("drop_unread_inputs", std::move(trace), line.history);
}

// After all passes, on the thread that compiles, since it may run Python.
void check_collectives(const Compilation& compilation, TraceLine& line, const PassRunner& /*runner*/) {
  std::string collectives;
  for (const auto& transform : compilation.transforms) {
    if (transform->check_collectives == nullptr) continue;
    if (collectives.empty()) collectives = describe_collectives(line.history.last());
    if (!collectives.empty()) transform->check_collectives(line.history.last().kind(), collectives);
  }
}

void claim(const Compilation& compilation, TraceLine& line, const PassRunner& /*runner*/) {
  line.claims = executors::claim_trace(line.history.last(), compilation.executors);
}

void lower(const Compilation& compilation, TraceLine& line, const PassRunner& /*runner*/) {
  line.program = executors::lower_trace(line.history.last(), std::exchange(line.claims, {}), compilation.waits);
}

/// Which line a step works on.
enum class Part { kComputation, kForward, kBackward };

struct TraceStep {
  Part part;
  const passes::Pass* pass;
};
struct LineStep {
  Part part;
  const char* name;
  void (*run)(const Compilation& compilation, TraceLine& line, const PassRunner& runner);
  bool optional = false;  ///< may be switched off
};
struct JointStep {
  const char* name;
  void (*run)(Compilation& compilation, const PassRunner& runner);
  bool optional = false;
};
using Step = std::variant<TraceStep, LineStep, JointStep>;

// The steps from a recorded computation to programs. Neighbouring TraceSteps of kForward and kBackward run at once.
// A backward for some of the cotangents takes its steps of the first list, reads what the second one chose, and takes
// its steps of the third.

constexpr std::array kDerivationSteps{
    Step(JointStep{passes::kSizeAssumptions, &assume_sizes}),
    Step(JointStep{passes::kConstantFolding, &fold_constants, true}),
    // after constant_folding: because masks that are constants by then need not be computed.
    Step(JointStep{passes::kConstantMasks, &simplify_masks, true}),
    // after constant_masks: because attention with a mask is left alone.
    Step(JointStep{passes::kGroupedKeys, &group_keys, true}),
    // after constant_folding, constant_masks and grouped_keys: because what only these needed is dead.
    Step(TraceStep{Part::kComputation, &passes::kDeadCodeElimination}),
    // after dead_code_elimination: because what is dead would be recorded again. Before channels_last: because what is
    // no convolution any more needs no layout of its own.
    Step(JointStep{transforms::kPatchConvolutions, &make_patches, true}),
    // after dead_code_elimination: because what is dead would be recorded again.
    Step(JointStep{transforms::kChannelsLast, &keep_channels_last, true}),
    // before forward_and_backward: because the derivative of the formula is another one.
    Step(JointStep{passes::kWrittenGelus, &recognize_gelus, true}),
    // after channels_last: because that records the program again. After dead_code_elimination: because a layer that
    // nobody needs would be merged with others. Before forward_and_backward: because the derivative of one layer is
    // what gains most.
    Step(JointStep{passes::kMergedLinears, &merge_linears, true}),
    // after merged_linears and written_gelus: because nobody needs the casts of single weights, or the formula.
    Step(TraceStep{Part::kComputation, &passes::kDeadCodeElimination}),
    // after channels_last: because derivatives then come in the same layout. After dead_code_elimination: because what
    // is dead would be differentiated, and saved.
    Step(JointStep{"forward_and_backward", &differentiate}),
    // after forward_and_backward: because its derivative is the one of the dropout.
    Step(LineStep{Part::kForward, passes::kCountedDropouts, &count_dropouts, true}),
    // after forward_and_backward: because that decides what is saved. Before rematerialization: because that leaves out
    // what follows from the statistics.
    Step(LineStep{Part::kForward, passes::kLogSoftmaxStatistics, &save_statistics, true}),
    // after forward_and_backward: because that reads the marks.
    Step(TraceStep{Part::kForward, &passes::kGradientMarks}),
    // after forward_and_backward: because gradients of what is left out would be added in another order, and the
    // derivatives bring arithmetic and views of their own.
    Step(TraceStep{Part::kForward, &passes::kAlgebraicSimplification}),
    Step(TraceStep{Part::kBackward, &passes::kAlgebraicSimplification}),
    Step(TraceStep{Part::kForward, &passes::kLayoutCleanup}),
    Step(TraceStep{Part::kBackward, &passes::kLayoutCleanup}),
    // after layout_cleanup: because what it joins becomes equal. After forward_and_backward: because two equal casts
    // that are one would add their cotangents in the lower precision.
    Step(LineStep{Part::kForward, passes::kCommonSubexpressionElimination.name, &eliminate_in_forward, true}),
    Step(TraceStep{Part::kBackward, &passes::kCommonSubexpressionElimination}),
    // after layout_cleanup: because that joins permutations. Before drop_unused_saved_values and rematerialization:
    // because a view is not saved.
    Step(LineStep{Part::kForward, passes::kContiguousCopies, &avoid_copies, true}),
    Step(LineStep{Part::kBackward, passes::kContiguousCopies, &avoid_copies, true}),
    Step(TraceStep{Part::kBackward, &passes::kDeadCodeElimination}),
};

constexpr std::array kSavingSteps{
    // after backward's dead_code_elimination: because only what is left tells which saved values are read.
    Step(JointStep{"drop_unused_saved_values", &drop_saved, true}),
    // after drop_unused_saved_values: because the cut must not reckon with what nobody reads.
    Step(JointStep{passes::kRematerialization, &rematerialize, true}),
};

constexpr std::array kExecutionSteps{
    // after rematerialization: because what is recomputed meets views and expressions that the backward has anyway.
    Step(TraceStep{Part::kBackward, &passes::kLayoutCleanup}),
    Step(TraceStep{Part::kBackward, &passes::kCommonSubexpressionElimination}),
    Step(TraceStep{Part::kBackward, &passes::kDeadCodeElimination}),
    Step(LineStep{Part::kForward, passes::kGroupedAttention, &group_attention, true}),
    // after rematerialization: because what only saved values needed is dead now. After grouped_attention: because it
    // leaves what repeated keys.
    Step(TraceStep{Part::kForward, &passes::kDeadCodeElimination}),
    // after the last dead_code_elimination: because executors are not asked for what nobody reads. After
    // forward_and_backward: because derivatives hold operations that executors serve too.
    Step(LineStep{Part::kForward, "transform_for_execution", &rewrite_for_executors}),
    Step(LineStep{Part::kBackward, "transform_for_execution", &rewrite_for_executors}),
    // after transform_for_execution: because the user's last word is on what runs.
    Step(LineStep{Part::kForward, "transforms", &transform_forward}),
    Step(LineStep{Part::kBackward, "transforms", &transform_backward}),
    // after transforms: because they go by the positions of saved values.
    Step(LineStep{Part::kBackward, "drop_unread_inputs", &drop_unread}),
    // after transforms: because what they look for is operations, not fusions of them.
    Step(TraceStep{Part::kBackward, &passes::kEmbeddingGradients}),
    // after transforms: because they look for gradients, not for parts of buckets. Before fusion_partition: because
    // nothing fuses across a collective.
    Step(TraceStep{Part::kBackward, &passes::kGradientScatters}),
    // after gradient_scatters: because shards of gradients are averaged, too.
    Step(TraceStep{Part::kBackward, &passes::kGradientBuckets}),
    // after rematerialization: because that decides which parameters are gathered again.
    Step(TraceStep{Part::kForward, &passes::kParameterGathers}),
    Step(TraceStep{Part::kBackward, &passes::kParameterGathers}),
    // before fusion_partition: because that is what it is for.
    Step(TraceStep{Part::kForward, &passes::kSliceGradients}),
    Step(TraceStep{Part::kBackward, &passes::kSliceGradients}),
    // after transforms: because they look for gradients. Before fusion_partition: because sums fuse with what they sum.
    Step(TraceStep{Part::kBackward, &passes::kColumnSums}),
    // before fusion_partition: because that is what they are for.
    Step(LineStep{Part::kForward, passes::kRotations, &fuse_rotations, true}),
    Step(LineStep{Part::kBackward, passes::kRotations, &fuse_rotations, true}),
    Step(LineStep{Part::kForward, passes::kConvolutionBiases, &split_biases, true}),
    // after transforms: because they look for gradients.
    Step(LineStep{Part::kBackward, passes::kDepthwiseGradients, &convolve_gradients, true}),
    // after transforms: because strides of saved values change.
    Step(LineStep{Part::kForward, passes::kAlignedMatmuls, &align_matmuls, true}),
    Step(LineStep{Part::kBackward, passes::kAlignedMatmuls, &align_matmuls, true}),
    // after aligned_matmuls: because views of what has got zeros behind it would count as readers of the shorter one.
    Step(TraceStep{Part::kForward, &passes::kDeadCodeElimination}),
    Step(TraceStep{Part::kBackward, &passes::kDeadCodeElimination}),
    // after aligned_matmuls: because what that rewrites is no plain product any more. Before fusion_partition: because
    // that takes the casts.
    Step(LineStep{Part::kBackward, passes::kWideProducts, &widen_products, true}),
    // after forward_and_backward: because rules bring writes. Before fusion_partition: because it moves nothing across
    // one.
    Step(TraceStep{Part::kForward, &passes::kLateWrites}),
    Step(LineStep{Part::kForward, fusion::kFusionPartition, &fuse, true}),
    Step(LineStep{Part::kBackward, fusion::kFusionPartition, &fuse, true}),
    // after transforms: because what nobody reads has no place, and because what they insert may read any value, which
    // buffer_assignment would have overwritten.
    Step(TraceStep{Part::kForward, &passes::kForwardMemoryOrder}),
    Step(TraceStep{Part::kBackward, &passes::kBackwardMemoryOrder}),
    // after memory_order: because the order says what dies where. After all others: because none but dead code
    // elimination moves operations across writes.
    Step(TraceStep{Part::kForward, &kBufferAssignment}),
    Step(TraceStep{Part::kBackward, &kBufferAssignment}),
    // after buffer_assignment: because what a kernel writes to, and what it writes over, is known then.
    Step(LineStep{Part::kForward, fusion::kKernelBatches, &batch_kernels, true}),
    Step(LineStep{Part::kBackward, fusion::kKernelBatches, &batch_kernels, true}),
    // after every rewrite: because it compares what will run.
    Step(LineStep{Part::kForward, "check_collectives", &check_collectives}),
    Step(LineStep{Part::kBackward, "check_collectives", &check_collectives}),
    // after every rewrite: because claims are by position in the final traces.
    Step(LineStep{Part::kForward, "claim", &claim}),
    Step(LineStep{Part::kBackward, "claim", &claim}),
    Step(LineStep{Part::kForward, "lower", &lower}),
    Step(LineStep{Part::kBackward, "lower", &lower}),
};

/// All steps, in order.
std::vector<Step> all_steps() {
  std::vector<Step> steps;
  for (const std::span<const Step> list : {std::span<const Step>(kDerivationSteps), std::span<const Step>(kSavingSteps),
                                           std::span<const Step>(kExecutionSteps)}) {
    steps.insert(steps.end(), list.begin(), list.end());
  }
  return steps;
}

/// The lines that steps are run for; null: not for that one.
struct Lines {
  TraceLine* forward = nullptr;
  TraceLine* backward = nullptr;
  [[nodiscard]] TraceLine* of(Part part) const {
    TraceLine* line = part == Part::kBackward ? backward : forward;
    return line == nullptr || line->history.empty() ? nullptr : line;
  }
};

/// Runs the passes at the front of `steps`; returns how many.
std::size_t run_trace_steps(std::span<const Step> steps, const Lines& lines, const PassRunner& runner) {
  std::vector<passes::Pass> forward;
  std::vector<passes::Pass> backward;
  std::size_t count = 0;
  for (; count < steps.size() && std::holds_alternative<TraceStep>(steps[count]); ++count) {
    const auto& [part, pass] = std::get<TraceStep>(steps[count]);
    if (lines.of(part) != nullptr) (part == Part::kBackward ? backward : forward).push_back(*pass);
  }
  TaskGraph tasks;
  const auto add = [&](TraceLine* line, const std::vector<passes::Pass>& passes) {
    if (passes.empty()) return;
    tasks.add([&runner, line, &passes] {
      for (const passes::Pass& pass : passes) runner.run(pass, line->history);
    });
  };
  add(lines.forward, forward);
  add(lines.backward, backward);
  tasks.run();
  return count;
}

void run_line_step(const LineStep& step, const Compilation& compilation, const Lines& lines, const PassRunner& runner) {
  TraceLine* line = lines.of(step.part);
  if (line == nullptr || !runner.is_enabled(step.name)) return;
  runner.run_step(step.name, line->history, [&] { step.run(compilation, *line, runner); });
}

/// Without `joint_compilation`, steps for both lines are left out.
void run_steps(std::span<const Step> steps, const Compilation& compilation, const Lines& lines,
               const PassRunner& runner, Compilation* joint_compilation = nullptr) {
  std::size_t next = 0;
  while (next < steps.size()) {
    next += run_trace_steps(steps.subspan(next), lines, runner);
    if (next == steps.size()) break;
    const Step& step = steps[next++];
    if (const auto* line_step = std::get_if<LineStep>(&step)) run_line_step(*line_step, compilation, lines, runner);
    const auto* joint = std::get_if<JointStep>(&step);
    if (joint == nullptr || joint_compilation == nullptr || !runner.is_enabled(joint->name)) continue;
    runner.run_step(joint->name, joint_compilation->forward.history, [&] { joint->run(*joint_compilation, runner); });
  }
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  const auto add = [&](const char* name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const Step& step : all_steps()) {
    if (const auto* trace_step = std::get_if<TraceStep>(&step)) add(trace_step->pass->name);
    if (const auto* of_line = std::get_if<LineStep>(&step); of_line != nullptr && of_line->optional) add(of_line->name);
    if (const auto* joint = std::get_if<JointStep>(&step); joint != nullptr && joint->optional) add(joint->name);
  }
  return names;
}

std::vector<passes::Pass> trace_passes() {
  std::vector<passes::Pass> rows;
  for (const Step& step : all_steps()) {
    const auto* trace_step = std::get_if<TraceStep>(&step);
    if (trace_step == nullptr) continue;
    const auto is_same = [&](const passes::Pass& row) { return std::string_view(row.name) == trace_step->pass->name; };
    if (std::ranges::none_of(rows, is_same)) rows.push_back(*trace_step->pass);
  }
  return rows;
}

SavedRange saved_range(const Compilation& compilation) {
  const std::size_t outputs = compilation.forward.history.output_count();
  return {compilation.gradient ? compilation.gradient->output_count : outputs, outputs};
}

void run_pipeline(Compilation& compilation, const PassRunner& runner) {
  const Lines both{&compilation.forward, &compilation.backward};
  run_steps(kDerivationSteps, compilation, both, runner, &compilation);
  compilation.uncut_index = compilation.forward.history.size() - 1;
  run_steps(kSavingSteps, compilation, both, runner, &compilation);
  compilation.cut_index = compilation.forward.history.size() - 1;
  run_steps(kExecutionSteps, compilation, {&compilation.forward, nullptr}, runner);
}

TraceLine derive_backward(const Compilation& compilation, const runtime::CotangentSet& cotangents,
                          const PassRunner& runner) {
  TraceLine line;
  line.is_for_some = true;
  runner.keep("forward_and_backward", transforms::backward_for(*compilation.gradient, cotangents), line.history);
  run_steps(kDerivationSteps, compilation, {nullptr, &line}, runner);
  const SavedRange saved = saved_range(compilation);
  const ir::Trace uncut = compilation.forward.history.at(compilation.uncut_index);
  const ir::Trace cut = compilation.forward.history.at(compilation.cut_index);
  runner.keep(passes::kRematerialization,
              passes::read_saved_values(uncut, line.history.last(), saved.begin,
                                        std::span(cut.outputs).subspan(saved.begin), &find_operator),
              line.history);
  return line;
}

void finish_backward(const Compilation& compilation, TraceLine& backward, const PassRunner& runner) {
  run_steps(kExecutionSteps, compilation, {nullptr, &backward}, runner);
}

}  // namespace thunder::compile
