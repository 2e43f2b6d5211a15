// Traces in files: `thunder.trace` has the methods that people see.
#include "bindings/trace_file.h"

#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "compile/pass_runner.h"
#include "dispatch/capture/host_random.h"
#include "dispatch/python/python_tensor.h"
#include "dispatch/python/trace_object.h"
#include "executors/callback/callback_executor.h"
#include "fusion/buffer_assignment.h"
#include "fusion/region.h"
#include "interpreter/python/shared_object.h"
#include "interpreter/traces/guard_primitives.h"
#include "ir/equality.h"
#include "ir/location.h"
#include "ir/printer.h"
#include "ir/serialization.h"
#include "tracer/custom_gradient.h"
#include "tracer/data_dependence.h"
#include "tracer/numbers.h"
#include "tracer/operators.h"
#include "tracer/python_function.h"

namespace thunder::bindings {
namespace {

const ir::Operator* find_any_operator(const std::string& name, const std::string& overload) {
  static const std::vector<const ir::Operator*> kPrimitives = primitive_operators();
  const auto found = std::ranges::find(kPrimitives, name, [](const ir::Operator* op) { return op->name; });
  return found != kPrimitives.end() ? *found : tracer::find_operator(name, overload);
}

std::string name_of(ir::ObjectConstant object) { return "object" + std::to_string(object.index); }

const ir::Trace& trace_of(const python::object& native) {
  const ir::Trace* trace = dispatch::trace_in(native.ptr());
  if (trace == nullptr) throw UserError(ErrorKind::kType, "expected a trace");
  return *trace;
}

/// Also of custom gradients, which consist of operations.
const ir::ConstantStorage& constant_storage() {
  static const ir::ConstantStorage kStorage = [] {
    ir::ConstantStorage storage = bridge::constant_storage();
    storage.store_part = [](const ir::TraceContext::Object& object, const ir::Trace& trace) {
      return object.kind == ir::ObjectKind::kCustomGradient
                 ? std::optional(tracer::trace_of_gradient(
                       *static_cast<const tracer::CustomGradient*>(object.owner.get()), trace))
                 : std::nullopt;
    };
    storage.load_part = [](ir::ObjectKind kind, const ir::Trace& part) -> std::shared_ptr<void> {
      THUNDER_CHECK(kind == ir::ObjectKind::kCustomGradient, "bindings", "an object of another kind has operations");
      return std::make_shared<tracer::CustomGradient>(tracer::gradient_of_trace(part));
    };
    return storage;
  }();
  return kStorage;
}

python::bytes store(const python::object& native) {
  return python::bytes(ir::serialize(std::span(&trace_of(native), 1), constant_storage()));
}

/// The owner of an object that a person gives for a hole.
std::shared_ptr<void> owner_of(const std::string& name, ir::ObjectKind kind, const python::object& given) {
  const auto refuse = [&](const std::string& expected) {
    throw UserError(ErrorKind::kType, name + ": expected " + expected + ", got an object of type '" +
                                          Py_TYPE(given.ptr())->tp_name + "'");
  };
  switch (kind) {
    case ir::ObjectKind::kPythonObject:
      return interpreter::share_object(given.ptr());
    case ir::ObjectKind::kTensor:
      if (!dispatch::is_tensor(given.ptr())) refuse("a tensor");
      return std::make_shared<at::Tensor>(dispatch::unpack_tensor(given.ptr()));
    case ir::ObjectKind::kGenerator:
      if (THPGenerator_Check(given.ptr()))
        return std::make_shared<c10::IValue>(reinterpret_cast<THPGenerator*>(given.ptr())->cdata);
      if (const auto* methods = dispatch::generator_methods_of(given.ptr()))
        return std::make_shared<c10::IValue>(dispatch::generator_of(given.ptr(), *methods));
      refuse("a generator of torch, random or numpy.random");
      break;
    case ir::ObjectKind::kDispatcherValue:
    case ir::ObjectKind::kCustomGradient:
    case ir::ObjectKind::kPythonFunction:
      break;
  }
  refuse("nothing, as a " + std::string(to_string(kind)) + " belongs to the process that traced it");
  return nullptr;
}

python::object load(const std::string& bytes, const std::map<std::string, python::object>& objects) {
  std::vector<ir::Trace> traces = ir::deserialize(bytes, &find_any_operator, constant_storage());
  if (traces.size() != 1) {
    throw UserError(ErrorKind::kValue, "expected one stored trace, got " + std::to_string(traces.size()));
  }
  const std::vector<ir::Hole> holes = ir::holes_of(traces[0]);
  for (const auto& [name, given] : objects) {
    const auto hole = std::ranges::find(holes, name, [](const ir::Hole& each) { return name_of(each.object); });
    if (hole == holes.end()) {
      std::string expected;
      for (const ir::Hole& each : holes) expected += (expected.empty() ? "" : ", ") + name_of(each.object);
      throw UserError(ErrorKind::kValue, "objects: expected names among " + expected + ", got " + name);
    }
    ir::TraceContext::Object& object = traces[0].context()->objects[hole->object.index];
    object.owner = owner_of(name, object.kind, given);
  }
  return python::reinterpret_steal<python::object>(dispatch::make_trace_object(std::move(traces[0])));
}

/// Name -> what it was, and the line that uses it.
std::map<std::string, std::string> missing_objects(const python::object& native) {
  const ir::Trace& trace = trace_of(native);
  std::map<std::string, std::string> missing;
  for (const ir::Hole& hole : ir::holes_of(trace)) {
    missing[name_of(hole.object)] =
        trace.context()->objects[hole.object.index].description + ir::describe_line(hole.location, " (", ")");
  }
  return missing;
}

/// Results for tests: traces that were stored and loaded as programs were compiled, on any thread.
struct RoundTrips {
  std::mutex mutex;
  std::size_t count = 0;
  std::vector<std::string> failures;
};

RoundTrips& round_trips() {
  static auto* const kRoundTrips = new RoundTrips;
  return *kRoundTrips;
}

bool has_same_objects(const ir::Trace& left, const ir::Trace& right) {
  const auto& store = constant_storage().store;
  const auto& loaded = right.context()->objects;
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    if (loaded[i].description.empty()) continue;  // the trace does not use it
    const ir::TraceContext::Object& object = left.context()->objects[i];
    if (object.kind != loaded[i].kind || object.description != loaded[i].description) return false;
    if (object.owner != nullptr && loaded[i].owner != nullptr) {
      const auto part = constant_storage().store_part(object, left);
      if (part && !ir::is_same(*part, *constant_storage().store_part(loaded[i], right))) return false;
      if (part) continue;
    }
    const auto content = object.owner == nullptr ? std::nullopt : store(object);
    if (content.has_value() != (loaded[i].owner != nullptr) || (content && content != store(loaded[i]))) return false;
  }
  return true;
}

/// nullopt: storing and loading gives the same trace.
std::optional<std::string> difference_of_round_trip(const ir::Trace& trace) {
  try {
    const std::string bytes = ir::serialize(std::span(&trace, 1), constant_storage());
    const ir::Trace loaded = ir::deserialize(bytes, &find_any_operator, constant_storage()).at(0);
    if (!ir::is_same(trace, loaded)) return "another trace is loaded";
    if (ir::hash_value(trace) != ir::hash_value(loaded)) return "the loaded trace has another hash";
    if (!has_same_objects(trace, loaded)) return "other objects are loaded";
    if (ir::print(trace, {.nested = true}) != ir::print(loaded, {.nested = true})) return "another text is loaded";
    if (ir::serialize(std::span(&loaded, 1), constant_storage()) != bytes) return "other bytes are stored";
  } catch (const std::exception& error) {
    return error.what();
  }
  return std::nullopt;
}

void note_round_trip(const ir::Trace& trace) {
  const auto difference = difference_of_round_trip(trace);
  const std::scoped_lock lock(round_trips().mutex);
  ++round_trips().count;
  if (difference) round_trips().failures.push_back(*difference + "\n" + ir::print(trace));
}

/// The count since the last call, and what went wrong.
python::tuple take_round_trips() {
  const std::scoped_lock lock(round_trips().mutex);
  return python::make_tuple(std::exchange(round_trips().count, 0), std::exchange(round_trips().failures, {}));
}

}  // namespace

std::vector<const ir::Operator*> primitive_operators() {
  std::vector<const ir::Operator*> operators = interpreter::primitives();
  operators.insert(
      operators.end(),
      {tracer::check_number_operator(), tracer::check_shape_operator(), tracer::check_contents_operator(),
       tracer::item_operator(), tracer::number_operator(), tracer::custom_gradient_operator(),
       tracer::python_function_operator(), tracer::set_apart_operator(), tracer::tensor_constant_operator(),
       executors::callback::fusion_operator(), fusion::fused_operator(), fusion::keep_operator()});
  return operators;
}

void define_trace_file(python::module_& module) {
  module.def("store", &store);
  module.def("load", &load);
  module.def("missing_objects", &missing_objects);
  module.def("check_round_trips",
             [](bool on) { compile::set_trace_check(on ? compile::TraceCheck(&note_round_trip) : nullptr); });
  module.def("take_round_trips", &take_round_trips);
}

}  // namespace thunder::bindings
