#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "interpreter/python/python_ref.h"
#include "ir/trace.h"

namespace thunder::dispatch {

/// Finds the user's line that runs now: the innermost Python frame that is neither inside of the torch package nor of
/// one of Python's own modules.
class SourceLocator {
 public:
  explicit SourceLocator(std::shared_ptr<ir::TraceContext> context);
  [[nodiscard]] ir::SourceLocation here();

 private:
  const std::string* file_of(PyCodeObject* code);

  std::shared_ptr<ir::TraceContext> context_;
  std::unordered_map<const PyCodeObject*, const std::string*> files_;  ///< null: inside of a library
  std::vector<py::Ref> codes_;
};

}  // namespace thunder::dispatch
