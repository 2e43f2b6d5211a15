#include "dispatch/capture/host_random.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

#include "dispatch/capture/substitutes.h"
#include "dispatch/numbers/number_object.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/python_tensor.h"
#include "tracer/aside_of_layers.h"

namespace thunder::dispatch {

/// A method that gives one number, when it is given numbers alone.
struct HostRandom::Method {
  const GeneratorMethods* generator;
  const char* function;  ///< below `generator->module`
  const char* name;      ///< by which it is called when the program runs
  bool gives_int;
  std::size_t least;  ///< arguments besides the generator
  std::size_t most;
};

namespace {

constexpr GeneratorMethods kPython{"_random", "Random", "getstate", "setstate"};
constexpr GeneratorMethods kNumpy{"numpy.random", "RandomState", "get_state", "set_state"};

/// A number as it stands in an operation, which the trace is tied to; nullopt: it is none that a scalar holds.
std::optional<c10::Scalar> constant_number(PyObject* argument) {
  const bool is_float = PyFloat_CheckExact(argument);
  if (!is_float && PyIndex_Check(argument) == 0) return std::nullopt;
  if (is_float) return c10::Scalar(PyFloat_AS_DOUBLE(argument));
  const py::Ref number = py::Ref::steal(PyNumber_Index(argument));
  int overflow = 0;
  const long long value = number ? PyLong_AsLongLongAndOverflow(number.get(), &overflow) : 0;
  if (!number) throw PendingError();
  return overflow == 0 ? std::make_optional(c10::Scalar(static_cast<std::int64_t>(value))) : std::nullopt;
}

}  // namespace

const GeneratorMethods* generator_methods_of(PyObject* object) {
  const auto has_class = [&](const char* module, const char* type) {
    const py::Ref known = loaded_function(module, type);
    return reinterpret_cast<PyObject*>(Py_TYPE(object)) == known.get();
  };
  if (has_class(kPython.module, kPython.type) || has_class("random", "Random")) return &kPython;
  return has_class(kNumpy.module, kNumpy.type) ? &kNumpy : nullptr;
}

int HostRandom::draw(const Method& method, PyObject* const* arguments, std::size_t count, PyObject* names,
                     PyObject** result) {
  constexpr std::int64_t kMostBits = 62;
  if (edges_.is_in_trial() || names != nullptr || count < method.least + 1 || count > method.most + 1) return 0;
  PyObject* object = arguments[0];
  if (generator_methods_of(object) != method.generator) return 0;
  try {
    std::vector<c10::Scalar> numbers;
    for (std::size_t i = 1; i < count; ++i) {
      const auto number = constant_number(arguments[i]);
      if (!number) return 0;
      numbers.push_back(*number);
    }
    const bool draws_bits = std::string_view(method.name) == "getrandbits";
    if (draws_bits && (numbers[0].toLong() < 0 || numbers[0].toLong() > kMostBits)) return 0;
    tracker_.reads().record_identity(object);
    const tracer::AsideOfLayers outermost;  // a number has no layers
    torch::jit::Stack stack{generator_of(object, *method.generator), method.name, std::move(numbers),
                            method.gives_int ? at::kLong : at::kDouble};
    c10::Dispatcher::singleton().findSchemaOrThrow("thunder::draw_number", "").callBoxed(stack);
    const py::Ref tensor = py::Ref::steal(wrap_tensor(stack.at(0).toTensor()));
    *result = tensor ? reads_.item(tensor.get()) : nullptr;
  } catch (...) {
    set_python_error();
    *result = nullptr;
  }
  return *result == nullptr ? -1 : 1;
}

void HostRandom::add_substitutes(interpreter::TrackerOptions& options) {
  static constexpr Method kMethods[] = {
      {&kPython, "Random.random", "random", false, 0, 0},
      {&kPython, "Random.getrandbits", "getrandbits", true, 1, 1},
      {&kNumpy, "RandomState.beta", "beta", false, 2, 2},
      {&kNumpy, "RandomState.exponential", "exponential", false, 0, 1},
      {&kNumpy, "RandomState.gamma", "gamma", false, 1, 2},
      {&kNumpy, "RandomState.normal", "normal", false, 0, 2},
      {&kNumpy, "RandomState.rand", "rand", false, 0, 0},
      {&kNumpy, "RandomState.randint", "randint", true, 1, 2},
      {&kNumpy, "RandomState.randn", "randn", false, 0, 0},
      {&kNumpy, "RandomState.random", "random", false, 0, 0},
      {&kNumpy, "RandomState.random_sample", "random_sample", false, 0, 0},
      {&kNumpy, "RandomState.standard_normal", "standard_normal", false, 0, 0},
      {&kNumpy, "RandomState.uniform", "uniform", false, 0, 2},
  };
  const auto add = [&](const char* module, const char* path, const Method& method) {
    const py::Ref function = loaded_function(module, path);
    if (!function) return;
    options.substitute(function.get(),
                       [this, &method](PyObject* const* arguments, std::size_t count, PyObject* names,
                                       PyObject** result) { return draw(method, arguments, count, names, result); });
  };
  for (const Method& method : kMethods) add(method.generator->module, method.function, method);
  // As a whole: the code in Python draws until a number is small enough.
  static constexpr Method kBelow{&kPython, "Random._randbelow", "_randbelow", true, 1, 1};
  add("random", "Random._randbelow_with_getrandbits", kBelow);
}

}  // namespace thunder::dispatch
