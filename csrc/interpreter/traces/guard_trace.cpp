#include "interpreter/traces/guard_trace.h"

#include <unordered_map>
#include <utility>

#include "interpreter/guards/weak_keys.h"
#include "interpreter/traces/guard_primitives.h"
#include "ir/builder.h"

namespace thunder::interpreter {
namespace {

ir::TypePtr object_type(const std::string& name) { return ir::make_type(ir::ObjectType{name}); }

ir::ArgumentList numbers(const ir::Dims& dims) {
  ir::ArgumentList result;
  for (const ir::Dim& dim : dims) result.emplace_back(dim.hint);
  return result;
}

/// A trace of primitives under construction.
class PrimitiveTrace {
 public:
  explicit PrimitiveTrace(ir::TraceKind kind) : trace(kind, std::make_shared<ir::TraceContext>()) {}

  ir::Argument constant(py::Borrowed object) { return to_argument(object, *trace.context()); }
  /// Constants that many symbols share are named once.
  ir::Argument shared_constant(py::Borrowed object) {
    const auto [place, is_new] = constants_.try_emplace(object);
    if (is_new) place->second = constant(object);
    return place->second;
  }
  void check(std::string_view name, ir::ArgumentList arguments) {
    ir::add_symbol(trace, *primitive(name), std::move(arguments), {});
  }
  ir::Argument load(std::string_view name, ir::ArgumentList arguments, ir::TypePtr type) {
    return ir::add_call(trace, *primitive(name), std::move(arguments), std::move(type));
  }

  ir::Trace trace;

 private:
  std::unordered_map<const PyObject*, ir::Argument> constants_;
};

class PrologueWriter {
 public:
  PrologueWriter(const GuardProgram& program, std::span<const ir::TypePtr> tensors)
      : program_(program), tensors_(tensors), out_(ir::TraceKind::kPrologue), inputs_(tensors.size()) {
    arguments_ = out_.trace.add_input(object_type("tuple"), "args");
    keywords_ = out_.trace.add_input(object_type("dict"), "kwargs");
    for (const auto& [index, object] : program.constants()) registers_[index] = out_.shared_constant(object);
  }

  ir::Trace write() {
    out_.check("check_call", {arguments_, keywords_, static_cast<std::int64_t>(program_.positional()), names()});
    for (const GuardInstruction& instruction : program_.instructions()) {
      const std::size_t count = out_.trace.symbols.size();
      if (is_load(instruction.op)) {
        pending_[instruction.target] = &instruction;
      } else {
        write_check(instruction);
      }
      for (std::size_t i = count; i < out_.trace.symbols.size(); ++i) annotate(out_.trace.symbols[i], instruction);
    }
    for (const DistinctRegisters& registers : program_.distinct()) {
      out_.check("check_distinct", {values_of(registers.written), values_of(registers.read)});
    }
    out_.trace.outputs = std::move(inputs_);
    return std::move(out_.trace);
  }

 private:
  ir::Argument names() {
    PyObject* tuple = program_.keyword_names();
    ir::ArgumentList list;
    for (Py_ssize_t i = 0; tuple != nullptr && i < PyTuple_GET_SIZE(tuple); ++i) {
      list.push_back(out_.constant(PyTuple_GET_ITEM(tuple, i)));
    }
    return list;
  }
  void annotate(ir::BoundSymbol& symbol, const GuardInstruction& instruction) {
    const GuardInfo info = program_.info(instruction.guard);
    // The guards' own strings die with the program.
    symbol.location = {nullptr, info.location.line};
    if (info.location.file != nullptr) symbol.location.file = out_.trace.context()->intern(*info.location.file);
    if (!symbol.results.empty()) symbol.comment = info.expression;
  }
  /// The value in a register, as an argument of symbols. Writes the load of the register, if it is not written yet.
  const ir::Argument& value_of(std::uint32_t index) {
    if (const auto found = pending_.find(index); found != pending_.end()) {
      const GuardInstruction* load = found->second;
      pending_.erase(found);
      write_load(*load);
    }
    return registers_[index];
  }
  ir::ArgumentList values_of(const std::vector<std::uint32_t>& indices) {
    ir::ArgumentList list;
    for (const std::uint32_t index : indices) list.push_back(value_of(index));
    return list;
  }
  /// The load of a register that only its check may look at; null when it has been written.
  const GuardInstruction* pending(std::uint32_t index) const {
    const auto found = pending_.find(index);
    return found == pending_.end() ? nullptr : found->second;
  }
  /// The key, or the tuple of keys, of a step.
  ir::Argument key_of(const GuardInstruction& step) {
    if (!is_held_weakly(step.op, step.number)) return out_.shared_constant(step.object);
    return out_.constant(strong_key(step.object).get());
  }
  void write_load(const GuardInstruction& instruction);
  bool write_check_of_load(const GuardInstruction& load, const GuardInstruction& check);
  void write_check(const GuardInstruction& instruction);
  void write_tensor(const GuardInstruction& instruction);

