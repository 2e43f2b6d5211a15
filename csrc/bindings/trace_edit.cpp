// Traces read and rewritten from Python: `thunder.trace` has the classes that people see.
#include "ir/trace_edit.h"

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/python_values.h"
#include "bindings/trace_file.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "compile/block_kernels.h"
#include "compile/fusion_timing.h"
#include "dispatch/python/gil.h"
#include "dispatch/python/trace_object.h"
#include "executors/callback/callback_executor.h"
#include "fusion/region.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/shared_object.h"
#include "interpreter/traces/guard_primitives.h"
#include "ir/extraction.h"
#include "ir/printer.h"
#include "ir/splice.h"
#include "ir/symbol_values.h"
#include "ir/value_names.h"
#include "ir/verifier.h"
#include "tracer/operators.h"
#include "transforms/replay.h"

namespace thunder::bindings {
namespace {

const ir::TensorType& tensor_of(const TracedValue& value) {
  if (const auto* type = std::get_if<ir::TensorType>(value.type.get())) return *type;
  throw UserError(ErrorKind::kType, value.name + ": expected a tensor, got " + ir::to_string(*value.type));
}

python::tuple numbers(const ir::Dims& dims) { return python::tuple(python::cast(bridge::hints(dims))); }

/// A trace with what reading it needs more than once.
class TraceView {
 public:
  explicit TraceView(std::shared_ptr<const ir::Trace> trace) : trace_(std::move(trace)), names_(*trace_) {}

  [[nodiscard]] const ir::Trace& trace() const { return *trace_; }
  [[nodiscard]] TracedValue value(ir::ValueId id) const {
    std::string name;
    names_.append(name, id);
    return {id, trace_->value(id).type, std::move(name)};
  }
  [[nodiscard]] python::object show(const ir::Argument& argument) const {
    return to_python(argument, *trace_, [this](ir::ValueId id) { return python::cast(value(id)); });
  }

 private:
  std::shared_ptr<const ir::Trace> trace_;
  ir::ValueNames names_;
};

std::shared_ptr<TraceView> make_view(const python::object& native) {
  auto trace = dispatch::share_trace(native.ptr());
  if (trace == nullptr) throw UserError(ErrorKind::kType, "expected a trace");
  return std::make_shared<TraceView>(std::move(trace));
}

/// A symbol of a trace: its place in it.
struct SymbolView {
  std::shared_ptr<TraceView> view;
  std::size_t index = 0;

  [[nodiscard]] const ir::BoundSymbol& symbol() const { return view->trace().symbols[index]; }
  [[nodiscard]] PythonCall call() const {
    return call_of(symbol(), view->trace(), [this](ir::ValueId id) { return python::cast(view->value(id)); });
  }
  [[nodiscard]] python::list results() const {
    python::list values;
    for (const ir::Argument& result : symbol().results) values.append(view->show(result));
    return values;
  }
  [[nodiscard]] python::object file() const {
    return symbol().location.file == nullptr ? python::none() : python::object(python::str(*symbol().location.file));
  }
};

/// Records what `function` does to trace tensors for values of a trace.
ir::Trace record_part(const ir::Trace& owner, const std::vector<TracedValue>& inputs,
                      const python::function& function) {
  transforms::RecordedInputs described;
  for (const TracedValue& input : inputs) {
    ir::TensorType type = tensor_of(input);
    // Where gradients were taken already, operations of the trace have none.
    if (owner.kind() == ir::TraceKind::kForward || owner.kind() == ir::TraceKind::kBackward) type.requires_grad = false;
    described.types.push_back(ir::make_type(std::move(type)));
  }
  return transforms::record(owner.blank(), "edit", described, [&](const std::vector<at::Tensor>& trace_tensors) {
    const interpreter::NativeScope native;
    return tensors_in(function(python::cast(trace_tensors)));
  });
}

class Edit {
 public:
  Edit(std::shared_ptr<TraceView> view, std::string step)
      : view_(std::move(view)), step_(std::move(step)), edit_(view_->trace(), step_) {}

