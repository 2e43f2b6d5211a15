#pragma once

#include <vector>

#include "fusion/buffer_regions.h"
#include "ir/trace.h"
#include "passes/pass.h"

namespace thunder::fusion {

/// Makes the operations that compute parts of a tensor in its memory. Each is appended to `where`; new values are the
/// trace's.
class BufferSymbols {
 public:
  BufferSymbols(Trace& trace, passes::FindOperator find_operator, ir::SourceLocation location)
      : trace_(trace), find_operator_(find_operator), location_(location) {}

  /// Memory for a tensor of this type.
  ir::ValueId add_buffer(const ir::TensorType& type, std::vector<BoundSymbol>& where);
  /// Views of the buffer that end in the place of the part.
  ir::ValueId add_slice(ir::ValueId buffer, const BufferRegion& part, std::vector<BoundSymbol>& where);
  /// Fills the elements on both sides of the part, along one dimension after the other.
  void fill_around(ir::ValueId buffer, const BufferRegion& part, double number, std::vector<BoundSymbol>& where);
  [[nodiscard]] BoundSymbol copy(ir::ValueId target, ir::ValueId value) const;

 private:
  ir::ValueId narrow(ir::ValueId view, std::size_t dim, const Dim& start, const Dim& end,
                     std::vector<BoundSymbol>& where);
  /// A call that gives one new value.
  BoundSymbol call(const char* name, const char* overload, ir::ArgumentList arguments, const ir::TypePtr& type);
  /// A call that writes to its first argument, and of whose result nobody reads anything.
  BoundSymbol write(const char* name, const char* overload, ir::ArgumentList arguments) const;

  Trace& trace_;
  passes::FindOperator find_operator_;
  ir::SourceLocation location_;
};

/// The strides of a part where it stands.
[[nodiscard]] ir::Dims strides_in(const BufferRegion& part, const ir::TensorType& buffer);

}  // namespace thunder::fusion
