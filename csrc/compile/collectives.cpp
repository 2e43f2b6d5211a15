#include "compile/collectives.h"

#include <string>
#include <variant>

#include "ir/location.h"
#include "operators/facts.h"

namespace thunder::compile {
namespace {

/// Each process has a GPU of its own, so that the index of the device says nothing.
std::string describe(ir::Type type) {
  if (auto* tensor = std::get_if<ir::TensorType>(&type)) tensor->device.index = -1;
  return ir::to_string(type);
}

void add_argument(std::string& line, const ir::Argument& argument, const ir::Trace& trace) {
  if (const auto* list = argument.get<ir::ArgumentList>()) {
    line += " [";
    for (const ir::Argument& element : *list) add_argument(line, element, trace);
    line += " ]";
  } else if (const auto* id = argument.get<ir::ValueId>()) {
    line += " " + describe(*trace.value(*id).type);
  } else if (const auto* text = argument.get<std::string>()) {
    line += " \"" + *text + "\"";
  } else if (const auto* number = argument.get<std::int64_t>()) {
    line += " " + std::to_string(*number);
  }
}

}  // namespace

std::string describe_collectives(const ir::Trace& trace) {
  std::string text;
  for (const ir::BoundSymbol& symbol : trace.symbols) {
    if (!operators::communicates(*symbol.op)) continue;
    std::string line = symbol.op->name.substr(symbol.op->name.find("::") + 2);
    for (std::size_t i = 0; i < symbol.arguments.size(); ++i) {
      // Each process has its own.
      if (i < symbol.op->parameters.size() && symbol.op->parameters[i].name == "rank") continue;
      add_argument(line, symbol.arguments[i], trace);
    }
    text += line + "  # " + ir::describe_line(symbol.location) + "\n";
  }
  return text;
}

}  // namespace thunder::compile
