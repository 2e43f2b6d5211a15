#include "dispatch/capture/call_transforms.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "bridge/constant.h"
#include "bridge/convert.h"
#include "compile/trace_transform.h"
#include "dispatch/call/overrides.h"
#include "dispatch/python/errors.h"
#include "dispatch/python/local_part.h"
#include "dispatch/python/python_tensor.h"
#include "interpreter/loop/interpret.h"
#include "interpreter/loop/native_scope.h"
#include "interpreter/python/shared_object.h"
#include "interpreter/traces/guard_primitives.h"
#include "interpreter/traces/guard_trace.h"
#include "ir/builder.h"
#include "ir/equality.h"
#include "ir/uses.h"
#include "tracer/data_dependence.h"
#include "tracer/operators.h"

namespace thunder::dispatch {
namespace {

using compile::CallTraces;
using compile::ProgramInput;
using InputState = TorchHooks::InputState;

/// The tensor that the computation takes.
at::Tensor real_of(const InputState& input) { return local_part(input.real.get()); }

std::string text_of(PyObject* string) {
  const char* content = PyUnicode_AsUTF8(string);
  if (content == nullptr) throw PendingError();
  return content;
}

/// For each input the names that it has in the module.
std::vector<std::vector<std::string>> names_of(PyObject* module, const TorchHooks& hooks) {
  const interpreter::NativeScope native;
  const py::Ref tensors = checked(PyList_New(0));
  for (const InputState& input : hooks.states()) {
    if (PyList_Append(tensors.get(), input.real.get()) < 0) throw PendingError();
  }
  const py::Ref function = overrides_function("names_of");
  const py::Ref lists = checked(PyObject_CallFunctionObjArgs(function.get(), module, tensors.get(), nullptr));
  std::vector<std::vector<std::string>> result;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(lists.get()); ++i) {
    PyObject* names = PyList_GET_ITEM(lists.get(), i);
    std::vector<std::string>& own = result.emplace_back();
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(names); ++k) own.push_back(text_of(PyList_GET_ITEM(names, k)));
  }
  return result;
}

/// The tensors that the prologue gives; the owner of one that the program reads has to use it. A part of a module need
/// not use what was added to another part, beside a tensor that both share.
std::vector<ProgramInput> inputs_of(const Traced& traced, const TorchHooks& hooks, const ir::Trace& computation) {
  PyObject* const part = PyMethod_Check(traced.callable) ? PyMethod_GET_SELF(traced.callable) : traced.callable;
  const std::vector<std::vector<std::string>> names = names_of(traced.module, hooks);
  const std::vector<std::vector<std::string>> own = part == traced.module ? names : names_of(part, hooks);
  const ir::Uses uses(computation);
  std::vector<ProgramInput> inputs;
  for (std::size_t i = 0; i < hooks.states().size(); ++i) {
    const Overrides::Entry* entry = hooks.states()[i].override;
    ProgramInput& input = inputs.emplace_back();
    input.source = static_cast<std::uint32_t>(i);
    input.tensor = real_of(hooks.states()[i]);
    input.names = names[i];
    const ir::TypePtr& recorded = computation.value(computation.inputs[i]).type;
    input.type = entry == nullptr ? recorded : ir::make_type(bridge::type_of(input.tensor));
    if (entry != nullptr) input.seen = recorded;
  }
  for (std::size_t i = 0; i < hooks.states().size(); ++i) {
    const Overrides::Entry* entry = hooks.states()[i].override;
    if (entry == nullptr || uses.count(computation.inputs[i]) == 0) continue;
    inputs[i].owner = entry->owner;
    for (const Overrides::Added& added : entry->added) {
      const std::size_t input = hooks.input_index(added.tensor.get());
      if (!own[input].empty()) inputs[input].owner = added.owner;
    }
  }
  return inputs;
}

bool is_as_it_came(const CallTraces& traces, std::size_t guarded) {
  if (traces.inputs.size() != guarded) return false;
  for (std::size_t i = 0; i < guarded; ++i) {
    if (traces.inputs[i].source != i) return false;
  }
  return true;
}

