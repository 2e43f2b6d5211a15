#include "tracer/size_probes.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <array>
#include <exception>
#include <map>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "bridge/convert.h"
#include "tracer/kept_errors.h"
#include "tracer/map_tensors.h"
#include "tracer/operators.h"
#include "tracer/recorder.h"
#include "tracer/recording_scopes.h"
#include "tracer/size_node.h"
#include "tracer/trace_session.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {

using c10::IValue;

namespace {

std::optional<ir::Dim> size_in_tensor(const IValue& value) {
  const bool is_number = value.isTensor() && wrapped_size_of != nullptr && value.toTensor().defined() &&
                         value.toTensor().unsafeGetTensorImpl()->is_wrapped_number();
  return is_number ? wrapped_size_of(value.toTensor()) : std::nullopt;
}

}  // namespace

std::optional<ir::Dim> (*wrapped_size_of)(const at::Tensor& tensor) = nullptr;

IValue with_numbers(const IValue& value, std::optional<ir::SymbolValues> symbols) {
  const auto number = [&](const ir::Dim& dim) {
    return !symbols || dim.is_concrete() ? dim.hint : ir::evaluate(dim, *symbols);
  };
  if (value.isSymInt()) return number(dim_of(value.toSymInt()));
  if (value.isSymIntList()) {
    c10::List<std::int64_t> list;
    for (const c10::SymInt& size : value.toSymIntVector()) list.push_back(number(dim_of(size)));
    return list;
  }
  if (const std::optional<ir::Dim> dim = size_in_tensor(value)) {
    const c10::impl::ExcludeDispatchKeyGuard no_recording(c10::DispatchKey::TESTING_ONLY_GenericMode);
    const at::Tensor tensor = c10::scalar_to_tensor(c10::Scalar(number(*dim)));
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }
  return value;
}

ir::Dims sizes_in(const IValue& value) {
  ir::Dims sizes;
  if (value.isInt()) sizes.emplace_back(value.toInt());
  if (value.isSymInt()) sizes.push_back(dim_of(value.toSymInt()));
  if (value.isIntList()) sizes = bridge::to_dims(value.toIntVector());
  if (value.isSymIntList()) {
    for (const c10::SymInt& size : value.toSymIntVector()) sizes.push_back(dim_of(size));
  }
  if (const std::optional<ir::Dim> dim = size_in_tensor(value)) sizes.push_back(*dim);
  return sizes;
}

namespace {

/// Inputs are leaves: what is written to requires no grad.
ir::TensorType type_at(ir::TensorType type, ir::SymbolValues symbols, bool is_written) {
  for (ir::Dim& size : type.sizes) size = ir::evaluate(size, symbols);
  for (ir::Dim& stride : type.strides) stride = ir::evaluate(stride, symbols);
  type.storage_offset = 0;
  type.requires_grad = type.requires_grad && !is_written;
  return type;
}

/// A size next to another one: `size` is `other + distance` where the symbols have these values.
struct Neighbor {
  ir::Dim size;
  ir::Dim other;
  std::int64_t distance = 0;
  std::vector<std::int64_t> symbols;
};

/// The value of a symbol at which `size` is `target`, the others as traced. A quotient (`n // 2`) stays the same from
/// one value to the next one, and tells over several how it rises.
std::optional<std::vector<std::int64_t>> solve(const ir::Dim& size, std::int64_t target, std::uint32_t symbol,
                                               const std::vector<std::int64_t>& traced) {
  std::vector<std::int64_t> symbols = traced;
  for (const std::int64_t span : {1, 60}) {  // many divisors divide the longer one
    symbols[symbol] = traced[symbol] + span;
    const std::int64_t rise = ir::evaluate(size, symbols) - size.hint;
    if (rise == 0) continue;
    for (const std::int64_t extra : {0, 1, -1, 2, -2}) {
      symbols[symbol] = traced[symbol] + (target - size.hint) * span / rise + extra;
      if (symbols[symbol] >= 2 && ir::evaluate(size, symbols) == target) return symbols;
    }
  }
  return std::nullopt;
}

bool is_among(const ir::Dim& dim, const ir::Dims& dims) { return std::ranges::find(dims, dim) != dims.end(); }

ir::Dims distinct_sizes(const SizedCall& call) {
  ir::Dims sizes;
  const auto add = [&](const ir::Dims& dims) {
    for (const ir::Dim& dim : dims) {
      if (!is_among(dim, sizes)) sizes.push_back(dim);
    }
  };
  for (const auto& type : call.types) {
    if (type) add(type->sizes);
  }
  for (const IValue& argument : call.arguments) add(sizes_in(argument));
  add(call.results);
  add(call.strides);
  return sizes;
}

/// Whether no size of a tensor that depends on symbols is zero or one: a trace for all sizes demands that.
bool has_sizes_of_two(const SizedCall& call, ir::SymbolValues symbols) {
  const auto is_large = [&](const ir::Dim& size) { return size.is_concrete() || ir::evaluate(size, symbols) >= 2; };
  const auto are_large = [&](const auto& type) { return !type || std::ranges::all_of(type->sizes, is_large); };
  return std::ranges::all_of(call.results, is_large) && std::ranges::all_of(call.types, are_large);
}

std::vector<Neighbor> neighbors_in(const SizedCall& call, const std::vector<std::int64_t>& traced,
                                   const SizeProbes::Admits& admits) {
  constexpr std::size_t kMost = 64;
  constexpr std::int64_t kLargest = std::int64_t{1} << 31U;  // `x[1:]` ends at the largest integer
  std::vector<Neighbor> neighbors;
  ir::Dims sizes = distinct_sizes(call);
  if (!is_among(2, sizes)) sizes.emplace_back(2);
  for (const ir::Dim& size : sizes) {
    std::vector<std::uint32_t> symbols;
    ir::add_symbols(size, symbols);
    for (const std::uint32_t symbol : symbols) {
      for (const ir::Dim& other : sizes) {
        std::vector<std::uint32_t> others;
        ir::add_symbols(other, others);
        const bool is_size = other.hint >= 2 && other.hint <= kLargest;
        const bool is_bound = std::ranges::find(others, symbol) != others.end();
        for (std::int64_t distance = -1; distance <= 1 && is_size && !is_bound; ++distance) {
          const std::int64_t target = other.hint + distance;
          if (target < 2 || target == size.hint || neighbors.size() >= kMost) continue;
          auto found = solve(size, target, symbol, traced);
          if (!found || !admits(*found) || !has_sizes_of_two(call, *found)) continue;
          neighbors.push_back({size, other, distance, *std::move(found)});
        }
      }
    }
  }
  return neighbors;
}

/// That a size is beyond a neighbor, on the side that was traced.
ir::Condition beyond(const Neighbor& neighbor) {
  using Kind = ir::Condition::Kind;
  const ir::Dim place = neighbor.other + ir::Dim(neighbor.distance);
  if (neighbor.size.hint > place.hint) return {Kind::kAtMost, place + ir::Dim(1), neighbor.size};
  return {Kind::kAtMost, neighbor.size + ir::Dim(1), place};
}

}  // namespace

