#include "dispatch/call/recorded_graph.h"

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

#include "dispatch/python/errors.h"
#include "interpreter/loop/native_scope.h"
#include "runtime/versions.h"

namespace thunder::dispatch {
namespace {

/// Calls before a program is recorded.
constexpr int kCallsBefore = 3;

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

PyObject* graphs_module() {
  // Without an initializer that runs Python: another thread would wait for its end with the GIL held.
  static PyObject* module = nullptr;
  if (module == nullptr) {
    const interpreter::NativeScope native;
    module = checked(py::import_module("thunder._cuda_graphs")).release();
  }
  return module;
}

/// The message of the pending Python exception, which is pending no longer.
std::string take_message() {
  const py::Ref error = take_error();
  const py::Ref text = py::Ref::steal(error ? PyObject_Str(error.get()) : nullptr);
  const char* message = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return message == nullptr ? "an error" : message;
}

std::int64_t version_of(const at::Tensor& tensor) { return runtime::counts_writes(tensor) ? tensor._version() : 0; }

/// An alias of its own: what a recording does to version counters is not seen outside.
at::Tensor alias_of(const at::Tensor& tensor) {
  at::Tensor alias = tensor.detach();
  if (!alias.is_inference()) alias.unsafeGetTensorImpl()->set_version_counter(c10::VariableVersion(0));
  return alias;
}

/// One of the elements that an expanded tensor shows several times.
at::Tensor without_expansion(at::Tensor tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

}  // namespace

bool is_capturing() { return checked(PyObject_CallMethod(graphs_module(), "is_capturing", nullptr)).get() == Py_True; }

at::Tensor empty_like_exactly(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

void copy_uncounted(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  if (to.empty()) return;
  const at::AutoDispatchBelowADInplaceOrView uncounted;
  if (to.size() == 1) {
    to.front().copy_(from.front(), /*non_blocking=*/true);
  } else {
    at::_foreach_copy_(to, from, /*non_blocking=*/true);
  }
}

std::string obstacle_by_default(const runtime::GraphFacts& facts, std::int64_t most_mib) {
  constexpr const char* kAdvice = " (cuda_graphs=True records it)";
  // A graph's launch takes as long as that of two kernels, and copies results besides.
  if (facts.launches < 2) return std::string("it launches one kernel") + kAdvice;
  if (facts.bytes <= most_mib << 20) return {};
  return "its results take more than " + std::to_string(most_mib) + " MiB" + kAdvice;
}

void require_few_copies(std::int64_t bytes) {
  constexpr std::int64_t kMost = std::int64_t{16} << 20;
  if (bytes <= kMost) return;
  throw UserError(ErrorKind::kRuntime, "each call would copy more than 16 MiB (cuda_graphs=True records it)");
}

std::string obstacle_to(const std::function<void()>& action) {
  try {
    action();
  } catch (const PendingError&) {
    return take_message();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

bool InputAddresses::observe(const std::vector<at::Tensor>& inputs, const std::vector<bool>& written) {
  const bool is_first = last_.empty();
  moves_.resize(inputs.size(), false);
  last_.resize(inputs.size(), nullptr);
  ++calls_;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const void* address = inputs[i].const_data_ptr();
    const bool is_elsewhere = !is_first && last_[i] != address;
    if (is_elsewhere && written[i]) calls_ = 1;
    if (is_elsewhere && !written[i]) moves_[i] = true;
    last_[i] = address;
  }
  return calls_ > kCallsBefore;
}

RecordedGraph::Settings RecordedGraph::settings() {
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

py::Ref RecordedGraph::new_pool(c10::Device device) {
  return checked(PyObject_CallMethod(graphs_module(), "new_pool", "i", static_cast<int>(device.index())));
}

RecordedGraph::RecordedGraph(const std::vector<at::Tensor>& inputs, const std::vector<bool>& moves, const Run& run,
                             PyObject* pool)
    : stream_(current_stream(inputs.front().device())), settings_(settings()) {
  std::vector<at::Tensor> given;
  std::vector<std::int64_t> before;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    copies_.push_back(moves[i] ? empty_like_exactly(inputs[i]) : at::Tensor());
    const bool is_apart = !moves[i] || without_expansion(copies_[i]).is_non_overlapping_and_dense();
    if (!is_apart) throw UserError(ErrorKind::kRuntime, "an input that moves has gaps in memory");
    addresses_.push_back(inputs[i].const_data_ptr());
    given.push_back(moves[i] ? copies_[i] : alias_of(inputs[i]));
    before.push_back(version_of(given[i]));
  }
  record(given, run, pool);
  for (const at::Tensor& result : results_) {
    const auto input = std::ranges::find_if(given, [&](const at::Tensor& each) { return each.is_same(result); });
    returned_.push_back(input == given.end() ? -1 : input - given.begin());
    const bool is_plain = !result.defined() || result.is_non_overlapping_and_dense();
    if (returned_.back() < 0 && !is_plain) throw UserError(ErrorKind::kRuntime, "a result is expanded");
  }
  for (std::size_t i = 0; i < given.size(); ++i) {
    versions_.push_back(static_cast<std::uint32_t>(version_of(given[i]) - before[i]));
  }
}

void RecordedGraph::record(const std::vector<at::Tensor>& given, const Run& run, PyObject* pool) {
  const int index = static_cast<int>(given.front().device().index());
  graph_ = checked(PyObject_CallMethod(graphs_module(), "Graph", "iO", index, pool == nullptr ? Py_None : pool));
  static_cast<void>(checked(PyObject_CallMethod(graph_.get(), "begin", nullptr)));
  std::exception_ptr error;
  try {
    results_ = run(given);
  } catch (...) {
    error = std::current_exception();
  }
  const py::Ref ended = py::Ref::steal(PyObject_CallMethod(graph_.get(), "end", nullptr));
  if (error != nullptr) {
    PyErr_Clear();
    std::rethrow_exception(error);
  }
  if (!ended) throw PendingError();
}

bool RecordedGraph::fits(const std::vector<at::Tensor>& inputs) const {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!copies_[i].defined() && inputs[i].const_data_ptr() != addresses_[i]) return false;
  }
  return true;
}

bool RecordedGraph::is_for_now() const {
  return current_stream(stream_.device()) == stream_ && settings() == settings_ && !is_capturing();
}

bool RecordedGraph::has_memory_of(const at::Tensor& tensor) const {
  const void* address = tensor.const_data_ptr();
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    if (!copies_[i].defined() && addresses_[i] == address) return true;
  }
  return std::ranges::any_of(
      results_, [&](const at::Tensor& result) { return result.defined() && result.const_data_ptr() == address; });
}

void RecordedGraph::launch(const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!copies_[i].defined()) continue;
    to.push_back(without_expansion(copies_[i]));
    from.push_back(without_expansion(inputs[i]));
  }
  copy_uncounted(to, from);
  static_cast<void>(checked(PyObject_CallMethod(graph_.get(), "replay", nullptr)));
  ++runs_;
}

std::int64_t RecordedGraph::copied_bytes(std::size_t results) const {
  std::int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  };
  std::ranges::for_each(copies_, add);
  std::ranges::for_each(std::span(results_).first(results), add);
  return bytes;
}

}  // namespace thunder::dispatch