  std::vector<std::optional<TracedValue>> insert(std::size_t position, const std::vector<TracedValue>& inputs,
                                                 const python::function& function) {
    const ir::Trace part = record_part(view_->trace(), inputs, function);
    std::vector<ir::Argument> values;
    for (const TracedValue& input : inputs) values.emplace_back(input.id);
    std::vector<std::optional<TracedValue>> results;
    for (const ir::Argument& output : edit_.insert(position, part, values, location_near(position))) {
      const auto* id = output.get<ir::ValueId>();
      results.push_back(id == nullptr ? std::nullopt : std::make_optional(value(*id)));
    }
    return results;
  }

  /// One symbol that calls `function` with the values in the place of the symbols at `positions`.
  std::vector<TracedValue> fuse(const std::vector<std::size_t>& positions, const std::vector<TracedValue>& inputs,
                                const std::vector<TracedValue>& outputs, const python::object& function,
                                const std::string& name) {
    ir::BoundSymbol fused;
    fused.op = executors::callback::fusion_operator();
    fused.comment = name;
    fused.location = location_near(positions.back());
    const auto object = view_->trace().context()->add_object(
        {ir::ObjectKind::kPythonObject, interpreter::share_object(function.ptr()), name});
    ir::ArgumentList arguments;
    for (const TracedValue& input : inputs) arguments.emplace_back(input.id);
    fused.arguments = {ir::Argument(object), std::move(arguments)};
    ir::ArgumentList results;
    std::vector<TracedValue> made;
    for (const TracedValue& output : outputs) {
      const ir::ValueId id = edit_.add_value(output.type);
      results.emplace_back(id);
      made.push_back(value(id));
      edit_.substitute(output.id, id);
    }
    fused.results.emplace_back(std::move(results));
    for (const std::size_t position : positions) edit_.remove(position);
    edit_.insert(positions.back() + 1, std::move(fused));
    return made;
  }

  void remove(std::size_t position) { edit_.remove(position); }
  void substitute(const TracedValue& from, const TracedValue& to) {
    const auto* before = std::get_if<ir::TensorType>(from.type.get());
    const auto* after = std::get_if<ir::TensorType>(to.type.get());
    if (before != nullptr && after != nullptr && after->requires_grad && !before->requires_grad) {
      throw UserError(ErrorKind::kValue, step_ + ": expected a value that does not require grad in the place of " +
                                             from.name + ", got one that does: what reads it was recorded without");
    }
    edit_.substitute(from.id, to.id);
  }
  [[nodiscard]] std::size_t input_count() const { return edit_.values().inputs.size(); }
  [[nodiscard]] std::size_t output_count() const { return edit_.values().outputs.size(); }
  void set_output(std::size_t index, const TracedValue& value) { edit_.set_output(index, value.id); }
  TracedValue set_input(std::size_t index, const TracedValue& like) { return value(edit_.set_input(index, like.type)); }

  TracedValue set_input_like(std::size_t index, const at::Tensor& like) {
    return value(edit_.set_input(index, ir::make_type(bridge::type_of(like))));
  }
  TracedValue add_input(const TracedValue& like) { return value(edit_.add_input(like.type)); }
  TracedValue add_input_like(const at::Tensor& like) {
    return value(edit_.add_input(ir::make_type(bridge::type_of(like))));
  }
  void remove_input(std::size_t index) { edit_.remove_input(index); }
  void remove_output(std::size_t index) { edit_.remove_output(index); }

  /// Returns a tensor, this very one and no copy of it, as one output more.
  TracedValue add_tensor(const at::Tensor& tensor) {
    ir::BoundSymbol symbol;
    symbol.op = tracer::tensor_constant_operator();
    symbol.arguments.emplace_back(bridge::add_tensor(*view_->trace().context(), tensor));
    const ir::ValueId id = edit_.add_value(ir::make_type(bridge::type_of(tensor)));
    symbol.results.emplace_back(id);
    edit_.insert(view_->trace().symbols.size(), std::move(symbol));
    edit_.add_output(id);
    return value(id);
  }

  std::size_t add_output(const TracedValue& value) {
    edit_.add_output(value.id);
    return edit_.values().outputs.size() - 1;
  }

