#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string_view>

#include "tracer/numbers.h"

namespace thunder::tracer {

class Recorder;
class SizeShadows;

/// `Recorder::data` for code outside of operations: what it does with data is done in the recorders of the program at
/// other sizes, too (size_shadows.h).
class FollowedData {
 public:
  explicit FollowedData(Recorder& recorder);

  [[nodiscard]] Number item(const at::Tensor& tensor) const;
  /// The number that an input holds.
  [[nodiscard]] Number given(const at::Tensor& input, const c10::Scalar& number) const;
  [[nodiscard]] at::Tensor contents_of(const at::Tensor& tensor) const;
  [[nodiscard]] std::optional<Number> compute(std::string_view operation, const NumberOperand& left,
                                              const NumberOperand& right) const;
  void observe(const Number& number) const;
  [[nodiscard]] at::Tensor number_tensor(ir::ValueId number) const;
  [[nodiscard]] at::Tensor held_number(const at::Tensor& tensor, at::ScalarType dtype) const;

 private:
  [[nodiscard]] bool has_one_element(const at::Tensor& tensor) const;
  /// The program looks at the sizes of a tensor.
  void note_read(const at::Tensor& tensor) const;

  Recorder& recorder_;
  SizeShadows* shadows_;  ///< null: there are no others
};

}  // namespace thunder::tracer
