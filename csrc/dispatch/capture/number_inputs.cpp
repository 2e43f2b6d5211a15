#include "dispatch/capture/number_inputs.h"

#include <bit>
#include <cstdlib>

#include "dispatch/call/number_input.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/size_origin.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/python/python_tensor.h"
#include "ir/symbol_values.h"
#include "tracer/data_dependence.h"
#include "tracer/followed_data.h"
#include "tracer/numbers.h"

namespace thunder::dispatch {
namespace {

/// A check of whether something holds, and not of what a number is.
bool has_outcome(const ir::BoundSymbol& check) {
  return check.arguments.size() > 1 && check.arguments[1].get<bool>() != nullptr;
}

bool takes_any(const ir::BoundSymbol& symbol, const std::set<ir::ValueId>& values) {
  bool takes = false;
  for (const ir::Argument& argument : symbol.arguments) {
    ir::for_each_value(argument, [&](ir::ValueId value) { takes = takes || values.contains(value); });
  }
  return takes;
}

/// Whether a check is about a number, or one that is computed from it.
bool is_looked_at(const ir::Trace& trace, ir::ValueId number, bool may_compare) {
  std::set<ir::ValueId> numbers{number};
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    if (!takes_any(symbol, numbers)) continue;
    if (tracer::is_check(*symbol.op) && !(may_compare && has_outcome(symbol))) return true;
    for (const ir::ValueId result : ir::flat_results(symbol)) {
      if (tracer::is_number(trace, result)) numbers.insert(result);
    }
  }
  return false;
}

/// From two on, as a history takes smaller ones for sizes that never change.
std::int64_t code_of(std::int64_t number) { return 2 + 2 * std::abs(number) + (number < 0 ? 1 : 0); }
std::int64_t code_of(double number) {
  return 2 + static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(number) >> 1U);
}

}  // namespace

bool NumberInputs::has_changed(const std::string& path, std::int64_t code, const SizeHistory& history) {
  numbers_seen_[path] = {{code}};
  return !fixed_.contains(path) && !history.compare(path, {{code}}).sizes.empty();
}

at::Tensor NumberInputs::input_for(PyObject* number, const std::string& path, const SizeHistory* history,
                                   const tracer::SizeShadows* shadows) {
  if (PyFloat_CheckExact(number)) {
    const double value = PyFloat_AS_DOUBLE(number);
    const bool is_input =
        history != nullptr && may_be_number(value) && has_changed(value_path(path), code_of(value), *history);
    return is_input ? tensor_for_float(value) : at::Tensor();
  }
  const std::string key = number_path(path);
  int overflow = 0;
  const std::int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (history != nullptr && overflow == 0) seen_[key] = {{value}};
  const bool is_symbol = shadows != nullptr && may_be_symbol(number) && dynamic_.is_symbol(key, value);
  if (is_symbol) return tensor_for_int(value);
  const bool has_other =
      history != nullptr && may_be_held(number) && has_changed(value_path(path), code_of(value), *history);
  if (!has_other) return {};
  // An earlier attempt of this trace has pinned it, or an earlier trace.
  const auto symbols = dynamic_.symbols_of(key, {value});
  const bool is_pinned = history->is_pinned(key, 0) || (!symbols.empty() && !symbols[0]);
  return is_pinned ? tensor_holding_int(value) : at::Tensor();
}

bool NumberInputs::are_inputs(PyObject* sequence, const std::string& path, const SizeHistory* history,
                              const tracer::SizeShadows* shadows, int depth) {
  constexpr Py_ssize_t kMost = 16;  // shapes and lists of arguments have no more; others are data
  constexpr int kDeepest = 8;
  if (history == nullptr || Py_SIZE(sequence) > kMost || depth > kDeepest) return false;
  bool some_are = false;
  for (Py_ssize_t i = 0; i < Py_SIZE(sequence); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(sequence, i);
    const std::string item_path = path + "[" + std::to_string(i) + "]";
    const bool has_some = PyTuple_Check(item) ? are_inputs(item, item_path, history, shadows, depth + 1)
                                              : (PyLong_CheckExact(item) || PyFloat_CheckExact(item)) &&
                                                    input_for(item, item_path, history, shadows).defined();
    some_are = some_are || has_some;
  }
  return some_are;
}

bool NumberInputs::has_other_function(PyObject* function, const std::string& path, const SizeHistory* history) {
  if (history == nullptr) return false;
  const auto code_of_address = [](PyObject* object) { return code_of(reinterpret_cast<std::int64_t>(object)); };
  const std::string code = std::to_string(code_of_address(PyFunction_GET_CODE(function)));
  return has_changed("function " + code + " " + path, code_of_address(function), *history);
}

PyObject* NumberInputs::note(PyObject* real, const at::Tensor& traced, const std::string& path,
                             tracer::SizeShadows* shadows) {
  const at::Tensor& tensor = unpack_tensor(real);
  if (tensor.dim() == 0) {
    const bool is_float = tensor.scalar_type() == at::kDouble;
    const c10::Scalar value =
        is_float ? c10::Scalar(*tensor.const_data_ptr<double>()) : c10::Scalar(*tensor.const_data_ptr<std::int64_t>());
    if (shadows != nullptr) shadows->add_input(traced, {}, {});
    const tracer::Number number = tracer::FollowedData(recorder_).given(traced, value);
    numbers_of_inputs_.emplace(value_path(path), number.id);
    return make_traced_number(numbers_, number);
  }
  ints_.insert(real);
  const std::uint32_t symbol = dynamic_.add_number(real, number_path(path));
  shadows->add_input(traced, dynamic_.symbols_of(real), dynamic_.rule_of(real));
  NumbersOfSizes::add_int(symbol);
  shadows->note_int(symbol);
  return make_size_number(shadows->symbol(symbol));
}

bool NumberInputs::needs_constants(const ir::Trace& trace) {
  for (const auto& [path, number] : numbers_of_inputs_) {
    if (!is_looked_at(trace, number, !recorder_.data.full_graph)) continue;
    fixed_.insert(path);
    finds_fixed_ = true;
  }
  return finds_fixed_;
}

std::set<std::string> NumberInputs::constants(bool failed) const {
  std::set<std::string> fixed = fixed_;
  if (!failed || finds_fixed_) return fixed;
  for (const auto& [path, number] : numbers_of_inputs_) fixed.insert(path);
  return fixed;
}

void NumberInputs::remember(SizeHistory& history) const {
  for (const auto& [path, code] : numbers_seen_) {
    history.note(path, code);
    if (fixed_.contains(path)) history.pin(path, 0, {});
  }
}

}  // namespace thunder::dispatch