std::optional<ir::Trace> SizeProbes::record(const SizedCall& call, ir::SymbolValues symbols) const {
  std::string refusal = take_refusal();
  std::optional<ir::Trace> trace;
  try {
    Recorder recorder(blank_.blank(), host_);
    torch::jit::Stack stack;
    std::size_t next = 0;
    const auto tensor_at = [&](const at::Tensor& tensor) {
      if (!tensor.defined() || next >= call.types.size()) return tensor;
      const auto& type = call.types[next++];
      return type ? recorder.add_input(ir::make_type(type_at(*type, symbols, call.op.schema().is_mutable()))) : tensor;
    };
    for (const IValue& argument : call.arguments) {
      stack.push_back(with_numbers(map_tensors(argument, tensor_at), symbols));
    }
    ir::ArgumentList outputs;
    {
      const RecordTop recording(recorder);
      // A derivative takes a composite apart: what its code decides on shows in the parts.
      if (is_composite(call.op) && !call.op.schema().is_mutable()) {
        recorder.call_parts(call.op, stack);
      } else {
        call.op.callBoxed(stack);
      }
      for (const at::Tensor& result : tensors_of(stack)) {
        if (trace_impl(result) != nullptr) outputs.emplace_back(recorder.value_of(result));
      }
    }
    trace = recorder.finish(std::move(outputs));
    keep_errors(*trace);
  } catch (const std::exception&) {
    if (forget_python_error != nullptr) forget_python_error();
  }
  static_cast<void>(take_refusal());
  if (!refusal.empty()) note_refusal(std::move(refusal));
  return trace;
}

std::vector<ir::Trace> SizeProbes::record_samples(const SizedCall& call, const ir::SizeFit& fit) const {
  const ir::SizeSamples& samples = fit.samples();
  std::vector<ir::Trace> traces(samples.size(), blank_);
  for (const std::size_t i : ir::from_small_to_large(samples)) {
    std::optional<ir::Trace> trace = record(call, samples[i]);
    // An operation that goes over the steps of a sequence does more for a longer one.
    if (!trace || (i != 0 && trace->symbols.size() != traces[0].symbols.size())) return {};
    traces[i] = *std::move(trace);
  }
  return traces;
}

bool SizeProbes::is_known(const SizedCall& call) {
  std::ostringstream key;
  key << call.op.operator_name();
  const auto add_dims = [&](const ir::Dims& dims) {
    for (const ir::Dim& dim : dims) key << ' ' << (dim.is_concrete() ? std::to_string(dim.hint) : ir::to_string(dim));
  };
  for (const auto& type : call.types) {
    key << ';';
    if (!type) continue;
    key << static_cast<int>(type->dtype) << type->requires_grad << ':';
    add_dims(type->sizes);
    key << ':';
    add_dims(type->strides);
  }
  for (const IValue& argument : call.arguments) {
    key << ',';
    add_dims(sizes_in(argument));
    const bool is_plain = argument.isBool() || argument.isDouble() || argument.isString() || argument.isNone();
    if (is_plain) key << argument;
  }
  return !known_.insert(std::move(key).str()).second;
}

std::vector<ir::Condition> SizeProbes::look_at(const SizedCall& call, ir::SizeFit& fit, const Admits& admits,
                                               const ir::AreAlike& are_alike) {
  if (is_known(call)) return {};
  const std::vector<Neighbor> neighbors = neighbors_in(call, fit.samples()[0], admits);
  if (neighbors.empty()) return {};
  const std::vector<ir::Trace> traces = record_samples(call, fit);
  if (traces.empty()) return {};
  std::optional<ir::Trace> general;
  try {
    general = ir::generalize(traces, fit, are_alike);
  } catch (const UserError&) {
    return {};  // nor has the program a trace for all sizes
  }
  std::vector<ir::Condition> conditions;
  std::map<std::vector<std::int64_t>, bool> is_alike;
  for (const Neighbor& neighbor : neighbors) {
    const auto [place, is_new] = is_alike.try_emplace(neighbor.symbols);
    if (is_new) {
      const std::optional<ir::Trace> trace = record(call, neighbor.symbols);
      place->second = trace && ir::is_at_sizes(*general, neighbor.symbols, *trace, are_alike);
    }
    if (!place->second) conditions.push_back(beyond(neighbor));
  }
  return conditions;
}

}  // namespace thunder::tracer