  const GuardProgram& program_;
  std::span<const ir::TypePtr> tensors_;
  PrimitiveTrace out_;
  ir::Argument arguments_;
  ir::Argument keywords_;
  std::unordered_map<std::uint32_t, ir::Argument> registers_;
  std::unordered_map<std::uint32_t, const GuardInstruction*> pending_;
  ir::ArgumentList inputs_;
};

void PrologueWriter::write_load(const GuardInstruction& instruction) {
  const auto load = [&](std::string_view name, ir::ArgumentList arguments) {
    registers_[instruction.target] = out_.load(name, std::move(arguments), object_type("object"));
    annotate(out_.trace.symbols.back(), instruction);
  };
  if (instruction.op == GuardOp::kLoadArgument) return load("get_argument", {arguments_, instruction.number});
  if (instruction.op == GuardOp::kLoadKeyword) {
    return load("get_keyword", {keywords_, out_.constant(instruction.object)});
  }
  const ir::Argument source = value_of(instruction.source);
  if (instruction.op == GuardOp::kLoadDict) return load("get_instance_dict", {source});
  if (instruction.op == GuardOp::kLoadCell) return load("get_cell", {source});
  if (instruction.op == GuardOp::kLoadReferent) return load("get_referent", {source});
  if (instruction.op == GuardOp::kLoadCall) return load("get_result", {source});
  if (instruction.op == GuardOp::kLoadItem) return load("get_item", {source, instruction.number});
  if (instruction.op == GuardOp::kLoadFunctionPart) return load("get_function_part", {source, instruction.number});
  const ir::Argument key = key_of(instruction);
  if (instruction.op == GuardOp::kLoadDescriptor) return load("get_descriptor", {source, key});
  if (instruction.op == GuardOp::kLoadConversion) return load("convert", {source, key});
  load(instruction.op == GuardOp::kLoadTypeAttribute ? "get_type_attribute" : "get_item", {source, key});
}

// Checks that speak about owner and key.
bool PrologueWriter::write_check_of_load(const GuardInstruction& load, const GuardInstruction& check) {
  const auto with_key = [&](std::string_view name, auto... more) {
    const ir::Argument owner = value_of(load.source);
    pending_.erase(load.target);
    out_.check(name, {owner, key_of(load), more...});
    return true;
  };
  if (load.op == GuardOp::kLoadTypeAttribute && check.op == GuardOp::kIs) {
    return with_key("check_type_attribute", out_.shared_constant(check.object));
  }
  if (check.op == GuardOp::kPresent && load.op == GuardOp::kLoadDictItem) return with_key("check_present");
  if (check.op != GuardOp::kAbsent) return false;
  if (load.op == GuardOp::kLoadTypeAttribute) return with_key("check_no_type_attribute");
  if (load.op == GuardOp::kLoadDictItem) return with_key("check_absent");
  if (load.op == GuardOp::kLoadDescriptor) return with_key("check_no_descriptor");
  if (load.op != GuardOp::kLoadCell) return false;
  const ir::Argument cell = value_of(load.source);
  pending_.erase(load.target);
  out_.check("check_empty_cell", {cell});
  return true;
}

void PrologueWriter::write_check(const GuardInstruction& instruction) {
  const GuardInstruction* load = pending(instruction.source);
  if (load != nullptr && write_check_of_load(*load, instruction)) return;
  const ir::Argument source = value_of(instruction.source);
  const auto object = [&] { return out_.shared_constant(instruction.object); };
  if (instruction.op == GuardOp::kIs) {
    out_.check("check_identity", {source, object()});
  } else if (instruction.op == GuardOp::kEqual) {
    out_.check("check_value", {source, object()});
  } else if (instruction.op == GuardOp::kType) {
    out_.check("check_type", {source, object()});
  } else if (instruction.op == GuardOp::kKeys) {
    out_.check("check_keys", {source, key_of(instruction)});
  } else if (instruction.op == GuardOp::kMembers) {
    out_.check("check_members", {source, key_of(instruction)});
  } else if (instruction.op == GuardOp::kContains) {
    out_.check("check_contains", {source, key_of(instruction), (instruction.number & 1) != 0});
  } else if (instruction.op == GuardOp::kState) {
    out_.check("check_state", {source, instruction.number, object()});
  } else if (instruction.op == GuardOp::kNotSame) {
    out_.check("check_not_same", {source, value_of(instruction.target)});
  } else if (instruction.op == GuardOp::kSame) {
    out_.check("check_same", {source, value_of(instruction.target)});
  } else if (instruction.op == GuardOp::kLength) {
    out_.check("check_length", {source, instruction.number});
  } else if (instruction.op == GuardOp::kTruth) {
    out_.check("check_truth", {source, instruction.number != 0});
  } else if (instruction.op == GuardOp::kAbsent) {
    out_.check("check_identity", {source, out_.constant(Py_None)});
  } else if (instruction.op == GuardOp::kTensor) {
    write_tensor(instruction);
  }
}

void PrologueWriter::write_tensor(const GuardInstruction& instruction) {
  const auto index = static_cast<std::size_t>(instruction.number);
  const auto& type = std::get<ir::TensorType>(*tensors_[index]);
  ir::Argument tensor = value_of(instruction.source);
  out_.check("check_type", {tensor, out_.shared_constant(instruction.object)});
  const bool is_int = instruction.object == reinterpret_cast<PyObject*>(&PyLong_Type);
  if (is_int || instruction.object == reinterpret_cast<PyObject*>(&PyFloat_Type)) {
    const char* name = !is_int ? "tensor_for_float" : type.sizes.empty() ? "tensor_holding_int" : "tensor_for_int";
    inputs_[index] = out_.load(name, {tensor}, object_type("object"));
    return;
  }
  // Programs take the part that this process has of a tensor that lies in several (`DTensor`).
  if (PyObject_HasAttrString(instruction.object, "_local_tensor") != 0) {
    tensor = out_.load("get_local_part", {tensor}, object_type("object"));
  }
  inputs_[index] = tensor;
  out_.check("check_tensor",
             {tensor, numbers(type.sizes), numbers(type.strides), type.dtype, type.device, type.requires_grad});
}

}  // namespace

ir::Trace prologue_trace(const GuardProgram& program, std::span<const ir::TypePtr> tensors) {
  return PrologueWriter(program, tensors).write();
}

}  // namespace thunder::interpreter
