#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Generator.h>

#include <utility>

#include "dispatch/capture/substitutes.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"

namespace thunder::dispatch {
namespace {

using c10::IValue;
using Handler = py::Ref (*)(const SubstitutedCall& call);

/// Calls an operator of ours, which is recorded.
torch::jit::Stack call_operator(const char* name, std::initializer_list<IValue> arguments) {
  torch::jit::Stack stack(arguments);
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
  return stack;
}

/// As PyTorch reads seeds: negative ones count from 2^64.
std::int64_t read_seed(py::Borrowed seed) {
  const py::Ref number = py::Ref::steal(PyNumber_Long(seed));
  if (!number) throw PendingError();
  return static_cast<std::int64_t>(PyLong_AsUnsignedLongLongMask(number.get()));
}

py::Ref default_generator() {
  const py::Ref module = py::Ref::steal(py::import_module("torch"));
  return py::Ref::steal(module ? PyObject_GetAttrString(module.get(), "default_generator") : nullptr);
}

/// The generator of a method call; none: PyTorch's default one, by which a trace names it.
IValue generator_of(const SubstitutedCall& call) {
  PyObject* self = call.arguments[0];
  const py::Ref standard = default_generator();
  return self == standard.get() ? IValue() : IValue(reinterpret_cast<THPGenerator*>(self)->cdata);
}

py::Ref manual_seed(const SubstitutedCall& call) {
  call_operator("thunder::manual_seed", {read_seed(call.find(0, "seed"))});
  return default_generator();
}

py::Ref generator_manual_seed(const SubstitutedCall& call) {
  call_operator("thunder::seed_generator", {generator_of(call), read_seed(call.find(1, "seed"))});
  return py::Ref::share(call.arguments[0]);
}

py::Ref state_of(const IValue& generator) {
  return py::Ref::steal(wrap_tensor(call_operator("thunder::generator_state", {generator}).at(0).toTensor()));
}

void set_state(const IValue& generator, py::Borrowed state) {
  if (state == nullptr || !is_tensor(state)) {
    PyErr_SetString(PyExc_TypeError, "set_state: expected a tensor");
    throw PendingError();
  }
  call_operator("thunder::set_generator_state", {generator, unpack_tensor(state)});
}

py::Ref get_rng_state(const SubstitutedCall&) { return state_of(IValue()); }
py::Ref generator_get_state(const SubstitutedCall& call) { return state_of(generator_of(call)); }

py::Ref set_rng_state(const SubstitutedCall& call) {
  set_state(IValue(), call.find(0, "new_state"));
  return py::Ref::share(Py_None);
}

py::Ref generator_set_state(const SubstitutedCall& call) {
  set_state(generator_of(call), call.find(1, "new_state"));
  return py::Ref::share(call.arguments[0]);
}

py::Ref make_generator(const SubstitutedCall& call) {
  c10::Device device(c10::kCPU);
  if (py::Borrowed given = call.find(0, "device"); given != nullptr && given != Py_None) {
    const py::Ref parsed = py::Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(&THPDeviceType), given));
    if (!parsed) throw PendingError();
    device = reinterpret_cast<THPDevice*>(parsed.get())->device;
  }
  return py::Ref::steal(THPGenerator_Wrap(call_operator("thunder::make_generator", {device}).at(0).toGenerator()));
}

struct RandomFunction {
  const char* function;  ///< below `torch`
  Handler handler;
  std::size_t least;  ///< arguments that it takes, `self` among them
  std::size_t most;
};
constexpr RandomFunction kRandomFunctions[] = {
    {"manual_seed", &manual_seed, 1, 1},
    {"random.manual_seed", &manual_seed, 1, 1},
    {"get_rng_state", &get_rng_state, 0, 0},
    {"set_rng_state", &set_rng_state, 1, 1},
    {"Generator", &make_generator, 0, 1},
    {"Generator.manual_seed", &generator_manual_seed, 2, 2},
    {"Generator.get_state", &generator_get_state, 1, 1},
    {"Generator.set_state", &generator_set_state, 2, 2},
};

int run(Handler handler, const SubstitutedCall& call, PyObject** result) {
  try {
    *result = handler(call).release();
  } catch (...) {
    set_python_error();
    *result = nullptr;
  }
  return *result == nullptr ? -1 : 1;
}

}  // namespace

void add_random_substitutes(interpreter::TrackerOptions& options) {
  for (const RandomFunction& row : kRandomFunctions) {
    const py::Ref function = loaded_function("torch", row.function);
    if (!function) continue;
    options.substitute(
        function.get(), [&row](PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result) {
          const std::size_t given = count + (names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names)));
          if (given < row.least || given > row.most) return 0;  // PyTorch raises
          return run(row.handler, {arguments, count, names}, result);
        });
  }
}

}  // namespace thunder::dispatch
