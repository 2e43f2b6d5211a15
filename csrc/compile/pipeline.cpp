#include "compile/pipeline.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "compile/computation_steps.h"
#include "compile/execution_steps.h"
#include "compile/gpu_steps.h"
#include "compile/saving_steps.h"
#include "compile/steps.h"
#include "fusion/batches.h"
#include "fusion/buffer_assignment.h"
#include "fusion/partition.h"
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
#include "passes/rematerialization.h"
#include "passes/rotations.h"
#include "passes/size_assumptions.h"
#include "passes/wide_products.h"
#include "passes/written_gelus.h"
#include "transforms/channels_last.h"
#include "transforms/patch_convolutions.h"

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

constexpr passes::Pass kBufferAssignment{fusion::kBufferAssignment, &assign_buffers};

// The steps from a recorded computation to programs. A backward for some of the cotangents takes its steps of the first
// list, reads what the second one chose, and takes its steps of the third.

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
    Step(GpuStep{Part::kForward, passes::kCountedDropouts, &passes::count_dropouts}),
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
    Step(GpuStep{Part::kForward, passes::kRotations, &passes::fuse_rotations}),
    Step(GpuStep{Part::kBackward, passes::kRotations, &passes::fuse_rotations}),
    Step(GpuStep{Part::kForward, passes::kConvolutionBiases, &passes::split_convolution_biases}),
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
    Step(GpuStep{Part::kBackward, passes::kWideProducts, &passes::widen_products}),
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

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  const auto add = [&](const char* name) {
    if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
  };
  for (const Step& step : all_steps()) {
    if (const auto* trace_step = std::get_if<TraceStep>(&step)) add(trace_step->pass->name);
    if (const auto* of_line = std::get_if<LineStep>(&step); of_line != nullptr && of_line->optional) add(of_line->name);
    if (const auto* gpu_step = std::get_if<GpuStep>(&step)) add(gpu_step->name);
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
