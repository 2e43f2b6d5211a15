#pragma once

#include <string>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// The names of values in the printed program: a value's hint made a unique identifier, or `t<id>`. Names follow from
/// the table of values alone, so a value keeps its name through the passes.
class ValueNames {
 public:
  explicit ValueNames(const Trace& trace);

  /// Also answers for a value that the trace does not have, so that a broken symbol can be shown.
  void append(std::string& text, ValueId id) const;

 private:
  std::vector<std::string> names_;
};

}  // namespace thunder::ir
