#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/generalization.h"
#include "ir/trace.h"
#include "tracer/recorder.h"
#include "tracer/size_reads.h"
#include "tracer/trace_tensor.h"

namespace thunder::tracer {

/// A size of the program's arguments that may be another one at the next call.
struct SizeSymbol {
  std::int64_t traced = 0;
  std::int64_t least = 2;
  std::int64_t most = 0;  ///< zero: there is no bound
};

/// Records a program at other sizes beside those of the arguments that it is traced with: each operation that it calls
/// is called again on trace tensors of those sizes, in a recorder of their own. At the end the traces become one, for
/// all sizes (ir/generalization.h).
///
/// The program itself sees the sizes of its arguments. Whatever is decided on one of them outside of an operation, in
/// Python or in the code that binds it, goes by a number: the trace tensors note that a size was read, and its symbol
/// is *pinned*, a number from the beginning when the program is traced again.
class SizeShadows final : public SizeReads {
 public:
  SizeShadows(Recorder& program, std::vector<SizeSymbol> symbols);
  ~SizeShadows();

  /// Adds an input of the program; `symbols` says which symbol each of its sizes is, nullopt a number. The others of
  /// its sizes, and the order in memory, are as of `traced`.
  void add_input(const at::Tensor& traced, std::span<const std::optional<std::uint32_t>> symbols);

  [[nodiscard]] bool is_outside() const override;
  [[nodiscard]] bool is_of_program(const Recorder& recorder) const { return &recorder == &program_; }
  /// While alive, sizes are read by an operation, or by thunder.
  class Inside {
   public:
    explicit Inside(SizeShadows& shadows) : shadows_(shadows) { ++shadows_.depth_; }
    ~Inside() { --shadows_.depth_; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    SizeShadows& shadows_;
  };

  /// The program called an operation.
  void follow(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
              std::span<const c10::IValue> results);
  /// An operation on these raised an error: at other sizes it may not.
  void note_failure(std::span<const c10::IValue> arguments);
  void note_read(const c10::TensorImpl& tensor) override;
  void note_contiguity(const c10::TensorImpl& tensor, at::MemoryFormat format) override;
  /// The rest of the program is for one size.
  void pin_all();

  /// By number.
  [[nodiscard]] const std::set<std::uint32_t>& pinned() const { return pinned_; }
  /// The line that pinned each symbol.
  [[nodiscard]] const std::vector<std::pair<std::uint32_t, ir::SourceLocation>>& reasons() const { return reasons_; }

  /// The trace for all sizes; nullopt, and symbols are pinned: there is none.
  [[nodiscard]] std::optional<ir::Trace> generalize(const ir::Trace& trace);

 private:
  struct Shadow {
    std::vector<std::int64_t> symbols;  ///< their values
    std::optional<std::uint32_t> only;  ///< the one symbol that is not as traced
    std::unique_ptr<Recorder> recorder;
    std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors;  ///< by tensor of the program
    bool is_lost = false;
  };
  class Host;

  void lose(Shadow& shadow);
  void pin(std::uint32_t symbol);
  void repeat(Shadow& shadow, const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
              std::span<const c10::IValue> results);
  [[nodiscard]] at::Tensor tensor_in(const Shadow& shadow, const at::Tensor& tensor) const;
  void pair(Shadow& shadow, const c10::IValue& result, const c10::IValue& other);
  [[nodiscard]] bool has_only_operations(const ir::Trace& trace) const;

  Recorder& program_;
  std::vector<SizeSymbol> symbols_;
  std::unique_ptr<Host> host_;
  std::vector<Shadow> shadows_;
  std::vector<at::Tensor> kept_;  ///< tensors of the program: their addresses are keys
  std::set<std::uint32_t> pinned_;
  std::vector<std::pair<std::uint32_t, ir::SourceLocation>> reasons_;
  int depth_ = 0;
};

}  // namespace thunder::tracer
