#include "dispatch/call/graph_replay.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"

namespace thunder::dispatch {
namespace {

/// Runs of a graph that pay for recording it, and the graphs that ran less often after which no other is recorded.
constexpr int kRunsThatPay = 16;
constexpr int kMostInVain = 8;

/// MiB of a program's results up to which it is recorded without being asked for.
constexpr std::int64_t kSmallMiB = 256;

/// Whether an input that the program writes to shares its memory with another one.
bool shares_written(const std::vector<at::Tensor>& inputs, const std::vector<bool>& written) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t k = 0; written[i] && k < inputs.size(); ++k) {
      if (k != i && inputs[k].storage().data() == inputs[i].storage().data()) return true;
    }
  }
  return false;
}

}  // namespace

std::unique_ptr<GraphReplay> GraphReplay::make(const compile::Compiled& computation, compile::CudaGraphs wanted) {
  const compile::GraphFacts& facts = computation.graph_facts();
  if (wanted == compile::CudaGraphs::kNone || !facts.obstacle.empty()) return nullptr;
  auto graph = std::unique_ptr<GraphReplay>(new GraphReplay(wanted));
  if (wanted == compile::CudaGraphs::kSmall) graph->obstacle_ = obstacle_by_default(facts, kSmallMiB);
  return graph;
}

void GraphReplay::drop() {
  if (recorded_->runs() < kRunsThatPay && ++in_vain_ == kMostInVain) {
    obstacle_ = "its inputs lie elsewhere too often";
  }
  recorded_.reset();
  addresses_.start_again();
}

void GraphReplay::record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs) {
  if (shares_written(inputs, computation.graph_facts().written)) {
    throw UserError(ErrorKind::kRuntime, "an input that it writes to is two inputs");
  }
  const auto run = [&](const std::vector<at::Tensor>& given) { return computation.run(given); };
  RecordedGraph made(inputs, addresses_.moves(), run);
  const auto is_tensor = [](const at::Tensor& result) { return result.defined(); };
  if (!std::ranges::all_of(made.results(), is_tensor)) throw UserError(ErrorKind::kRuntime, "a result is no tensor");
  if (wanted_ == compile::CudaGraphs::kSmall) require_few_copies(made.copied_bytes(made.results().size()));
  recorded_.emplace(std::move(made));
}

std::vector<at::Tensor> GraphReplay::replay(const std::vector<at::Tensor>& inputs, const runtime::Versions& versions) {
  const runtime::InputVersions input_versions(versions, inputs);
  recorded_->launch(inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_inference()) continue;
    for (std::uint32_t k = 0; k < recorded_->version_moves(i); ++k) inputs[i].unsafeGetTensorImpl()->bump_version();
  }
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  for (std::size_t i = 0; i < recorded_->results().size(); ++i) {
    const std::int64_t input = recorded_->input_of(i);
    const at::Tensor& result = recorded_->results()[i];
    results.push_back(input >= 0 ? inputs[static_cast<std::size_t>(input)] : empty_like_exactly(result));
    if (input >= 0) continue;
    to.push_back(results.back());
    from.push_back(result);
  }
  copy_uncounted(to, from);
  input_versions.set();
  runtime::set_output_versions(versions, results);
  return results;
}

bool GraphReplay::try_record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs) {
  obstacle_ = obstacle_to([&] { record(computation, inputs); });
  if (!obstacle_.empty() || !computation.is_settled()) {
    // In the second case it has asked for kernels of other layouts, and was recorded without.
    recorded_.reset();
    return false;
  }
  return true;
}

std::optional<std::vector<at::Tensor>> GraphReplay::run(const compile::Compiled& computation,
                                                        const std::vector<at::Tensor>& inputs,
                                                        const runtime::Versions& versions) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !obstacle_.empty() || inputs.empty()) return std::nullopt;
  const c10::DeviceGuard guard(inputs.front().device());
  if (recorded_ && !recorded_->fits(inputs)) drop();
  if (recorded_) {
    return recorded_->is_for_now() ? std::make_optional(replay(inputs, versions)) : std::nullopt;
  }
  const bool is_due =
      obstacle_.empty() && addresses_.observe(inputs, computation.graph_facts().written) && computation.is_settled();
  if (!is_due || is_capturing() || !try_record(computation, inputs)) return std::nullopt;
  return replay(inputs, versions);
}

std::string GraphReplay::state() const {
  const auto lock = lock_without_gil(mutex_);
  if (!obstacle_.empty()) return obstacle_;
  return recorded_ ? "recorded" : "not called often enough yet";
}

}  // namespace thunder::dispatch
