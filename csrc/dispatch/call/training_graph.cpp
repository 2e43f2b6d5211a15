#include "dispatch/call/training_graph.h"

#include <ATen/SavedTensorHooks.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "dispatch/python/gil.h"

namespace thunder::dispatch {
namespace {

using runtime::SavedValue;

/// Runs of a graph that pay for recording it, and the graphs that ran less often after which no other is recorded.
constexpr int kRunsThatPay = 16;
constexpr int kMostInVain = 8;

/// MiB of the results of a forward, or of a backward, up to which it is recorded without being asked for. They are less
/// than without gradients, as each program has memory of its own.
constexpr std::int64_t kSmallMiB = 64;
/// MiB that the forwards recorded so take in all.
constexpr std::int64_t kSmallMiBInAll = 1024;
std::atomic<std::int64_t> small_bytes_in_all = 0;

std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(values.size());
  for (const c10::IValue& value : values) tensors.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
  return tensors;
}

bool are_defined(const std::vector<at::Tensor>& tensors) {
  return !tensors.empty() && std::ranges::all_of(tensors, [](const at::Tensor& tensor) { return tensor.defined(); });
}

/// A program as something to record.
RecordedGraph::Run run_of(const runtime::Program& program) {
  return [&program](const std::vector<at::Tensor>& given) {
    std::vector<c10::IValue> inputs(given.begin(), given.end());
    std::vector<c10::IValue> results(program.output_count());
    program.run(std::span(inputs), std::span(results));
    return tensors_of(results);
  };
}

/// Copies out of a graph's memory the results that are no inputs.
class CopiesOut {
 public:
  explicit CopiesOut(const RecordedGraph& graph) : graph_(graph) {}

  c10::IValue result(std::size_t i, std::span<const c10::IValue> inputs) {
    const at::Tensor& result = graph_.results()[i];
    if (!result.defined()) return {};
    if (graph_.input_of(i) >= 0) return inputs[static_cast<std::size_t>(graph_.input_of(i))];
    to_.push_back(empty_like_exactly(result));
    from_.push_back(result);
    return to_.back();
  }
  void run() { copy_uncounted(to_, from_); }

 private:
  const RecordedGraph& graph_;
  std::vector<at::Tensor> to_;
  std::vector<at::Tensor> from_;
};

}  // namespace

std::shared_ptr<TrainingGraph> TrainingGraph::make(const compile::Compiled& computation, compile::CudaGraphs wanted) {
  const runtime::GraphFacts* facts = computation.training_facts();
  if (wanted == compile::CudaGraphs::kNone || facts == nullptr || !facts->obstacle.empty()) return nullptr;
  auto graph = std::shared_ptr<TrainingGraph>(new TrainingGraph(wanted, facts->bytes));
  if (std::ranges::find(facts->written, true) != facts->written.end()) {
    graph->forward_obstacle_ = "it writes to an input";
  } else if (wanted == compile::CudaGraphs::kSmall) {
    graph->forward_obstacle_ = obstacle_by_default(*facts, kSmallMiB);
  }
  return graph;
}

TrainingGraph::~TrainingGraph() {
  // The last backward may be what held it.
  const GilHold gil;
  reset();
  pool_ = py::Ref();
}

void TrainingGraph::reset() {
  small_bytes_in_all -= std::exchange(small_bytes_, 0);
  forward_.reset();
  backward_.reset();
  in_use_.reset();
}

void TrainingGraph::retire(const std::string& reason) {
  const GilHold gil;
  const auto lock = lock_without_gil(mutex_);
  forward_obstacle_ = reason;
  reset();
}

void TrainingGraph::drop() {
  if (forward_->runs() < kRunsThatPay && ++in_vain_ == kMostInVain) {
    forward_obstacle_ = "its inputs lie elsewhere too often";
  }
  reset();
  addresses_.start_again();
}

void TrainingGraph::record_forward(const runtime::DifferentiableProgram& program, const Tensors& inputs) {
  if (!pool_) pool_ = RecordedGraph::new_pool(inputs.front().device());
  forward_.emplace(inputs, addresses_.moves(), run_of(program.forward), pool_.get());
  if (wanted_ != compile::CudaGraphs::kSmall) return;
  small_bytes_ = bytes_;
  if ((small_bytes_in_all += small_bytes_) > kSmallMiBInAll << 20) {
    throw UserError(ErrorKind::kRuntime, "other programs' graphs take " + std::to_string(kSmallMiBInAll) +
                                             " MiB (cuda_graphs=True records it)");
  }
  require_few_copies(forward_->copied_bytes(program.outputs.size()));
}

