#include "dispatch/specialization.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "bridge/number.h"
#include "bridge/random.h"
#include "dispatch/errors.h"
#include "dispatch/gil.h"
#include "dispatch/python_tensor.h"
#include "runtime/value_changed.h"

namespace thunder::dispatch {
namespace {

PyObject* to_number(const c10::Scalar& number) {
  if (number.isBoolean()) return PyBool_FromLong(number.toBool() ? 1 : 0);
  return number.isFloatingPoint() ? PyFloat_FromDouble(number.toDouble()) : PyLong_FromLongLong(number.toLong());
}

}  // namespace

SpecializationCall::SpecializationCall(const Specialization& specialization, const interpreter::GuardTree& tree,
                                       const interpreter::GuardRun& found, std::size_t index)
    : specialization_(specialization), inputs_(specialization.tensors.size()) {
  tree.inputs(found, index, inputs_.data());
  for (const std::uint32_t external : specialization.structure.externals()) {
    kept_.push_back(py::Ref::share(tree.loaded(found, index, external)));
    externals_.push_back(kept_.back().get());
  }
  for (const std::uint32_t returned : specialization.returned_inputs) {
    kept_.push_back(py::Ref::share(inputs_[returned]));
  }
  values_.reserve(inputs_.size());
  for (PyObject* input : inputs_) values_.push_back(unpack_tensor(input));
}

std::vector<at::Tensor> SpecializationCall::take_inputs() {
  with_new_history_ = specialization_.writes.with_new_history(values_);
  written_ = specialization_.writes.written(values_);
  versions_ = sum_of_versions(written_);
  for (const std::uint32_t leaf : specialization_.new_leaves) values_[leaf].set_requires_grad(true);
  return std::move(values_);
}

PyObject* SpecializationCall::finish(std::vector<at::Tensor> computed) const {
  set_history(with_new_history_, computed);
  const auto& histories = specialization_.histories;
  for (std::size_t i = 0; i < histories.size(); ++i) give_history(computed[i], histories[i]);
  References owned;
  Pointers outputs;
  std::size_t next_number = 0;
  for (std::size_t i = 0; i < computed.size(); ++i) {
    const auto& numbers = specialization_.number_outputs;
    const bool is_number = next_number < numbers.size() && numbers[next_number] == i;
    next_number += is_number ? 1 : 0;
    owned.push_back(py::Ref::steal(is_number ? to_number(bridge::unwrap_number(computed[i]))
                                             : wrap_tensor(std::move(computed[i]))));
    if (!owned.back()) return nullptr;
    outputs.push_back(owned.back().get());
  }
  PyObject* result = specialization_.structure.build({outputs.data(), inputs_.data(), externals_.data()});
  if (specialization_.grad_mode_after != specialization_.state.grad_mode) {
    c10::GradMode::set_enabled(specialization_.grad_mode_after);
  }
  return result;
}

Specialization::Outcome Specialization::run(const interpreter::GuardTree& tree, const interpreter::GuardRun& found,
                                            std::size_t index) const {
  SpecializationCall call(*this, tree, found, index);
  if (!call.memory_matches()) return {Status::kMemoryDiffers, nullptr};
  // A run that stops has drawn numbers; who runs in its place draws them again.
  const std::optional<at::Tensor> random =
      checks_values || draws_random ? std::make_optional(bridge::random_state()) : std::nullopt;
  std::vector<at::Tensor> computed;
  try {
    std::vector<at::Tensor> values = call.take_inputs();
    const GilRelease release(releases_gil);
    computed = computation->run(std::move(values));
  } catch (const runtime::ValueChanged&) {
    bridge::set_random_state(*random);
    return {Status::kValueChanged, nullptr};
  } catch (...) {
    set_python_error();
    if (call.may_have_written()) return {Status::kDone, nullptr};
    if (random) bridge::set_random_state(*random);
    return {Status::kRaised, nullptr};
  }
  try {
    return {Status::kDone, call.finish(std::move(computed))};
  } catch (...) {
    set_python_error();
    return {Status::kDone, nullptr};
  }
}

}  // namespace thunder::dispatch
