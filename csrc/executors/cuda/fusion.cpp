#include "executors/cuda/fusion.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "executors/api/operands.h"
#include "executors/cuda/attention.h"
#include "executors/cuda/device_queue.h"
#include "executors/cuda/pooling.h"
#include "executors/cuda_kernels/prelude.h"
#include "fusion/region.h"
#include "ir/location.h"
#include "ir/trace_sizes.h"
#include "runtime/user_warning.h"

namespace thunder::executors::cuda {
namespace {

/// Sizes and layouts that a fusion is kept for.
constexpr std::size_t kMostPlans = 64;
constexpr std::int64_t kWidestAlignment = 16;

const void* address_of(const at::Tensor& tensor) { return tensor.const_data_ptr(); }

/// The power of two that all addresses are multiples of, up to that of the widest load.
std::int64_t alignment_of(const c10::IValue* inputs, std::size_t count) {
  std::uintptr_t bits = kWidestAlignment;
  for (std::size_t i = 0; i < count; ++i) bits |= reinterpret_cast<std::uintptr_t>(address_of(inputs[i].toTensor()));
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

/// The operations of a fusion, as the name of its kernel: `fused_mul_gelu`.
std::string kernel_name(const ir::BoundSymbol& fused) {
  constexpr std::size_t kLongest = 60;
  std::string name = "fused";
  std::set<std::string> named;
  for (const ir::BoundSymbol& operation : fused.nested) {
    std::string part = operation.op->name.substr(operation.op->name.rfind(':') + 1);
    std::erase_if(part,
                  [](char letter) { return std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '_'; });
    if (operation.op->view || !named.insert(part).second || name.size() + part.size() >= kLongest) continue;
    name += "_" + part;
  }
  return name;
}

/// Memory of the current device.
at::Tensor make(const FusedRegion::Tensor& like, c10::Allocator* allocator) {
  const c10::DispatchKeySet keys(c10::computeDispatchKey(like.dtype, c10::kStrided, like.device));
  return at::Tensor(at::detail::empty_strided_generic(like.sizes, like.strides, allocator, keys, like.dtype));
}

/// `3 operations (sin, exp, mul), file.py, line 12`.
std::string description_of(const ir::Trace& region) {
  constexpr std::size_t kMostNames = 8;
  const std::vector<ir::BoundSymbol>& operations = region.symbols[0].nested;
  std::string text = std::to_string(operations.size()) + " operations (";
  for (std::size_t i = 0; i < std::min(operations.size(), kMostNames); ++i) {
    text += (i == 0 ? "" : ", ") + operations[i].op->name;
  }
  text += operations.size() > kMostNames ? ", …)" : ")";
  return operations.empty() ? text : text + ir::describe_line(operations[0].location, ", ");
}

/// Equal for fusions that can be one object.
std::string key_of(const ir::Trace& region, const Fusion::Options& options) {
  return key_of_region(region) + (options.waits ? "waits" : "") + (options.is_batched ? "batched" : "");
}

/// Whether this is the first time that the error is told.
bool is_new_error(const std::string& text) {
  static std::mutex mutex;
  static auto* const kTold = new std::set<std::string>;
  const std::scoped_lock lock(mutex);
  return kTold->insert(text).second;
}

}  // namespace

std::shared_ptr<const Fusion> Fusion::find(const ir::BoundSymbol& fused, const ir::Trace& trace, Engine& engine,
                                           bool is_batched) {
  const ir::Trace region = fusion::region_of(fused, trace);
  for (const bool waits : {false, true}) {
    auto known = engine.fusions().find(key_of(region, {.waits = waits, .is_batched = is_batched}));
    if (known != nullptr) return known;
  }
  return nullptr;
}

std::shared_ptr<const Fusion> Fusion::of(const ir::BoundSymbol& fused, const ir::Trace& trace,
                                         const fusion::Target& target, Engine& engine, const Options& options) {
  ir::Trace region = fusion::region_of(fused, trace);
  return engine.fusions().get(key_of(region, options), [&] {
    return std::make_shared<const Fusion>(std::move(region), ir::traced_symbols(trace), target, engine, options);
  });
}

Fusion::Fusion(ir::Trace region, const std::vector<std::int64_t>& traced_symbols, const fusion::Target& target,
               Engine& engine, const Options& options)
    : region_(std::move(region)),
      target_(target),
      engine_(engine),
      options_(options),
      symbols_(ir::symbols_of(region_)) {
  if (fusion::is_kernel(region_.symbols[0]))
    kernel_ = fusion::Lowering::lower(region_.symbols[0], region_, fusion::traced_strides(region_), target_);
  try {
    request(traced_symbols);
  } catch (const UserError&) {  // NOLINT(bugprone-empty-catch): no driver; a call says so
  }
}

void Fusion::request(const std::vector<std::int64_t>& traced_symbols) {
  Layout layout;
  if (!symbols_.empty()) {
    if (symbols_.back() >= traced_symbols.size()) return;
    layout.symbols.resize(symbols_.back() + 1, 0);
    for (const std::uint32_t symbol : symbols_) layout.symbols[symbol] = traced_symbols[symbol];
  }
  const auto region = region_at(layout.symbols);
  for (const FusedRegion::Tensor& input : region->inputs()) {
    layout.strides.insert(layout.strides.end(), input.strides.begin(), input.strides.end());
  }
  layout.alignment = kWidestAlignment;
  plans_.push_front(make_plan(std::move(layout), region, /*keeps_order=*/true));
}

std::shared_ptr<const FusedRegion> Fusion::region_at(const std::vector<std::int64_t>& symbols) const {
  const auto known = std::ranges::find_if(plans_, [&](const PlanPtr& plan) { return plan->layout.symbols == symbols; });
  if (known != plans_.end()) return (*known)->region;
  return std::make_shared<const FusedRegion>(symbols_.empty() ? region_ : ir::at_sizes(region_, symbols));
}

bool Fusion::Plan::is_for(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const {
  if (layout.symbols != symbols || !region->fits(inputs)) return false;
  const std::size_t count = region->inputs().size();
  const std::int64_t* expected = layout.strides.data();
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IntArrayRef strides = inputs[i].toTensor().strides();
    if (!std::equal(strides.begin(), strides.end(), expected)) return false;
    expected += strides.size();
  }
  return alignment_of(inputs, count) == layout.alignment;
}

Fusion::PlanPtr Fusion::plan_for(const std::vector<std::int64_t>& symbols, const c10::IValue* inputs) const {
  const std::scoped_lock lock(mutex_);
  const auto known = std::ranges::find_if(plans_, [&](const PlanPtr& plan) { return plan->is_for(symbols, inputs); });
  if (known != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, known);
    return plans_.front();
  }
  auto region = region_at(symbols);
  const std::size_t count = region->inputs().size();
  if (!region->fits(inputs)) return std::make_shared<const Plan>(Plan{{}, std::move(region), std::nullopt, nullptr});
  Layout layout{symbols, {}, alignment_of(inputs, count)};
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IntArrayRef strides = inputs[i].toTensor().strides();
    layout.strides.insert(layout.strides.end(), strides.begin(), strides.end());
  }
  const bool keeps_order = region->keeps_order(inputs);
  plans_.push_front(make_plan(std::move(layout), std::move(region), keeps_order));
  if (plans_.size() > kMostPlans) plans_.pop_back();
  return plans_.front();
}

