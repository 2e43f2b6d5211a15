#include "ir/statement_writer.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "ir/python_text.h"

namespace thunder::ir {
namespace {

bool names_a_value(const Argument& argument) {
  bool found = false;
  for_each_value(argument, [&](ValueId) { found = true; });
  return found;
}

void write_constant(std::string& text, const Argument& argument) {
  std::visit(
      [&text](const auto& constant) {
        if constexpr (requires { python::append_literal(text, constant); }) python::append_literal(text, constant);
      },
      argument.content);
}

}  // namespace

StatementWriter::StatementWriter(const Trace& trace)
    : trace_(trace), names_(trace), object_is_used_(trace.context()->objects.size()) {}

std::string StatementWriter::take_text() { return std::exchange(text_, {}); }

void StatementWriter::write_argument(const Argument& argument) {
  if (argument.is<None>()) {
    text_ += "None";
  } else if (const auto* id = argument.get<ValueId>()) {
    write_value(*id);
  } else if (const auto* object = argument.get<ObjectConstant>()) {
    if (object->index < object_is_used_.size()) object_is_used_[object->index] = true;
    text_ += "object";
    python::append_literal(text_, std::int64_t{object->index});
  } else if (const auto* list = argument.get<ArgumentList>()) {
    text_ += '[';
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i > 0) text_ += ", ";
      write_argument((*list)[i]);
    }
    text_ += ']';
  } else if (const auto* dim = argument.get<Dim>()) {
    text_ += to_string(*dim);
  } else {
    write_constant(text_, argument);
  }
}

void StatementWriter::write_tuple(const ArgumentList& elements) {
  text_ += '(';
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (i > 0) text_ += ", ";
    write_argument(elements[i]);
  }
  text_ += elements.size() == 1 ? ",)" : ")";
}

void StatementWriter::write_target(const Argument& result) {
  if (const auto* id = result.get<ValueId>()) {
    write_value(*id);
  } else if (const auto* list = result.get<ArgumentList>()) {
    text_ += '(';
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i > 0) text_ += ", ";
      write_target((*list)[i]);
    }
    text_ += list->size() == 1 ? ",)" : ")";
  } else {
    text_ += '_';
  }
}

// `aten::random_.from` is a keyword where it stands, and is reached by getattr.
void StatementWriter::write_callee(const Operator& op) {
  const std::size_t colons = op.name.find("::");
  const std::string_view name = std::string_view(op.name).substr(colons == std::string::npos ? 0 : colons + 2);
  if (op.style == CallStyle::kPrimitive || op.style == CallStyle::kBlock) {
    calls_primitives_ = true;
    text_.append("prims.").append(name);
    return;
  }
  calls_torch_ = true;
  const std::size_t begin = text_.size();
  text_ += "torch.ops";
  if (colons != std::string::npos) (text_ += '.').append(op.name, 0, colons);
  for (const std::string_view attribute : {name, op.overload.empty() ? std::string_view("default") : op.overload}) {
    if (python::is_keyword(attribute)) {
      text_.insert(begin, "getattr(").append(", \"").append(attribute).append("\")");
    } else {
      (text_ += '.').append(attribute);
    }
  }
}

void StatementWriter::write_named_argument(std::string_view name, const Argument& argument) {
  if (python::is_keyword(name)) {
    text_.append("**{\"").append(name).append("\": ");
    write_argument(argument);
    text_ += '}';
  } else {
    text_.append(name) += '=';
    write_argument(argument);
  }
}

void StatementWriter::write_call(const BoundSymbol& symbol) {
  const std::vector<SchemaValue>& parameters = symbol.op->parameters;
  const auto is_default = [&](std::size_t i) {
    return i < parameters.size() && parameters[i].default_value.has_value() &&
           identical(*parameters[i].default_value, symbol.arguments[i]);
  };
  const auto is_keyword_only = [&](std::size_t i) { return i < parameters.size() && parameters[i].keyword_only; };
  std::size_t positional = symbol.arguments.size();
  while (positional > 0 && (is_keyword_only(positional - 1) || is_default(positional - 1))) --positional;

  write_callee(*symbol.op);
  std::string_view separator = "(";
  for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
    if (is_keyword_only(i) ? is_default(i) : i >= positional) continue;
    text_ += separator;
    separator = ", ";
    if (is_keyword_only(i)) {
      write_named_argument(parameters[i].name, symbol.arguments[i]);
    } else {
      write_argument(symbol.arguments[i]);
    }
  }
  text_ += separator == "(" ? "()" : ")";
}

void StatementWriter::write_statement(const BoundSymbol& symbol) {
  if (symbol.op == nullptr) {
    text_ += "<no operator>";
    return;
  }
  switch (symbol.op->style) {
    case CallStyle::kComment:
      text_ += "# ";
      if (symbol.comment.empty()) {
        text_ += symbol.op->name;
        write_tuple(symbol.arguments);
      } else {
        python::append_comment_text(text_, symbol.comment);
      }
      return;
    case CallStyle::kReturn:
      text_ += "return ";
      write_tuple(symbol.arguments);
      return;
    case CallStyle::kBlock:
      text_ += "with ";
      write_call(symbol);
      text_ += ':';
      return;
    case CallStyle::kTorchOperator:
    case CallStyle::kPrimitive:
      break;
  }
  if (std::ranges::any_of(symbol.results, names_a_value)) {
    if (symbol.results.size() == 1) {
      write_target(symbol.results.front());
    } else {
      write_target(Argument(symbol.results));
    }
    text_ += " = ";
  }
  write_call(symbol);
}

void StatementWriter::write_type(ValueId id) {
  if (index_of(id) >= trace_.value_count()) return;
  const TypePtr& type = trace_.value(id).type;
  write_value(id);
  text_ += ": \"";
  python::append_comment_text(text_, type == nullptr ? "no type" : to_string(*type));
  text_ += '"';
}

void StatementWriter::write_remarks(const BoundSymbol& symbol) {
  std::string_view separator = "  # ";
  const bool is_block = symbol.op != nullptr && symbol.op->style == CallStyle::kBlock;
  for (const Argument& result : is_block ? ArgumentList() : symbol.results) {
    for_each_value(result, [&](ValueId id) {
      text_ += separator;
      separator = ", ";
      write_type(id);
    });
  }
  if (!symbol.comment.empty() && symbol.op != nullptr && symbol.op->style != CallStyle::kComment) {
    text_ += "  # ";
    python::append_comment_text(text_, symbol.comment);
  }
}

}  // namespace thunder::ir