bool TrainingGraph::run_forward(const runtime::DifferentiableProgram& program, std::span<const c10::IValue> inputs,
                                std::span<c10::IValue> results, Hold& hold) {
  const Tensors tensors = tensors_of(inputs);
  // Hooks keep what they are given for as long as they like.
  if (!are_defined(tensors) || at::SavedTensorDefaultHooks::get_hooks().has_value()) return false;
  const GilHold gil;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !forward_obstacle_.empty() || is_in_use()) return false;
  const c10::DeviceGuard guard(tensors.front().device());
  if (forward_ && !forward_->fits(tensors)) drop();
  if (!forward_) {
    const std::vector<bool> nothing_is_written(tensors.size(), false);
    const bool is_due =
        forward_obstacle_.empty() && addresses_.observe(tensors, nothing_is_written) && program.forward.is_settled();
    if (!is_due || is_capturing()) return false;
    forward_obstacle_ = obstacle_to([&] { record_forward(program, tensors); });
    // It may have asked for kernels of other layouts, and was recorded without.
    if (!forward_obstacle_.empty() || !program.forward.is_settled()) {
      reset();
      return false;
    }
  }
  if (!forward_->is_for_now()) return false;
  forward_->launch(tensors);
  const std::size_t outputs = program.outputs.size();
  CopiesOut copies(*forward_);
  for (std::size_t i = 0; i < outputs; ++i) results[i] = copies.result(i, inputs);
  copies.run();
  for (std::size_t i = 0; i < program.saved.size(); ++i) {
    const at::Tensor& value = forward_->results()[outputs + i];
    const std::int64_t input = forward_->input_of(outputs + i);
    if (input >= 0) {
      results[outputs + i] = inputs[static_cast<std::size_t>(input)];
    } else if (value.defined()) {
      // Another object each time: that of a variable gets the version counter of what it shares memory with.
      results[outputs + i] = program.saved[i].kind == SavedValue::Kind::kPlain ? value : value.detach();
    }
  }
  const auto in_use = std::make_shared<const int>(0);
  in_use_ = in_use;
  hold = in_use;
  return true;
}

/// Copied is all but memory that the forward's graph writes, or reads where it lies.
std::vector<bool> TrainingGraph::moves_of_backward(const Tensors& inputs) const {
  std::vector<bool> moves;
  for (const at::Tensor& input : inputs) moves.push_back(!forward_->has_memory_of(input));
  return moves;
}

void TrainingGraph::record_backward(const runtime::BackwardProgram& program, const Tensors& inputs) {
  backward_.emplace(inputs, moves_of_backward(inputs), run_of(program.program), pool_.get());
  backward_program_ = &program;
}

bool TrainingGraph::run_backward(const runtime::BackwardProgram& program, std::span<const c10::IValue> inputs,
                                 std::span<c10::IValue> results, const Hold& hold) {
  if (hold == nullptr) return false;
  const Tensors tensors = tensors_of(inputs);
  if (!are_defined(tensors)) return false;
  const GilHold gil;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  const bool is_of_graph = lock.owns_lock() && forward_ && in_use_.lock() == hold;
  if (!is_of_graph || !backward_obstacle_.empty()) return false;
  const c10::DeviceGuard guard(tensors.front().device());
  if (!backward_) {
    backward_obstacle_ = program.graph.obstacle;
    if (backward_obstacle_.empty() && wanted_ == compile::CudaGraphs::kSmall) {
      backward_obstacle_ = obstacle_by_default(program.graph, kSmallMiB);
    }
    if (!backward_obstacle_.empty() || !program.program.is_settled() || is_capturing()) return false;
    backward_obstacle_ = obstacle_to([&] { record_backward(program, tensors); });
    if (!backward_obstacle_.empty() || !program.program.is_settled()) {
      backward_.reset();
      if (!backward_obstacle_.empty()) pool_ = py::Ref();  // nothing else is recorded in it
      return false;
    }
  }
  const bool fits = backward_program_ == &program && backward_->fits(tensors) && backward_->is_for_now();
  if (!fits) return false;
  backward_->launch(tensors);
  CopiesOut copies(*backward_);
  for (std::size_t i = 0; i < results.size(); ++i) results[i] = copies.result(i, inputs);
  copies.run();
  return true;
}

std::string TrainingGraph::state() const {
  const auto lock = lock_without_gil(mutex_);
  if (!forward_obstacle_.empty()) return forward_obstacle_;
  if (!forward_) return "not called often enough yet";
  if (!backward_obstacle_.empty()) return "the backward is not recorded: " + backward_obstacle_;
  return backward_ ? "recorded" : "the backward has not run often enough yet";
}

}  // namespace thunder::dispatch