  /// At the end of an epilogue: `function(module, name, outputs[index])`.
  void store(const python::object& function, const python::object& module, const std::string& name,
             std::int64_t index) {
    const ir::Argument output = add_made("get_item", {view_->trace().inputs.at(0), index});
    const ir::Argument arguments =
        add_made("make_tuple", {ir::ArgumentList{constant(module, "module"), ir::Argument(name), output}});
    const ir::Argument keywords = add_made("make_dict", {ir::ArgumentList{}});
    ir::BoundSymbol symbol;
    symbol.op = interpreter::primitive("call");
    symbol.arguments = {constant(function, "store_buffer"), arguments, keywords};
    edit_.insert(view_->trace().symbols.size(), std::move(symbol));
  }

  python::object finish() {
    const ir::Trace made = edit_.finish();
    try {
      ir::verify(made, step_);
    } catch (const InternalError& error) {
      throw UserError(ErrorKind::kValue, error.what());
    }
    return python::reinterpret_steal<python::object>(dispatch::make_trace_object(made));
  }

 private:
  ir::Argument constant(const python::object& object, const std::string& description) {
    return view_->trace().context()->add_object(
        {ir::ObjectKind::kPythonObject, interpreter::share_object(object.ptr()), description});
  }
  /// The result of a primitive at the end of an epilogue.
  ir::Argument add_made(const char* primitive, ir::ArgumentList arguments) {
    ir::BoundSymbol symbol;
    symbol.op = interpreter::primitive(primitive);
    symbol.arguments = std::move(arguments);
    const ir::ValueId id = edit_.add_value(ir::make_type(ir::ObjectType{"object"}));
    symbol.results.emplace_back(id);
    edit_.insert(view_->trace().symbols.size(), std::move(symbol));
    return id;
  }
  [[nodiscard]] ir::SourceLocation location_near(std::size_t position) const {
    const auto& symbols = view_->trace().symbols;
    return symbols.empty() ? ir::SourceLocation() : symbols[std::min(position, symbols.size() - 1)].location;
  }
  [[nodiscard]] TracedValue value(ir::ValueId id) const {
    return {id, edit_.values().value(id).type, "t" + std::to_string(index_of(id))};
  }

