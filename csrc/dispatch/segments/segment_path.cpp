#include "dispatch/segments/segment_path.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "operators/facts.h"
#include "tracer/data_dependence.h"
#include "tracer/numbers.h"

namespace thunder::dispatch {
namespace {

/// Compiles a segment. One that a later observation may follow from (`is_exact`) is not fused: while it was traced,
/// the observed values were computed operation by operation, and a run must compute the same bits.
std::shared_ptr<const CompiledSegment> compile_segment(Segment segment, compile::Options options, bool is_exact) {
  options.fuse = options.fuse && !is_exact && segment.observation.check == nullptr;
  // A later segment writes to memory that this one reads: a backward that recomputed from it would read other values.
  if (segment.reads_overwritten) options.rematerialize = passes::Recompute::kNothing;
  std::shared_ptr<compile::Compiled> program;
  if (!segment.is_bare && !segment.trace.symbols.empty()) program = compile::compile(segment.trace, options);
  const bool has_symbols = program != nullptr && !ir::symbol_sources(segment.trace).empty();
  return std::make_shared<const CompiledSegment>(
      CompiledSegment{std::move(segment), std::move(program), has_symbols, is_exact});
}

/// Whether a program that was compiled for the same segment of another trace is for the sizes of this one, too.
bool is_for_traced_sizes(const CompiledSegment& known, const Segment& segment) {
  if (!known.has_symbols) return true;
  std::vector<at::Tensor> inputs;
  for (const ir::ValueId id : segment.trace.inputs) {
    std::vector<std::int64_t> sizes;
    const ir::TensorType* type = segment.trace.tensor_type(id);
    for (std::size_t i = 0; type != nullptr && i < type->sizes.size(); ++i) sizes.push_back(type->sizes[i].hint);
    inputs.push_back(at::empty(sizes, at::TensorOptions(at::kMeta)));
  }
  return known.program->is_for(inputs);
}

std::size_t common_steps(const std::vector<Segment>& segments, const std::vector<Expected>& expected,
                         const SegmentPath& other) {
  std::size_t count = 0;
  while (count < segments.size() && count < other.steps.size()) {
    const auto known = other.steps[count].shared->get();
    if (!same_segment(segments[count], known->segment) || !is_for_traced_sizes(*known, segments[count])) break;
    ++count;
    if (expected[count - 1] != other.steps[count - 1].expected) break;
  }
  return count;
}

bool has_outputs(const Segment& segment, const std::vector<ir::ValueId>& outputs) {
  return std::ranges::all_of(
      outputs, [&](ir::ValueId id) { return std::ranges::find(segment.outputs, id) != segment.outputs.end(); });
}

std::shared_ptr<SharedSegment> share(const std::shared_ptr<SharedSegment>& shared, const Segment& segment,
                                     const compile::Options& options, bool is_exact) {
  const auto known = shared->get();
  if (!has_outputs(known->segment, segment.outputs) || (is_exact && !known->is_exact)) {
    const bool stays_exact = is_exact || known->is_exact;
    shared->set(compile_segment(with_outputs(known->segment, segment.outputs), options, stays_exact));
  }
  return shared;
}

/// The number of segments up to the last place where the program looks at elements.
std::size_t count_exact(const std::vector<Segment>& segments) {
  std::size_t count = 0;
  for (std::size_t k = 0; k < segments.size(); ++k) {
    const ir::Operator* check = segments[k].observation.check;
    if (check != nullptr && check != tracer::check_shape_operator()) count = k + 1;
  }
  return count;
}

void find_dying(SegmentPath& path, const std::vector<Segment>& segments) {
  std::vector<std::int64_t> last(path.value_count, -1);
  for (std::size_t k = 0; k < segments.size(); ++k) {
    for (const auto* ids : {&segments[k].inputs, &segments[k].outputs, &segments[k].observation.values}) {
      for (const ir::ValueId id : *ids) last[index_of(id)] = static_cast<std::int64_t>(k);
    }
  }
  for (const ir::Argument& output : path.outputs)
    ir::for_each_value(output, [&](ir::ValueId id) { last[index_of(id)] = -1; });
  for (std::size_t i = 0; i < last.size(); ++i) {
    if (last[i] >= 0)
      path.steps[static_cast<std::size_t>(last[i])].dying.push_back(ir::ValueId{static_cast<std::uint32_t>(i)});
  }
}

}  // namespace

SegmentPath make_path(const ir::Trace& recorded, std::span<const SegmentPath* const> others,
                      const compile::Options& options) {
  SegmentPath path;
  const ir::Trace trace = defer_effects(recorded);
  std::optional<std::vector<Segment>> segments = cut_at_checks(trace);
  if (!segments) return path;
  const std::vector<Expected> expected = expected_after(*segments, trace);
  const SegmentPath* nearest = nullptr;
  std::size_t common = 0;
  for (const SegmentPath* other : others) {
    const std::size_t count = common_steps(*segments, expected, *other);
    if (count > common) common = count, nearest = other;
  }
  path.inputs = trace.inputs;
  path.outputs = trace.outputs;
  path.value_count = trace.value_count();
  path.sizes = PathSizes(trace);
  const std::size_t exact = count_exact(*segments);
  for (std::size_t k = 0; k < segments->size(); ++k) {
    SegmentPath::Step& step = path.steps.emplace_back();
    step.expected = expected[k];
    if (k < common) {
      step.shared = share(nearest->steps[k].shared, (*segments)[k], options, k < exact);
    } else {
      step.shared = std::make_shared<SharedSegment>();
      step.shared->set(compile_segment((*segments)[k], options, k < exact));
    }
    path.random.add(bridge::random_sources((*segments)[k].trace, &operators::may_draw));
  }
  find_dying(path, *segments);
  return path;
}

}  // namespace thunder::dispatch
