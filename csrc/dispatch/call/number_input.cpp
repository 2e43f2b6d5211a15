#include "dispatch/call/number_input.h"

#include <ATen/EmptyTensor.h>

#include <cmath>
#include <limits>

#include "dispatch/python/local_part.h"

namespace thunder::dispatch {

bool may_be_symbol(PyObject* number) {
  constexpr long long kLargest = 1LL << 40U;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 && value >= 2 && value <= kLargest;
}

bool may_be_held(PyObject* number) {
  constexpr long long kLargest = 1LL << 53U;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
  return overflow == 0 && value >= -kLargest && value <= kLargest;
}

bool may_be_number(double number) {
  return !std::isfinite(number) || std::abs(number) <= std::numeric_limits<float>::max();
}

at::Tensor tensor_for_int(std::int64_t number) { return at::detail::empty_cpu({number, 0}, at::kByte); }

at::Tensor tensor_for_float(double number) {
  at::Tensor tensor = at::detail::empty_cpu({}, at::kDouble);
  *static_cast<double*>(tensor.unsafeGetTensorImpl()->mutable_data()) = number;
  return tensor;
}

at::Tensor tensor_holding_int(std::int64_t number) {
  at::Tensor tensor = at::detail::empty_cpu({}, at::kLong);
  *static_cast<std::int64_t*>(tensor.unsafeGetTensorImpl()->mutable_data()) = number;
  return tensor;
}

at::Tensor input_tensor(PyObject* found, bool holds_int) {
  if (PyLong_CheckExact(found)) {
    const long long number = PyLong_AsLongLong(found);
    return holds_int ? tensor_holding_int(number) : tensor_for_int(number);
  }
  return PyFloat_CheckExact(found) ? tensor_for_float(PyFloat_AS_DOUBLE(found)) : local_part(found);
}

}  // namespace thunder::dispatch