  std::shared_ptr<TraceView> view_;
  std::string step_;
  ir::TraceEdit edit_;
};

/// The trace of a function of tensors like these.
python::object record_function(const std::string& name, const std::vector<at::Tensor>& examples,
                               const python::function& function) {
  transforms::RecordedInputs described;
  for (const at::Tensor& example : examples) described.types.push_back(ir::make_type(bridge::type_of(example)));
  const ir::Trace origin(name, std::make_shared<ir::TraceContext>());
  ir::Trace made = transforms::record(origin, name, described, [&](const std::vector<at::Tensor>& trace_tensors) {
    const interpreter::NativeScope native;
    return tensors_in(function(python::cast(trace_tensors)));
  });
  return python::reinterpret_steal<python::object>(dispatch::make_trace_object(std::move(made)));
}

/// The symbols at `positions` as a trace of their own, with the values that it takes and those that others need of it.
python::tuple take_region(const std::shared_ptr<TraceView>& view, const std::vector<std::size_t>& positions,
                          const std::string& name) {
  const ir::Trace& trace = view->trace();
  std::vector<bool> inside(trace.symbols.size(), false);
  std::vector<bool> made(trace.value_count(), false), taken(trace.value_count(), false);
  ir::Trace region = ir::empty_part(trace, name);
  std::vector<TracedValue> inputs, outputs;
  for (const std::size_t position : positions) {
    const ir::BoundSymbol& symbol = trace.symbols.at(position);
    inside[position] = true;
    for (const ir::ValueId id : ir::distinct_values(symbol.arguments)) {
      if (made[index_of(id)] || taken[index_of(id)]) continue;
      taken[index_of(id)] = true;
      region.inputs.push_back(id);
      inputs.push_back(view->value(id));
    }
    for (const ir::ValueId id : ir::flat_results(symbol)) {
      if (id != ir::kNoValue) made[index_of(id)] = true;
    }
    region.add(symbol);
  }
  const auto need = [&](ir::ValueId id) {
    if (!made[index_of(id)]) return;
    made[index_of(id)] = false;
    region.outputs.emplace_back(id);
    outputs.push_back(view->value(id));
  };
  for (std::size_t i = 0; i < trace.symbols.size(); ++i) {
    if (inside[i]) continue;
    for (const ir::Argument& argument : trace.symbols[i].arguments) ir::for_each_value(argument, need);
  }
  for (const ir::Argument& output : trace.outputs) ir::for_each_value(output, need);
  ir::Trace renamed(name, trace.context());
  std::vector<ir::Argument> arguments;
  for (const ir::ValueId input : region.inputs) {
    arguments.emplace_back(renamed.add_input(trace.value(input).type, trace.value(input).name));
  }
  renamed.outputs = ir::splice(renamed, region, arguments);
  return python::make_tuple(python::reinterpret_steal<python::object>(dispatch::make_trace_object(std::move(renamed))),
                            inputs, outputs);
}

/// Seconds of a fusion of this build's executors, and of a copy of as many bytes; None: it is not on the CPU.
/// The operations of a block, those of blocks inside of it one by one.
void add_operations(const ir::BoundSymbol& block, std::vector<std::string>& names) {
  for (const ir::BoundSymbol& nested : block.nested) {
    if (nested.op->style == ir::CallStyle::kBlock) {
      add_operations(nested, names);
    } else {
      names.push_back(executors::callback::printed_name(*nested.op));
    }
  }
}

python::object timing_of(const SymbolView& self, int rounds) {
  std::optional<compile::FusionTiming> timing;
  {
    const python::gil_scoped_release release;
    timing = compile::time_fusion(self.symbol(), self.view->trace(), compile::with_fallback({}), rounds);
  }
  return timing ? python::make_tuple(timing->seconds, timing->copy_seconds) : python::object(python::none());
}

/// The operations of a block, each with its file and line.
python::list operations_of(const ir::BoundSymbol& block) {
  python::list operations;
  for (const ir::BoundSymbol& operation : block.nested) {
    const ir::SourceLocation& at = operation.location;
    const python::object file = at.file == nullptr ? python::object(python::none()) : python::str(*at.file);
    operations.append(python::make_tuple(executors::callback::printed_name(*operation.op), file, at.line));
  }
  return operations;
}

/// The kernels of a block, or those that its operations would have on a GPU: (beginning, text, launches, whether it is
/// compiled, operations).
python::list kernels_of(const SymbolView& self, bool on_gpu) {
  const ir::BoundSymbol& block = self.symbol();
  const ir::Trace& trace = self.view->trace();
  const auto found = on_gpu ? compile::block_kernels_on_gpu(block, trace) : compile::block_kernels(block, trace);
  const auto blocks = fusion::members_or_itself(block);
  python::list kernels;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const executors::KernelText& kernel = found[i];
    python::list launches;
    for (const auto& launch : kernel.launches) {
      launches.append(python::make_tuple(launch.function, launch.thread_blocks, launch.threads, launch.registers));
    }
    kernels.append(
        python::make_tuple(kernel.beginning, kernel.text, launches, kernel.is_compiled, operations_of(blocks[i])));
  }
  return kernels;
}

void define_value(python::module_& module) {
  python::class_<TracedValue>(module, "Value",
                              "A value of a trace: a tensor of which shape, dtype and device are known.")
      .def_readonly("name", &TracedValue::name)
      .def_property_readonly("shape", [](const TracedValue& value) { return numbers(tensor_of(value).sizes); })
      .def("stride", [](const TracedValue& value) { return numbers(tensor_of(value).strides); })
      .def_property_readonly("dtype", [](const TracedValue& value) { return bridge::to_torch(tensor_of(value).dtype); })
      .def_property_readonly("device",
                             [](const TracedValue& value) { return bridge::to_torch(tensor_of(value).device); })
      .def_property_readonly("requires_grad", [](const TracedValue& value) { return tensor_of(value).requires_grad; })
      .def_property_readonly("ndim", [](const TracedValue& value) { return tensor_of(value).sizes.size(); })
      .def_property_readonly(
          "is_tensor", [](const TracedValue& value) { return std::holds_alternative<ir::TensorType>(*value.type); })
      .def("dim", [](const TracedValue& value) { return tensor_of(value).sizes.size(); })
      .def("numel",
           [](const TracedValue& value) {
             std::int64_t count = 1;
             for (const ir::Dim& dim : tensor_of(value).sizes) count *= dim.hint;
             return count;
           })
      .def("__repr__", [](const TracedValue& value) { return value.name + ": \"" + ir::to_string(*value.type) + "\""; })
      .def("__hash__", [](const TracedValue& value) { return index_of(value.id); })
      .def("__eq__", [](const TracedValue& left, const python::object& right) {
        return python::isinstance<TracedValue>(right) && right.cast<TracedValue>().id == left.id;
      });
}

void define_symbol(python::module_& module) {
  python::class_<SymbolView>(module, "BoundSymbol", "An operation of a trace, applied to arguments.")
      .def_readonly("index", &SymbolView::index)
      .def_property_readonly(
          "name", [](const SymbolView& self) { return executors::callback::printed_name(*self.symbol().op); })
      .def_property_readonly(
          "is_operator",
          [](const SymbolView& self) { return self.symbol().op->style == ir::CallStyle::kTorchOperator; })
      .def_property_readonly("args", [](const SymbolView& self) { return self.call().positional; })
      .def_property_readonly("kwargs", [](const SymbolView& self) { return self.call().keywords; })
      .def_property_readonly("results", &SymbolView::results)
      .def_property_readonly("file", &SymbolView::file)
      .def_property_readonly("line", [](const SymbolView& self) { return self.symbol().location.line; })
      .def_property_readonly("nested",
                             [](const SymbolView& self) {
                               std::vector<std::string> names;
                               add_operations(self.symbol(), names);
                               return names;
                             })
      .def_property_readonly("comment", [](const SymbolView& self) { return self.symbol().comment; })
      .def("timing", &timing_of)
      .def("kernels", &kernels_of, python::kw_only(), python::arg("on_gpu") = false)
      .def("__str__", [](const SymbolView& self) { return ir::print(self.symbol(), self.view->trace()); });
}

}  // namespace

