#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/trace.h"

namespace thunder::tracer {

class Recording;
class TensorTable;
struct TraceState;

/// The memory behind the inputs of a trace: which inputs share it, and what was written to it.
class InputMemory {
 public:
  InputMemory(Recording& recording, TensorTable& tensors) : recording_(recording), tensors_(tensors) {}

  /// Storages that several inputs lie in, one of which the program writes to. Such inputs are recorded as views of the
  /// storage. What is not known at first is added when it is found, with an error: trace again with what is here then.
  std::vector<const c10::StorageImpl*> shared_storages;

  /// Enters the memory of the input that was added last.
  void add(const at::Tensor& input);
  /// Lets that input, which stands for `real`, be a view of its storage if that is shared.
  void lay_into_storage(const at::Tensor& real, const at::Tensor& input);
  /// The input `before` is turned in place (`t_`): `kept` is what it was.
  void note_turned(const at::Tensor& before, const at::Tensor& kept);
  /// Finds out, with an error, that another input lies in the memory of `root`, which is written to.
  void require_separate(const TraceState& root);

  /// Whether several inputs lie in this memory.
  [[nodiscard]] bool is_shared(const TraceState& root) const;
  [[nodiscard]] bool has(const TraceState& root) const;
  /// Whether a value is what the memory of an input held at first.
  [[nodiscard]] bool is_first_value(ir::ValueId value) const;
  /// Whether it is what an input was before the program turned it in place (`t_`).
  [[nodiscard]] bool was_input(const at::Tensor& trace_tensor) const;
  /// Positions of the inputs whose memory the program has written to.
  [[nodiscard]] std::vector<std::size_t> written_inputs() const;
  /// For each input a number that it has in common with those in the same of `shared_storages`; -1: with none.
  [[nodiscard]] std::vector<std::int32_t> groups() const;
  /// Inputs that take part in autograd by what was written to them, and the written values: the caller's tensors get
  /// their history.
  [[nodiscard]] std::vector<std::pair<std::size_t, ir::ValueId>> inputs_with_new_history() const;

  /// Ends the trace, or a part of it, with a `copy_` to each input that was written to.
  void copy_written();
  /// Does that, and lets views of these inputs that are read from now on be views of the inputs themselves.
  void return_written();
  /// Ends the trace with an `as_strided_` of each input that shows its memory in another way than at the start.
  void set_turned_geometry();

 private:
  struct Memory {
    at::Tensor root;                            ///< the input, or all of a storage that inputs share
    ir::ValueId value{};                        ///< before any write
    const c10::StorageImpl* storage = nullptr;  ///< shared by inputs
    std::uint32_t copied = 0;                   ///< the root's writes that are in the input
  };

  /// All of the storage that `real` lies in, as one flat tensor.
  std::size_t add_storage(const at::Tensor& real, ir::ValueId input);
  void add_resize(const Memory& memory);
  [[noreturn]] void found_shared(const c10::StorageImpl* storage);

  Recording& recording_;
  TensorTable& tensors_;
  std::vector<Memory> memories_;
  std::vector<std::size_t> memory_of_input_;
};

}  // namespace thunder::tracer