Fusion::PlanPtr Fusion::make_plan(Layout layout, std::shared_ptr<const FusedRegion> region, bool keeps_order) const {
  const ir::Trace& sized = region->region();
  Plan plan{std::move(layout), std::move(region), std::nullopt, nullptr};
  fusion::Strides strides;
  const std::int64_t* given = plan.layout.strides.data();
  for (const FusedRegion::Tensor& input : plan.region->inputs()) {
    strides.push_back(bridge::to_dims({given, input.strides.size()}));
    given += input.strides.size();
  }
  const std::optional<at::Device> device = plan.region->device();
  if (!device) return std::make_shared<const Plan>(std::move(plan));
  const LaunchFacts facts{plan.layout.alignment, engine_.multiprocessors(*device), kernel_name(sized.symbols[0]),
                          options_.is_batched};
  plan.source = source_for(plan, strides, keeps_order, facts);
  if (plan.source) {
    plan.compilation = engine_.request(*plan.source, *device);
    plan.source->text.clear();  // long; the compilation has it
  }
  return std::make_shared<const Plan>(std::move(plan));
}

std::optional<KernelSource> Fusion::source_for(const Plan& plan, const fusion::Strides& strides, bool keeps_order,
                                               const LaunchFacts& facts) const {
  const ir::Trace& sized = plan.region->region();
  const ir::BoundSymbol& block = sized.symbols[0];
  if (fusion::kind_of(block) == kAttention) return attention_source(block, sized, strides, facts);
  if (fusion::kind_of(block) == kPooling) return pooling_source(block, sized, strides, facts);
  if (strides == fusion::traced_strides(sized)) {
    if (!kernel_) return std::nullopt;
    return emit_source(kernel_->at(ir::SymbolValues(plan.layout.symbols)), facts);
  }
  const auto other =
      keeps_order ? fusion::Lowering::lower(block, sized, strides, target_) : std::optional<fusion::KernelGraph>();
  return other ? emit_source(other->at(), facts) : std::nullopt;
}

