#include "dispatch/call/graph_replay.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "dispatch/python/errors.h"
#include "interpreter/loop/native_scope.h"

namespace thunder::dispatch {
namespace {

/// Calls before a program is recorded, in which what it writes to lies at one place.
constexpr int kCallsBefore = 3;
/// Runs of a graph that pay for recording it, and the graphs that ran less often after which no other is recorded.
constexpr int kRunsThatPay = 16;
constexpr int kMostInVain = 8;
/// Memory of a program's results up to which it is recorded without being asked for.
constexpr std::int64_t kSmallBytes = std::int64_t{256} << 20;
/// Bytes of inputs and results that are copied in each call, likewise.
constexpr std::int64_t kSmallCopies = std::int64_t{16} << 20;

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

PyObject* graphs_module() {
  static PyObject* const kModule = [] {
    const interpreter::NativeScope native;
    return checked(PyImport_ImportModule("thunder._cuda_graphs")).release();
  }();
  return kModule;
}

bool is_capturing() { return checked(PyObject_CallMethod(graphs_module(), "is_capturing", nullptr)).get() == Py_True; }

at::Tensor empty_like_exactly(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

/// The message of the pending Python exception, which is pending no longer.
std::string take_message() {
  const py::Ref error = take_error();
  const py::Ref text = py::Ref::steal(error ? PyObject_Str(error.get()) : nullptr);
  const char* message = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return message == nullptr ? "an error" : message;
}

/// Copies without moving version counters, for what a program's own kernels would have written.
void copy_uncounted(const at::Tensor& to, const at::Tensor& from) {
  const at::AutoDispatchBelowADInplaceOrView uncounted;
  to.copy_(from, /*non_blocking=*/true);
}

/// Whether an input that the program writes to shares its memory with another one.
bool shares_written(const std::vector<at::Tensor>& inputs, const std::vector<bool>& written) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t k = 0; written[i] && k < inputs.size(); ++k) {
      if (k != i && inputs[k].storage().data() == inputs[i].storage().data()) return true;
    }
  }
  return false;
}

std::int64_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

}  // namespace

std::unique_ptr<GraphReplay> GraphReplay::make(const compile::Compiled& computation, compile::CudaGraphs wanted) {
  const compile::GraphFacts& facts = computation.graph_facts();
  if (wanted == compile::CudaGraphs::kNone || !facts.obstacle.empty()) return nullptr;
  auto graph = std::unique_ptr<GraphReplay>(new GraphReplay(wanted));
  if (wanted == compile::CudaGraphs::kSmall && facts.bytes > kSmallBytes) {
    graph->obstacle_ = "its results take more than 256 MiB (cuda_graphs=True records it)";
  }
  return graph;
}

GraphReplay::Settings GraphReplay::settings() {
  at::Context& context = at::globalContext();
  // Kernels, too, raise where the older and the newer functions for it were mixed.
  const auto is_set = [](const auto& ask) -> std::int64_t {
    try {
      return ask() ? 1 : 0;
    } catch (const c10::Error&) {
      return -1;
    }
  };
  Settings settings{context.userEnabledCuDNN(),
                    context.benchmarkCuDNN(),
                    context.deterministicCuDNN(),
                    context.deterministicAlgorithms(),
                    context.userEnabledFlashSDP(),
                    context.userEnabledMemEfficientSDP(),
                    context.userEnabledMathSDP(),
                    context.userEnabledCuDNNSDP(),
                    static_cast<std::int64_t>(context.linalgPreferredBackend()),
                    static_cast<std::int64_t>(context.blasPreferredBackend()),
                    static_cast<std::int64_t>(context.allowFP16ReductionCuBLAS()),
                    static_cast<std::int64_t>(context.allowBF16ReductionCuBLAS()),
                    is_set([&] { return context.allowTF32CuBLAS(); }),
                    is_set([&] { return context.allowTF32CuDNN(); }),
                    context.userEnabledFA3SDP(),
                    context.allowFP16AccumulationCuBLAS(),
                    context._SMCarveout_EXPERIMENTAL().value_or(-1)};
  std::ranges::transform(context.sDPPriorityOrder(), settings.end() - at::num_sdp_backends,
                         [](at::SDPBackend backend) { return static_cast<std::int64_t>(backend); });
  return settings;
}

bool GraphReplay::observe(const std::vector<at::Tensor>& inputs, const compile::GraphFacts& facts) {
  const bool is_first = last_addresses_.empty();
  moves_.resize(inputs.size(), false);
  last_addresses_.resize(inputs.size(), nullptr);
  ++calls_;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const void* address = inputs[i].const_data_ptr();
    const bool is_elsewhere = !is_first && last_addresses_[i] != address;
    if (is_elsewhere && facts.written[i]) calls_ = 1;
    if (is_elsewhere && !facts.written[i]) moves_[i] = true;
    last_addresses_[i] = address;
  }
  return calls_ > kCallsBefore;
}

void GraphReplay::drop() {
  if (recorded_->runs < kRunsThatPay && ++in_vain_ == kMostInVain) {
    obstacle_ = "its inputs lie elsewhere too often";
  }
  recorded_.reset();
  calls_ = 0;
}

