#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/core/TensorImpl.h>

namespace thunder::tracer {

/// Is told when sizes of trace tensors are read that are symbols. `SizeShadows` is the only implementation.
class SizeReads {
 public:
  SizeReads() = default;
  SizeReads(const SizeReads&) = delete;
  SizeReads& operator=(const SizeReads&) = delete;

  /// Whether code outside of operations runs now, which goes by numbers.
  [[nodiscard]] virtual bool is_outside() const = 0;
  /// Somebody reads a size, a stride or the number of elements of a tensor of the program.
  virtual void note_read(const c10::TensorImpl& tensor) = 0;
  /// The sizes of a tensor of the program, for code that can go on with expressions.
  virtual c10::SymIntArrayRef sym_sizes(const c10::TensorImpl& tensor) = 0;
  virtual c10::SymIntArrayRef sym_strides(const c10::TensorImpl& tensor) = 0;
  virtual c10::SymInt sym_numel(const c10::TensorImpl& tensor) = 0;
  virtual c10::SymInt sym_storage_offset(const c10::TensorImpl& tensor) = 0;
  /// A tensor of the program is copied to another one that stands for the same value.
  virtual void note_copy(const c10::TensorImpl& tensor, const at::Tensor& copy) = 0;
  /// Somebody asks whether a tensor of the program is contiguous in a format. A tensor without gaps is, or is not, at
  /// all sizes from two on.
  virtual void note_contiguity(const c10::TensorImpl& tensor, at::MemoryFormat format) = 0;

 protected:
  ~SizeReads() = default;
};

}  // namespace thunder::tracer