void Fusion::report(const Compilation& compilation) const {
  const std::exception_ptr error = compilation.error();
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    if (options_.waits) throw;
    if (!is_new_error(failure.what())) return;
    runtime::warn_user("thunder.jit: a fusion of " + description_of(region_) +
                       " runs operation by operation: " + failure.what());
  }
}

const Module* Fusion::module_of(const Plan& plan) const {
  if (plan.compilation == nullptr) return nullptr;
  if (const Module* module = plan.compilation->module()) return module;
  // The call that takes the kernel first may be another one in each run.
  if (options_.waits || at::globalContext().deterministicAlgorithms()) plan.compilation->wait();
  report(*plan.compilation);
  return plan.compilation->module();
}

KernelText Fusion::text() const {
  const std::scoped_lock lock(mutex_);
  KernelText made;
  if (plans_.empty() || plans_.front()->compilation == nullptr) return made;
  const Plan& plan = *plans_.front();
  const std::string& text = plan.compilation->text();
  const std::size_t shared = prelude_end(text);
  made.beginning = text.substr(0, shared);
  made.text = text.substr(shared);
  const Module* const module = plan.compilation->module();
  made.is_compiled = module != nullptr;
  for (const Launch& launch : plan.source->launches) {
    const auto registers = module == nullptr ? std::nullopt : module->registers(launch.name);
    made.launches.push_back({launch.name, launch.grid, launch.threads, registers});
  }
  return made;
}

void Fusion::wait() const {
  std::vector<PlanPtr> plans;
  {
    const std::scoped_lock lock(mutex_);
    plans.assign(plans_.begin(), plans_.end());
  }
  for (const PlanPtr& plan : plans) {
    if (plan->compilation == nullptr) continue;
    plan->compilation->wait();
    report(*plan->compilation);
  }
}

bool Fusion::is_settled() const {
  const std::scoped_lock lock(mutex_);
  return std::ranges::all_of(
      plans_, [](const PlanPtr& plan) { return plan->compilation == nullptr || plan->compilation->is_settled(); });
}

