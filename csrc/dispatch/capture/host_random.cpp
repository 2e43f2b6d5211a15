#include "dispatch/capture/host_random.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
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
  std::int64_t most_bits = 0;  ///< that the first argument may ask for; zero: it asks for none
};

namespace {

constexpr GeneratorMethods kPython{"_random", "Random", "getstate", "setstate"};
constexpr GeneratorMethods kNumpy{"numpy.random", "RandomState", "get_state", "set_state", "_bit_generator"};
constexpr GeneratorMethods kNumpyGenerator{"numpy.random", "Generator", nullptr, nullptr, "bit_generator"};

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
  if (has_class(kNumpy.module, kNumpy.type)) return &kNumpy;
  return has_class(kNumpyGenerator.module, kNumpyGenerator.type) ? &kNumpyGenerator : nullptr;
}

int HostRandom::draw(const Method& method, PyObject* const* arguments, std::size_t count, PyObject* names,
                     PyObject** result) {
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
    if (method.most_bits != 0 && (numbers[0].toLong() < 0 || numbers[0].toLong() > method.most_bits)) return 0;
    tracker_.reads().record_identity(object);
    const GeneratorMethods& generator = *method.generator;
    if (generator.source != nullptr) sources_.push_back(checked(PyObject_GetAttrString(object, generator.source)));
    const tracer::AsideOfLayers outermost;  // a number has no layers
    torch::jit::Stack stack{generator_of(object, generator), method.name, std::move(numbers),
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

void HostRandom::require_hidden_sources() const {
  const auto is_read = [this](const py::Ref& source) { return tracker_.provenance().find(source.get()) != nullptr; };
  if (std::ranges::none_of(sources_, is_read)) return;
  throw UserError(ErrorKind::kNotImplemented,
                  "thunder.jit: not supported inside a jitted function: a bit generator of NumPy that is read or "
                  "written where a generator draws from it; do that outside");
}

void HostRandom::add_substitutes(interpreter::TrackerOptions& options) {
  static constexpr Method kMethods[] = {
      {&kPython, "Random.random", "random", false, 0, 0},
      {&kPython, "Random.getrandbits", "getrandbits", true, 1, 1, 62},
      {&kNumpyGenerator, "Generator.beta", "beta", false, 2, 2},
      {&kNumpyGenerator, "Generator.binomial", "binomial", true, 2, 2},
      {&kNumpyGenerator, "Generator.exponential", "exponential", false, 0, 1},
      {&kNumpyGenerator, "Generator.gamma", "gamma", false, 1, 2},
      {&kNumpyGenerator, "Generator.lognormal", "lognormal", false, 0, 2},
      {&kNumpyGenerator, "Generator.normal", "normal", false, 0, 2},
      {&kNumpyGenerator, "Generator.poisson", "poisson", true, 0, 1},
      {&kNumpyGenerator, "Generator.random", "random", false, 0, 0},
      {&kNumpyGenerator, "Generator.standard_exponential", "standard_exponential", false, 0, 0},
      {&kNumpyGenerator, "Generator.standard_normal", "standard_normal", false, 0, 0},
      {&kNumpyGenerator, "Generator.uniform", "uniform", false, 0, 2},
      {&kNumpy, "RandomState.beta", "beta", false, 2, 2},
      {&kNumpy, "RandomState.binomial", "binomial", true, 2, 2},
      {&kNumpy, "RandomState.exponential", "exponential", false, 0, 1},
      {&kNumpy, "RandomState.gamma", "gamma", false, 1, 2},
      {&kNumpy, "RandomState.lognormal", "lognormal", false, 0, 2},
      {&kNumpy, "RandomState.normal", "normal", false, 0, 2},
      {&kNumpy, "RandomState.poisson", "poisson", true, 0, 1},
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
  // One draw for the function in Python, which draws until a number is small enough.
  static constexpr Method kBelow{&kPython, "Random._randbelow", "_randbelow", true, 1, 1};
  add("random", "Random._randbelow_with_getrandbits", kBelow);
}

}  // namespace thunder::dispatch