bool GraphReplay::fits(const std::vector<at::Tensor>& inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!recorded_->copies[i].defined() && inputs[i].const_data_ptr() != recorded_->addresses[i]) return false;
  }
  return true;
}

void GraphReplay::record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs) {
  const std::vector<bool>& written = computation.graph_facts().written;
  if (shares_written(inputs, written)) throw UserError(ErrorKind::kRuntime, "an input that it writes to is two inputs");
  const c10::Device device = inputs.front().device();
  Recorded made{.stream = current_stream(device), .settings = settings()};
  std::vector<at::Tensor> given;
  std::vector<std::int64_t> before;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    made.copies.push_back(moves_[i] ? empty_like_exactly(inputs[i]) : at::Tensor());
    made.addresses.push_back(inputs[i].const_data_ptr());
    // An alias of its own: what the recording does to version counters is not seen outside.
    given.push_back(moves_[i] ? made.copies[i] : inputs[i].detach());
    if (!given.back().is_inference()) given.back().unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
    before.push_back(version_of(given[i]));
  }
  made.graph = checked(PyObject_CallMethod(graphs_module(), "Graph", "i", static_cast<int>(device.index())));
  static_cast<void>(checked(PyObject_CallMethod(made.graph.get(), "begin", nullptr)));
  std::exception_ptr error;
  try {
    made.results = computation.run(given);
  } catch (...) {
    error = std::current_exception();
  }
  const py::Ref ended = py::Ref::steal(PyObject_CallMethod(made.graph.get(), "end", nullptr));
  if (error != nullptr) {
    PyErr_Clear();
    std::rethrow_exception(error);
  }
  if (!ended) throw PendingError();
  for (const at::Tensor& result : made.results) {
    const auto input = std::ranges::find_if(given, [&](const at::Tensor& each) { return each.is_same(result); });
    made.returned.push_back(input == given.end() ? -1 : input - given.begin());
    const bool is_plain = result.defined() && result.is_non_overlapping_and_dense();
    if (made.returned.back() < 0 && !is_plain) throw UserError(ErrorKind::kRuntime, "a result is expanded");
  }
  std::int64_t copied = 0;
  for (std::size_t i = 0; i < given.size(); ++i) copied += moves_[i] ? static_cast<std::int64_t>(given[i].nbytes()) : 0;
  for (const at::Tensor& result : made.results) copied += static_cast<std::int64_t>(result.nbytes());
  if (wanted_ == compile::CudaGraphs::kSmall && copied > kSmallCopies) {
    throw UserError(ErrorKind::kRuntime, "each call would copy more than 16 MiB (cuda_graphs=True records it)");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    made.versions.push_back(static_cast<std::uint32_t>(version_of(given[i]) - before[i]));
  }
  recorded_ = std::move(made);
}

std::vector<at::Tensor> GraphReplay::replay(const std::vector<at::Tensor>& inputs, const runtime::Versions& versions) {
  const runtime::InputVersions input_versions(versions, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (recorded_->copies[i].defined()) copy_uncounted(recorded_->copies[i], inputs[i]);
  }
  static_cast<void>(checked(PyObject_CallMethod(recorded_->graph.get(), "replay", nullptr)));
  ++recorded_->runs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_inference()) continue;
    for (std::uint32_t k = 0; k < recorded_->versions[i]; ++k) inputs[i].unsafeGetTensorImpl()->bump_version();
  }
  std::vector<at::Tensor> results;
  for (std::size_t i = 0; i < recorded_->results.size(); ++i) {
    const std::int64_t input = recorded_->returned[i];
    results.push_back(input >= 0 ? inputs[static_cast<std::size_t>(input)] : empty_like_exactly(recorded_->results[i]));
    if (input < 0) copy_uncounted(results.back(), recorded_->results[i]);
  }
  input_versions.set();
  runtime::set_output_versions(versions, results);
  return results;
}

bool GraphReplay::try_record(const compile::Compiled& computation, const std::vector<at::Tensor>& inputs) {
  try {
    record(computation, inputs);
  } catch (const PendingError&) {
    obstacle_ = take_message();
  } catch (const std::exception& error) {
    obstacle_ = error.what();
  }
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
  if (recorded_ && !fits(inputs)) drop();
  if (recorded_) {
    const bool is_same = current_stream(inputs.front().device()) == recorded_->stream &&
                         settings() == recorded_->settings && !is_capturing();
    return is_same ? std::make_optional(replay(inputs, versions)) : std::nullopt;
  }
  const bool is_due = obstacle_.empty() && observe(inputs, computation.graph_facts()) && computation.is_settled();
  if (!is_due || is_capturing() || !try_record(computation, inputs)) return std::nullopt;
  return replay(inputs, versions);
}

std::string GraphReplay::state() const {
  const std::scoped_lock lock(mutex_);
  if (!obstacle_.empty()) return obstacle_;
  return recorded_ ? "recorded" : "not called often enough yet";
}

}  // namespace thunder::dispatch