std::unique_ptr<Fusion::Run> Fusion::prepare(const std::vector<std::int64_t>& symbols,
                                             const c10::IValue* inputs) const {
  PlanPtr plan = plan_for(symbols, inputs);
  const Module* const module = module_of(*plan);
  if (module == nullptr) return nullptr;
  auto made = std::make_unique<Run>(std::move(plan), *module);
  Run& run = *made;
  const FusedRegion& region = *run.plan->region;
  const c10::DeviceGuard guard(region.device().value());
  c10::Allocator* const allocator = engine_.allocator();
  for (std::size_t i = 0; i < region.inputs().size(); ++i) run.parameters.add_array(address_of(inputs[i].toTensor()));
  run.results.reserve(region.outputs().size());
  for (const FusedRegion::Tensor& output : region.outputs()) {
    run.results.push_back(make(output, allocator));
    run.parameters.add_array(run.results.back().mutable_data_ptr());
  }
  for (const fusion::CopyTarget& copy : region.copies()) {
    const bool waits = copy.is_read && !run.source().overwrites_inputs;
    run.copied.push_back(waits ? make(region.inputs()[copy.input], allocator) : at::Tensor());
    run.parameters.add_array((waits ? run.copied.back() : inputs[copy.input].toTensor()).mutable_data_ptr());
  }
  if (run.source().scratch_bytes > 0) {
    run.scratch = allocator->allocate(static_cast<std::size_t>(run.source().scratch_bytes));
    run.parameters.set_scratch(run.scratch.get());
  }
  return made;
}

bool Fusion::launch(std::span<const Run* const> runs, Engine& engine) {
  const KernelSource& source = runs[0]->source();
  const at::Device device = runs[0]->device();
  const c10::DeviceGuard guard(device);
  DeviceQueue* const queue = DeviceQueue::of(engine);
  const auto launch = [&](const Launch& function, std::int64_t grid, std::span<const std::byte> argument) {
    if (queue != nullptr) {
      queue->add(runs[0]->module, function, grid, argument, device);
      return true;
    }
    Launch sized = function;
    sized.grid = grid;
    return engine.launch(runs[0]->module, sized, argument, device);
  };
  for (std::size_t k = 0; k < source.launches.size(); ++k) {
    const Launch& function = source.launches[k];
    if (source.capacity == 0) {
      if (!launch(function, function.grid, std::as_bytes(runs[0]->parameters.words()))) return false;
      continue;
    }
    BatchArgument argument(source.capacity, runs[0]->parameters.words().size());
    for (const Run* run : runs) argument.add(run->parameters, run->source().launches[k].grid);
    if (!launch(function, argument.thread_blocks(), argument.bytes())) return false;
  }
  return true;
}

void Fusion::hold(Run& run, const c10::IValue* inputs, const Engine& engine) {
  DeviceQueue* const queue = DeviceQueue::of(engine);
  if (queue == nullptr) return;
  for (std::size_t i = 0; i < run.plan->region->inputs().size(); ++i) queue->hold_input(inputs[i].toTensor());
  queue->hold(std::move(run.scratch));
  queue->hold(run.plan);
  for (const at::Tensor& result : run.results) queue->hold_result(result);
  const auto is_copied = [](const at::Tensor& tensor) { return tensor.defined(); };
  if (std::ranges::any_of(run.copied, is_copied)) queue->flush();
}

void Fusion::finish(const Run& run, const c10::IValue* inputs) {
  for (std::size_t k = 0; k < run.copied.size(); ++k) {
    if (run.copied[k].defined()) inputs[run.plan->region->copies()[k].input].toTensor().copy_(run.copied[k]);
  }
}

void Fusion::run_operations(const std::vector<std::int64_t>& symbols, std::vector<c10::IValue>& stack) const {
  if (DeviceQueue* const queue = DeviceQueue::of(engine_)) queue->flush();
  plan_for(symbols, stack.data() + (stack.size() - region_.inputs.size()))->region->run_operations(stack);
}

void Fusion::run(std::vector<c10::IValue>& stack) const {
  const std::vector<std::int64_t> symbols = take_symbols(stack, symbols_);
  const std::size_t count = region_.inputs.size();
  const c10::IValue* inputs = stack.data() + (stack.size() - count);
  const std::unique_ptr<Run> run = prepare(symbols, inputs);
  const Run* const all[] = {run.get()};
  if (run == nullptr || !launch(all, engine_)) return run_operations(symbols, stack);
  hold(*run, inputs, engine_);
  finish(*run, inputs);
  stack.resize(stack.size() - count);
  for (at::Tensor& result : run->results) stack.emplace_back(std::move(result));
}

}  // namespace thunder::executors::cuda
