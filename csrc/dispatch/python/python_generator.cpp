#include "dispatch/python/python_generator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "dispatch/python/errors.h"
#include "dispatch/python/gil.h"
#include "interpreter/loop/native_scope.h"
#include "tracer/host_generator.h"

namespace thunder::dispatch {
namespace {

py::Ref to_python(const c10::Scalar& number) {
  return checked(number.isIntegral(false) ? PyLong_FromLongLong(number.toLong())
                                          : PyFloat_FromDouble(number.toDouble()));
}

c10::Scalar to_scalar(PyObject* number) {
  const c10::Scalar scalar =
      PyLong_Check(number) ? c10::Scalar(PyLong_AsLongLong(number)) : c10::Scalar(PyFloat_AsDouble(number));
  if (PyErr_Occurred() != nullptr) throw PendingError();
  return scalar;
}

/// A tensor that keeps an object of Python, which its one number is the address of.
at::Tensor wrap(py::Ref object) {
  auto* kept = new PyObject*(object.release());
  const auto release = [](void* place) {
    const GilHold gil;
    auto* kept = static_cast<PyObject**>(place);
    Py_DECREF(*kept);
    delete kept;
  };
  return at::from_blob(kept, {1}, release, at::TensorOptions(at::kLong));
}

/// The state of CPython's generator, which lies in the object as it is: an index and 624 words. By `getstate` it would
/// be 625 objects, at each call.
std::span<char> memory_of(PyObject* object, PyTypeObject* native) {
  constexpr Py_ssize_t kWords = 624 * sizeof(std::uint32_t) + sizeof(int);
  const bool is_known = std::string_view(native->tp_name) == "_random.Random" &&
                        native->tp_base == &PyBaseObject_Type &&
                        native->tp_basicsize - static_cast<Py_ssize_t>(sizeof(PyObject) + kWords) < 8 &&
                        native->tp_basicsize >= static_cast<Py_ssize_t>(sizeof(PyObject) + kWords);
  if (!is_known) return {};
  return {reinterpret_cast<char*>(object) + sizeof(PyObject), static_cast<std::size_t>(kWords)};
}

/// Runs code that calls Python, which the program that is traced is no part of.
template <typename Code>
auto outside_of_program(const Code& code) {
  const GilHold gil;
  const interpreter::NativeScope native;
  try {
    return code();
  } catch (const PendingError&) {
    throw_carrier();
  }
}

class PythonGenerator final : public tracer::HostGenerator {
 public:
  PythonGenerator(PyObject* object, const GeneratorMethods& methods)
      : methods_(methods), object_(py::Ref::share(object)) {
    const py::Ref module = checked(PyImport_ImportModule(methods.module));
    type_ = checked(PyObject_GetAttrString(module.get(), methods.type));
  }

  c10::Scalar draw(const std::string& method, c10::ArrayRef<c10::Scalar> arguments) override {
    return outside_of_program([&] {
      const py::Ref all = checked(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), to_python(arguments[i]).release());
      }
      return to_scalar(call(method.c_str(), all.get()).get());
    });
  }

  void set_state(const c10::TensorImpl& state) override {
    outside_of_program([&] {
      if (const std::span<char> memory = this->memory(); !memory.empty()) {
        std::memcpy(memory.data(), state.data(), memory.size());
        return;
      }
      PyObject* given = *static_cast<PyObject* const*>(state.data());
      if (methods_.get_state == nullptr) {
        if (PyObject_SetAttrString(source().get(), "state", given) < 0) throw PendingError();
        return;
      }
      const py::Ref arguments = checked(PyTuple_Pack(1, given));
      static_cast<void>(call(methods_.set_state, arguments.get()));
    });
  }
  [[nodiscard]] c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return outside_of_program([&] {
      if (const std::span<char> memory = this->memory(); !memory.empty()) {
        at::Tensor state = at::empty({static_cast<std::int64_t>(memory.size())}, at::TensorOptions(at::kByte));
        std::memcpy(state.mutable_data_ptr(), memory.data(), memory.size());
        return state.getIntrusivePtr();
      }
      if (methods_.get_state == nullptr) {
        return wrap(checked(PyObject_GetAttrString(source().get(), "state"))).getIntrusivePtr();
      }
      const py::Ref none = checked(PyTuple_New(0));
      return wrap(call(methods_.get_state, none.get())).getIntrusivePtr();
    });
  }

  void release_resources() override;

 private:
  [[nodiscard]] std::span<char> memory() const {
    return memory_of(object_.get(), reinterpret_cast<PyTypeObject*>(type_.get()));
  }
  [[nodiscard]] py::Ref source() const { return checked(PyObject_GetAttrString(object_.get(), methods_.source)); }
  /// A method of the class in C, whatever a class in Python makes of it.
  [[nodiscard]] py::Ref call(const char* method, PyObject* arguments) const {
    const bool is_own = PyObject_HasAttrString(type_.get(), method) != 0;
    PyObject* owner = is_own ? type_.get() : reinterpret_cast<PyObject*>(Py_TYPE(object_.get()));
    const py::Ref function = checked(PyObject_GetAttrString(owner, method));
    const py::Ref self = checked(PyTuple_Pack(1, object_.get()));
    const py::Ref all = checked(PySequence_Concat(self.get(), arguments));
    return checked(PyObject_CallObject(function.get(), all.get()));
  }

  const GeneratorMethods& methods_;
  py::Ref object_;
  py::Ref type_;
};

/// Guarded by the GIL.
std::unordered_map<PyObject*, c10::weak_intrusive_ptr<c10::GeneratorImpl>>& generators() {
  static auto* const table = new std::unordered_map<PyObject*, c10::weak_intrusive_ptr<c10::GeneratorImpl>>;
  return *table;
}

/// Null where nobody has one of the object.
c10::intrusive_ptr<c10::GeneratorImpl> known_generator(PyObject* object) {
  const auto known = generators().find(object);
  return known == generators().end() ? c10::intrusive_ptr<c10::GeneratorImpl>() : known->second.lock();
}

/// Called when nobody has it any longer, on any thread; meanwhile another one may have been made for the object.
void PythonGenerator::release_resources() {
  if (Py_IsInitialized() == 0) {
    static_cast<void>(object_.release());
    static_cast<void>(type_.release());
    return;
  }
  const GilHold gil;
  const auto known = generators().find(object_.get());
  if (known != generators().end() && known->second._unsafe_get_target() == this) generators().erase(known);
  object_ = py::Ref();
  type_ = py::Ref();
}

}  // namespace

at::Generator generator_of(PyObject* object, const GeneratorMethods& methods) {
  if (auto known = known_generator(object)) return at::Generator(std::move(known));
  at::Generator made(c10::make_intrusive<PythonGenerator>(object, methods));
  // Another thread may have made one meanwhile.
  if (auto known = known_generator(object)) return at::Generator(std::move(known));
  generators().insert_or_assign(object, c10::weak_intrusive_ptr<c10::GeneratorImpl>(made.getIntrusivePtr()));
  return made;
}

}  // namespace thunder::dispatch