/// Segments that several programs share take the same inputs.
void require_no_data(const std::string& transform, const ir::Trace& computation) {
  const auto place = std::ranges::find_if(computation.symbols, tracer::looks_at_data);
  if (place == computation.symbols.end()) return;
  const ir::SourceLocation& location = place->location;
  const std::string line =
      location.file == nullptr ? "" : " (" + *location.file + ":" + std::to_string(location.line) + ")";
  throw UserError(ErrorKind::kValue,
                  "transform " + transform +
                      ": adds inputs to a program that looks at the data of tensors, or removes some" + line +
                      "; keep its inputs, or look at data outside of the function");
}

bool writes_to(const ir::Trace& trace, ir::ValueId value) {
  return std::ranges::any_of(trace.symbols, [&](const ir::BoundSymbol& symbol) {
    return symbol.op->mutates && !symbol.arguments.empty() && symbol.arguments[0] == ir::Argument(value);
  });
}

/// Where a transform removed a write to an input, its version counter stays as it is.
void forget_removed_writes(const ir::Trace& before, const ir::Trace& after, const std::vector<ProgramInput>& inputs,
                           runtime::Versions& versions) {
  std::erase_if(versions.inputs, [&](const auto& written) {
    if (!writes_to(before, before.inputs[written.first])) return false;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].source == written.first) return !writes_to(after, after.inputs[i]);
    }
    return true;
  });
}

/// Lets the call hand the outputs that a transform added to the epilogue that it changed.
void change_epilogue(const std::string& transform, const ir::Trace& before, CallTraces& traces, std::size_t outputs,
                     Specialization& specialization) {
  interpreter::AddedOutputs added;
  std::vector<OutputPlan::Source>& sources = specialization.plan.sources;
  const bool is_one_by_one = sources.empty();
  for (std::size_t i = outputs; i < traces.computation.outputs.size(); ++i) {
    const auto index = static_cast<std::uint32_t>(i);
    added.emplace(i, is_one_by_one ? index : static_cast<std::uint32_t>(sources.size()));
    if (!is_one_by_one) sources.push_back({.index = index});
  }
  if (!added.empty() && specialization.writes.gives_history()) {
    throw UserError(ErrorKind::kValue, "transform " + transform +
                                           ": adds outputs to a program that writes to an input which takes part in "
                                           "autograd; not supported");
  }
  if (added.empty() && ir::is_same(before, traces.epilogue)) return;
  try {
    specialization.structure = changed_structure(specialization.structure, before, traces.epilogue, added);
  } catch (const UserError& error) {
    throw UserError(error.kind(), "transform " + transform + ": " + error.what());
  }
  traces.epilogue = interpreter::epilogue_trace(specialization.structure);
}

/// Turns numbers of what the guards find into positions among the computation's inputs.
void count_by_inputs(const std::vector<Specialization::Taken>& taken, runtime::Versions& versions) {
  for (auto& [input, count] : versions.inputs) {
    const auto is_it = [&](const Specialization::Taken& each) { return !each.held.defined() && each.source == input; };
    const auto found = std::ranges::find_if(taken, is_it);
    if (found == taken.end()) {
      throw UserError(ErrorKind::kValue, "a transform removes an input that the program writes to; not supported");
    }
    input = static_cast<std::uint32_t>(found - taken.begin());
  }
}

}  // namespace

bool take_added_parameters(PyObject* module, const TorchHooks& hooks, interpreter::Tracker& tracker) {
  const py::Ref places = checked(PyList_New(0));
  for (const InputState& input : hooks.states()) {
    if (input.override == nullptr) continue;
    for (const Overrides::Added& added : input.override->added) {
      if (PyList_Append(places.get(), added.place.get()) < 0) throw PendingError();
    }
  }
  if (PyList_GET_SIZE(places.get()) == 0) return true;
  const py::Ref function = overrides_function("take");
  const py::Ref arguments = checked(PyTuple_Pack(2, module, places.get()));
  return static_cast<bool>(py::Ref::steal(interpreter::interpret(function.get(), arguments.get(), nullptr, &tracker)));
}

