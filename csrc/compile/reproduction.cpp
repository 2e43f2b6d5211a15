#include "compile/reproduction.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "ir/printer.h"

namespace thunder::compile {
namespace {

std::string tuple_of(const ir::Dims& dims) {
  std::string text = "(";
  for (const ir::Dim& dim : dims) text += std::to_string(dim.hint) + ",";
  return text + ")";
}

std::string device_of(ir::Device device) {
  std::string text(ir::torch_name(device.type));
  return device.index < 0 ? text : text + ":" + std::to_string(device.index);
}

/// An expression that makes an input of this type.
std::string random_input(const ir::Type& type) {
  const auto* tensor = std::get_if<ir::TensorType>(&type);
  if (tensor == nullptr) return std::holds_alternative<ir::ScalarKind>(type) ? "1" : "None";
  const bool real = ir::is_floating_point(tensor->dtype) || ir::is_complex(tensor->dtype);
  const std::string sizes = tuple_of(tensor->sizes);
  return "torch.empty_strided(" + sizes + ", " + tuple_of(tensor->strides) + ", dtype=torch." +
         std::string(ir::torch_name(tensor->dtype)) + ", device=\"" + device_of(tensor->device) + "\").copy_(" +
         (real ? "torch.randn(" + sizes + ")" : "torch.randint(2, " + sizes + ")") + ")";
}

}  // namespace

std::string reproduction_script(const ir::Trace& trace, const std::string& reason) {
  std::ostringstream script;
  std::istringstream lines(reason);
  for (std::string line; std::getline(lines, line);) script << "# " << line << "\n";
  script << ir::print(trace) << "\n\nif __name__ == \"__main__\":\n    import torch\n\n    torch.manual_seed(0)\n";
  for (std::size_t i = 0; i < trace.context()->objects.size(); ++i) {
    script << "    object" << i << " = None  # " << trace.context()->objects[i].description << "\n";
  }
  script << "    inputs = [\n";
  for (const ir::ValueId input : trace.inputs) script << "        " << random_input(*trace.value(input).type) << ",\n";
  script << "    ]\n    print(" << trace.name() << "(*inputs))\n";
  return script.str();
}

std::string write_reproduction(const ir::Trace& trace, const std::string& reason) {
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(ignored);
  std::string path = (folder / "thunder_reproduction_XXXXXX.py").string();
  const int file = mkstemps(path.data(), 3);
  if (file < 0) return {};
  const std::string script = reproduction_script(trace, reason);
  const bool written = write(file, script.data(), script.size()) == static_cast<ssize_t>(script.size());
  close(file);
  return written ? path : std::string();
}

}  // namespace thunder::compile
