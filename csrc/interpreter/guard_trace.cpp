#include "interpreter/guard_trace.h"

#include <unordered_map>
#include <utility>

#include "interpreter/guard_primitives.h"
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
  explicit PrimitiveTrace(std::string name) : trace(std::move(name), std::make_shared<ir::TraceContext>()) {}

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
      : program_(program), tensors_(tensors), out_("prologue"), inputs_(tensors.size()) {
    arguments_ = out_.trace.add_input(object_type("tuple"), "args");
    keywords_ = out_.trace.add_input(object_type("dict"), "kwargs");
    for (const std::uint32_t index : program.constant_registers()) {
      registers_[index] = out_.shared_constant(program.loaded(index));
    }
  }

  ir::Trace write() {
    out_.check("check_call", {arguments_, keywords_, static_cast<std::int64_t>(program_.positional()), names()});
    for (const GuardInstruction& instruction : program_.instructions()) {
      const std::size_t count = out_.trace.symbols.size();
      write(instruction);
      for (std::size_t i = count; i < out_.trace.symbols.size(); ++i) annotate(out_.trace.symbols[i], instruction);
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
    const GuardInfo& info = program_.info(instruction.guard);
    symbol.location = info.location;
    if (!symbol.results.empty()) symbol.comment = info.expression;
  }
  void write_load(const GuardInstruction& instruction);
  void write_check(const GuardInstruction& instruction);
  void write_tensor(const GuardInstruction& instruction);
  void write(const GuardInstruction& instruction);

  const GuardProgram& program_;
  std::span<const ir::TypePtr> tensors_;
  PrimitiveTrace out_;
  ir::Argument arguments_;
  ir::Argument keywords_;
  std::unordered_map<std::uint32_t, ir::Argument> registers_;
  ir::ArgumentList inputs_;
};

void PrologueWriter::write_load(const GuardInstruction& instruction) {
  const ir::Argument source = registers_[instruction.source];
  const ir::Argument key =
      instruction.object == nullptr ? ir::Argument(instruction.number) : out_.constant(instruction.object);
  std::string_view name = "get_item";
  ir::ArgumentList arguments{source, key};
  if (instruction.op == GuardOp::kLoadArgument) {
    name = "get_argument";
    arguments = {arguments_, instruction.number};
  } else if (instruction.op == GuardOp::kLoadKeyword) {
    name = "get_keyword";
    arguments = {keywords_, key};
  } else if (instruction.op == GuardOp::kLoadDict) {
    name = "get_instance_dict";
    arguments = {source};
  } else if (instruction.op == GuardOp::kLoadCell) {
    name = instruction.number != 0 ? "check_empty_cell" : "get_cell";
    arguments = {source};
  } else if (instruction.op == GuardOp::kLoadDescriptor) {
    name = instruction.number != 0 ? "check_no_descriptor" : "get_descriptor";
  }
  if (name.starts_with("check")) return out_.check(name, std::move(arguments));
  registers_[instruction.target] = out_.load(name, std::move(arguments), object_type("object"));
}

void PrologueWriter::write_check(const GuardInstruction& instruction) {
  const ir::Argument source = registers_[instruction.source];
  const auto object = [&] { return out_.shared_constant(instruction.object); };
  if (instruction.op == GuardOp::kIs) {
    out_.check("check_identity", {source, object()});
  } else if (instruction.op == GuardOp::kEqual) {
    out_.check("check_value", {source, object()});
  } else if (instruction.op == GuardOp::kType) {
    out_.check("check_type", {source, object()});
  } else if (instruction.op == GuardOp::kDictAbsent) {
    out_.check("check_absent", {source, object()});
  } else if (instruction.op == GuardOp::kKeys) {
    out_.check("check_keys", {source, object()});
  } else if (instruction.op == GuardOp::kMembers) {
    out_.check("check_members", {source, object()});
  } else if (instruction.op == GuardOp::kSame) {
    out_.check("check_same", {source, registers_[instruction.target]});
  } else if (instruction.op == GuardOp::kLength) {
    out_.check("check_length", {source, instruction.number});
  } else if (instruction.op == GuardOp::kTruth) {
    out_.check("check_truth", {source, instruction.number != 0});
  } else if (instruction.expected == nullptr) {
    out_.check("check_no_type_attribute", {source, object()});
  } else {
    out_.check("check_type_attribute", {source, object(), out_.shared_constant(instruction.expected)});
  }
}

void PrologueWriter::write_tensor(const GuardInstruction& instruction) {
  const auto index = static_cast<std::size_t>(instruction.number);
  const auto& type = std::get<ir::TensorType>(*tensors_[index]);
  const ir::Argument tensor = registers_[instruction.source];
  inputs_[index] = tensor;
  out_.check("check_tensor",
             {tensor, numbers(type.sizes), numbers(type.strides), type.dtype, type.device, type.requires_grad});
}

void PrologueWriter::write(const GuardInstruction& instruction) {
  switch (instruction.op) {
    case GuardOp::kLoadArgument:
    case GuardOp::kLoadKeyword:
    case GuardOp::kLoadDict:
    case GuardOp::kLoadItem:
    case GuardOp::kLoadCell:
    case GuardOp::kLoadDescriptor:
    case GuardOp::kLoadDictItem:
      return write_load(instruction);
    case GuardOp::kDictAbsent:
    case GuardOp::kTypeAttribute:
    case GuardOp::kIs:
    case GuardOp::kEqual:
    case GuardOp::kType:
    case GuardOp::kSame:
    case GuardOp::kLength:
    case GuardOp::kTruth:
    case GuardOp::kKeys:
    case GuardOp::kMembers:
      return write_check(instruction);
    case GuardOp::kTensor:
      return write_tensor(instruction);
    case GuardOp::kBeginDict:
    case GuardOp::kEndDict:
    case GuardOp::kBeginType:
    case GuardOp::kEndType:
    case GuardOp::kAccept:
      return;
  }
}

}  // namespace

ir::Trace prologue_trace(const GuardProgram& program, std::span<const ir::TypePtr> tensors) {
  return PrologueWriter(program, tensors).write();
}

}  // namespace thunder::interpreter