void require_as_seen(const TorchHooks& hooks, std::span<const std::size_t> written,
                     const interpreter::Structure& structure, const OutputPlan& plan) {
  const auto refuse = [&](std::size_t input, const char* what) {
    const Overrides::Entry* entry = hooks.states()[input].override;
    if (entry == nullptr) return;
    throw UserError(ErrorKind::kNotImplemented, "thunder.jit: the program " + std::string(what) + " " + entry->name +
                                                    ", which a transform replaced or added others beside");
  };
  for (const std::size_t input : written) refuse(input, "writes to");
  for (const interpreter::StructurePart& part : structure.parts()) {
    if (part.kind == interpreter::PartKind::kInput) refuse(part.index, "returns or stores");
  }
  for (const OutputPlan::Source& source : plan.sources) {
    if (source.is_input) refuse(source.index, "returns or stores");
  }
  for (std::size_t i = 0; i < hooks.states().size(); ++i) {
    const InputState& input = hooks.states()[i];
    if (input.override == nullptr) continue;
    const bool seen = std::get<ir::TensorType>(*Overrides::seen_type(*input.override, real_of(input))).requires_grad;
    if (unpack_tensor(input.traced.get()).requires_grad() != seen) refuse(i, "calls requires_grad_() on");
  }
}

void transform_call(const Traced& traced, const TorchHooks& hooks, const compile::Options& options,
                    ir::Trace& computation, Specialization& specialization) {
  const auto is_overridden = [](const InputState& input) { return input.override != nullptr; };
  if (options.transforms.empty() && std::ranges::none_of(hooks.states(), is_overridden)) return;
  std::vector<ProgramInput> inputs = inputs_of(traced, hooks, computation);
  for (const ProgramInput& input : inputs) specialization.guarded_types.push_back(input.type);
  CallTraces traces{interpreter::prologue_trace(specialization.guards, specialization.guarded_types),
                    std::move(computation), interpreter::epilogue_trace(specialization.structure), std::move(inputs)};
  traces.module = interpreter::share_object(traced.module);
  const ir::Trace recorded = traces.computation;
  for (const auto& transform : options.transforms) {
    const ir::Trace epilogue = traces.epilogue;
    const std::size_t outputs = traces.computation.outputs.size();
    traces = apply_pre_prologue(*transform, std::move(traces));
    change_epilogue(transform->name, epilogue, traces, outputs, specialization);
    if (!is_as_it_came(traces, hooks.states().size())) require_no_data(transform->name, traces.computation);
  }
  compile::finish_inputs(traces);
  forget_removed_writes(recorded, traces.computation, traces.inputs, specialization.plan.versions);
  computation = std::move(traces.computation);
  if (is_as_it_came(traces, hooks.states().size())) return;
  for (const ProgramInput& input : traces.inputs) {
    const bool is_held = input.source == ProgramInput::kHeld;
    specialization.taken.push_back({is_held ? 0 : input.source, is_held ? input.tensor : at::Tensor()});
  }
  count_by_inputs(specialization.taken, specialization.plan.versions);
}

void count_by_guards(std::span<const Specialization::Taken> taken, std::vector<std::uint32_t>& inputs) {
  if (taken.empty()) return;
  std::erase_if(inputs, [&](std::uint32_t input) { return taken[input].held.defined(); });
  for (std::uint32_t& input : inputs) input = taken[input].source;
}

ir::Trace prologue_of(const Specialization& specialization) {
  std::vector<ir::TypePtr> types = specialization.guarded_types;
  if (types.empty()) {
    const ir::Trace recorded = specialization.computation->recorded();
    for (const ir::ValueId input : recorded.inputs) types.push_back(recorded.value(input).type);
  }
  ir::Trace prologue = interpreter::prologue_trace(specialization.guards, types);
  const std::size_t guarded = specialization.tensors.size();
  for (std::size_t i = 0; i < specialization.strides.size(); ++i) {
    const auto [input, dim] = specialization.strides[i];
    prologue.outputs.at(guarded + i) =
        ir::add_call(prologue, *interpreter::primitive("tensor_for_stride"),
                     {prologue.outputs.at(input), std::int64_t{dim}}, ir::make_type(ir::ObjectType{"object"}));
  }
  if (specialization.taken.empty()) return prologue;
  ir::ArgumentList outputs;
  for (const Specialization::Taken& each : specialization.taken) {
    if (!each.held.defined()) {
      outputs.push_back(prologue.outputs[each.source]);
      continue;
    }
    const ir::Argument tensor(bridge::add_tensor(*prologue.context(), each.held));
    outputs.emplace_back(ir::add_call(prologue, *tracer::tensor_constant_operator(), {tensor},
                                      ir::make_type(bridge::type_of(each.held))));
  }
  prologue.outputs = std::move(outputs);
  return prologue;
}

}  // namespace thunder::dispatch
