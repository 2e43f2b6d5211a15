#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <span>
#include <vector>

namespace thunder::runtime {

struct ProgramCode;

/// A compiled trace: flat instructions over numbered registers. Immutable once built; `run` may be called from several
/// threads at once. Takes one IValue for each input (moved from), fills one for each output. Never touches Python
/// except where an instruction says so; the caller has released nothing: `run` neither takes nor releases the GIL.
///
/// Runs below autograd and autocast, whose work is in the trace already. An exception of ATen comes out as itself with
/// the user's line added, and leaves nothing behind.
class Program {
 public:
  Program();
  ~Program();
  Program(Program&&) noexcept;
  Program& operator=(Program&&) noexcept;

  void run(std::span<c10::IValue> inputs, std::span<c10::IValue> outputs) const;
  /// Runs a program whose inputs and outputs are tensors; a None output is an undefined tensor.
  void run(std::span<at::Tensor> inputs, std::span<at::Tensor> outputs) const;

  /// Returns when the kernels that are compiled in the background are there, or have failed.
  void wait() const;
  /// Whether no kernel is being compiled in the background.
  [[nodiscard]] bool is_settled() const;
  /// Whether the program is for inputs of these sizes; others raise an error in `run`.
  [[nodiscard]] bool is_for(std::span<const at::Tensor> inputs) const;

  [[nodiscard]] std::size_t input_count() const;
  [[nodiscard]] std::size_t output_count() const;
  [[nodiscard]] std::size_t instruction_count() const;
  /// Instructions that call their kernel without boxing the arguments.
  [[nodiscard]] std::size_t unboxed_count() const;
  [[nodiscard]] std::size_t register_count() const;

 private:
  friend class ProgramBuilder;
  std::unique_ptr<ProgramCode> code_;
};

}  // namespace thunder::runtime