void init_trace(python::module_& module) {
  python::module_ trace = module.def_submodule("trace", "Traces read and rewritten from Python; see thunder.trace.");
  define_value(trace);
  define_symbol(trace);
  python::class_<TraceView, std::shared_ptr<TraceView>>(trace, "View")
      .def(python::init(&make_view))
      .def("__len__", [](const TraceView& self) { return self.trace().symbols.size(); })
      .def("symbol", [](const std::shared_ptr<TraceView>& self, std::size_t i) { return SymbolView{self, i}; })
      .def_property_readonly("inputs",
                             [](const TraceView& self) {
                               std::vector<TracedValue> values;
                               for (const ir::ValueId id : self.trace().inputs) values.push_back(self.value(id));
                               return values;
                             })
      .def_property_readonly("outputs", [](const TraceView& self) {
        python::list values;
        for (const ir::Argument& output : self.trace().outputs) values.append(self.show(output));
        return values;
      });
  python::class_<Edit>(trace, "Edit")
      .def(python::init<std::shared_ptr<TraceView>, std::string>())
      .def("insert", &Edit::insert)
      .def("fuse", &Edit::fuse)
      .def("remove", &Edit::remove)
      .def("substitute", &Edit::substitute)
      .def("input_count", &Edit::input_count)
      .def("output_count", &Edit::output_count)
      .def("set_output", &Edit::set_output)
      .def("set_input", &Edit::set_input)
      .def("set_input", &Edit::set_input_like)
      .def("add_input", &Edit::add_input)
      .def("add_input", &Edit::add_input_like)
      .def("remove_input", &Edit::remove_input)
      .def("add_tensor", &Edit::add_tensor)
      .def("remove_output", &Edit::remove_output)
      .def("add_output", &Edit::add_output)
      .def("store", &Edit::store)
      .def("finish", &Edit::finish);
  trace.def("record", &record_function);
  trace.def("region", &take_region);
  define_trace_file(trace);
}

}  // namespace thunder::bindings
