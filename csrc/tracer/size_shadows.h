#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "autograd/node_pointer.h"
#include "ir/condition.h"
#include "ir/generalization.h"
#include "ir/stride_rule.h"
#include "ir/trace.h"
#include "tracer/evaluate.h"
#include "tracer/recorder.h"
#include "tracer/size_node.h"
#include "tracer/size_probes.h"
#include "tracer/size_reads.h"
#include "tracer/size_samples.h"
#include "tracer/trace_tensor.h"
#include "tracer/view_sizes.h"

namespace thunder::tracer {

/// Records a program at other sizes beside those of the arguments that it is traced with: each operation that it calls
/// is called again on trace tensors of those sizes, in a recorder of their own. At the end the traces become one, for
/// all sizes (ir/generalization.h).
///
/// Code outside of operations, in Python or in what binds it, gets sizes as expressions (size_node.h). What it decides
/// on them becomes a condition, and recorders at sizes that do not meet it are dropped: the program is traced again, at
/// sizes that do. Where a number is needed its symbols are *pinned*: numbers from the beginning when the program is
/// traced again.
class SizeShadows final : public SizeReads, public SizeUses {
 public:
  /// `conditions`: those that an earlier attempt found; samples meet them. `layouts`: those that the strides of inputs
  /// meet at each call.
  SizeShadows(Recorder& program, std::vector<SizeSymbol> symbols, std::vector<ir::Condition> conditions,
              std::vector<ir::Condition> layouts);
  ~SizeShadows();

  /// Adds an input of the program; `symbols` says which symbol each of its sizes is, nullopt a number. The others of
  /// its sizes are as of `traced`; strides follow by `rule`, where there are symbols.
  void add_input(const at::Tensor& traced, std::span<const std::optional<std::uint32_t>> symbols,
                 const ir::StrideRule& rule);

  /// Says which symbols the sizes are that follow from data (`DataSized::sizes`), for each operation that gives some,
  /// by its place among `DataAccess::data_sized`; empty: all are numbers.
  std::function<std::vector<std::optional<std::uint32_t>>(std::size_t place)> symbols_of_data;

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

  /// While alive, strides are told also where a size is one.
  class AllStrides {
   public:
    explicit AllStrides(SizeShadows& shadows) : shadows_(shadows) { shadows_.tells_all_strides_ = true; }
    ~AllStrides() { shadows_.tells_all_strides_ = false; }
    AllStrides(const AllStrides&) = delete;
    AllStrides& operator=(const AllStrides&) = delete;

   private:
    SizeShadows& shadows_;
  };

  /// A symbol as the program gets it: an int among the arguments.
  [[nodiscard]] c10::SymInt symbol(std::uint32_t index);
  /// The integers that depend on symbols in each of these views, the first of which gave `tensor`, the next one what
  /// that shows, and so on; nullopt: they are no expressions of them.
  [[nodiscard]] std::optional<std::vector<std::vector<SizeInCall>>> sizes_in_views(
      const at::Tensor& tensor, std::span<const ViewOf* const> views);

  /// The program called an operation.
  void follow(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
              std::span<const c10::IValue> results);
  /// Gives the tensor that stands for a tensor of the program at other sizes.
  using FindTensor = std::function<at::Tensor(const at::Tensor& tensor)>;
  /// A level of `torch.func` has made `layered` of a tensor of the program.
  void note_layer(const at::Tensor& layered);
  /// The program did something with data, outside of operations, which `step` does in another recorder. It gives the
  /// tensor that stands for `result` there, where the program got one.
  void follow_data(const std::function<at::Tensor(Recorder& there, const FindTensor& find)>& step,
                   const at::Tensor& result = {});
  /// The program's backward ran into a node of its own (`RecordingHost::derive`), which is done at each size.
  [[nodiscard]] std::vector<at::Tensor> derive(TraceNode& node, std::vector<at::Tensor> cotangents);
  /// `InputMemory::return_written` at other sizes.
  void return_written();
  /// The values of the symbols in a recorder at other sizes.
  [[nodiscard]] ir::SymbolValues sizes_in(const Recorder& there) const;
  /// An operation on these raised an error: at other sizes it may not.
  void note_failure(std::span<const c10::IValue> arguments);
  void note_read(const c10::TensorImpl& tensor) override;
  void note_contiguity(const c10::TensorImpl& tensor, at::MemoryFormat format) override;
  void note_copy(const c10::TensorImpl& tensor, const at::Tensor& copy) override;
  c10::SymIntArrayRef sym_sizes(const c10::TensorImpl& tensor) override;
  c10::SymIntArrayRef sym_strides(const c10::TensorImpl& tensor) override;
  c10::SymInt sym_numel(const c10::TensorImpl& tensor) override;
  c10::SymInt sym_storage_offset(const c10::TensorImpl& tensor) override;

  /// The program went on as it does only where the condition holds.
  void assume(const ir::Condition& condition) override;
  bool keep_within_range(const ir::Dim& dim) override;
  /// The symbol is an int among the arguments, which may be larger than sizes of tensors are.
  void note_int(std::uint32_t symbol) { ints_.insert(symbol); }
  /// The program divides by this number, which is not zero.
  void require_divisor(const ir::Dim& divisor) override;
  /// The program computed this size.
  void note_expression(const ir::Dim& dim) override;
  /// Somebody needs the number that an expression is.
  void pin_symbols_of(const ir::Dim& dim) override;
  /// Arguments of an operation as it is called at the sizes that were traced: with numbers for sizes. Decisions that
  /// the operation takes on them are conditions.
  [[nodiscard]] std::vector<c10::IValue> at_traced_sizes(const c10::OperatorHandle& op,
                                                         std::span<const c10::IValue> arguments);
  /// The rest of the program is for one size.
  void pin_all();
  /// Something is not the same at all sizes. Few numbers of a program depend on the first sizes of tensors: pins the
  /// others, or all where only first ones are left.
  void pin_most();

  /// By number.
  [[nodiscard]] const std::set<std::uint32_t>& pinned() const { return pinned_; }
  /// Pins all where the trace cannot be for other sizes, and nothing says why.
  void settle();

  struct Assumed {
    ir::Condition condition;
    ir::SourceLocation location;
  };
  [[nodiscard]] const std::vector<Assumed>& assumed() const { return assumed_; }
  /// Whether the program has to be traced at other samples, which meet its conditions.
  [[nodiscard]] bool wants_samples() const { return wants_samples_; }
  /// Symbols of which one is to blame for what is not the same where they all change: the program has to be traced
  /// again with a sample for each (`SizeSymbol::is_apart`).
  [[nodiscard]] const std::set<std::uint32_t>& to_tell_apart() const { return to_tell_apart_; }
  /// Whether the program is traced again whatever else is found.
  [[nodiscard]] bool is_traced_again() const { return wants_samples_ || !pinned_.empty() || !to_tell_apart_.empty(); }
  /// Why a symbol is pinned.
  struct Reason {
    std::uint32_t symbol = 0;
    ir::SourceLocation location;
    bool is_by_conditions = false;  ///< those of earlier attempts leave it few values
  };
  [[nodiscard]] const std::vector<Reason>& reasons() const { return reasons_; }

  /// A stride of an input that is a symbol. The trace for all sizes has another input for it, behind those of the
  /// program: a tensor without elements whose first size it is, as there is for an int.
  struct StrideInput {
    std::uint32_t input = 0;  ///< by its place among the inputs
    std::uint32_t dim = 0;
    std::uint32_t symbol = 0;
  };
  [[nodiscard]] const std::vector<StrideInput>& stride_inputs() const { return stride_inputs_; }

  /// The trace for all sizes; nullopt, and symbols are pinned: there is none.
  [[nodiscard]] std::optional<ir::Trace> generalize(const ir::Trace& trace);

 private:
  struct Shadow {
    std::vector<std::int64_t> symbols;  ///< their values
    std::optional<std::uint32_t> only;  ///< the one symbol that is not as traced
    std::vector<std::uint32_t> group;   ///< the few of many that are not
    std::unique_ptr<Recorder> recorder;
    std::unordered_map<const c10::TensorImpl*, at::Tensor> tensors;                 ///< by tensor of the program
    std::unordered_map<const torch::autograd::Node*, autograd::NodePointer> nodes;  ///< by node of the program
    bool is_lost = false;
  };
  class Host;

  /// Types of the results of an operation, whose sizes follow from data, at a sample.
  [[nodiscard]] ResultTypes data_types_at(std::span<const std::int64_t> sample, std::size_t place,
                                          const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) const;
  void add_shadow(SizeSample sample);
  [[nodiscard]] bool is_any_lost() const;
  /// Whether sizes are given as expressions.
  [[nodiscard]] bool tells_sizes() const;
  /// Where the program needs it to be equal to another symbol, it is that one, as sizes of tensors are.
  ir::Dim dim_of_symbol(std::uint32_t index);
  void make_fit();
  /// Expressions for a tensor's sizes; nullopt: they are numbers, or there are none, and symbols are pinned.
  [[nodiscard]] std::optional<ir::Dims> dims_of(const c10::TensorImpl& tensor);
  [[nodiscard]] std::optional<ir::Dims> strides_of(const c10::TensorImpl& tensor);
  /// Makes what decides whether a tensor is contiguous a condition; false: nobody knows.
  bool decide_contiguity(const c10::TensorImpl& tensor);
  [[nodiscard]] c10::SymInt as_size(const ir::Dim& dim) const;
  [[nodiscard]] bool has_only_sizes_from_two_on(const c10::TensorImpl& tensor);
  void give(const ir::Dims& dims, std::vector<c10::SymInt>& given) const;
  void require_sizes_of_two(const at::Tensor& tensor);
  /// The program gets numbers for sizes.
  void note_numbers() { gave_numbers_ = true; }
  /// The line that the program is in.
  [[nodiscard]] ir::SourceLocation locate() const;
  void lose(Shadow& shadow);
  /// Something follows the symbols that are not as traced here, where these are few; false: they are not.
  bool pin_changed(const Shadow& shadow);
  /// An operation did something else in these: bounds of symbols exclude them, or equal sizes of its operands; else
  /// they are lost.
  void exclude(std::span<Shadow* const> failed, std::span<const c10::IValue> arguments);
  /// Sizes of the tensors among the arguments; empty: they are not known.
  [[nodiscard]] std::vector<ir::Dims> shapes_of(std::span<const c10::IValue> arguments);
  void note_strides(const TraceTensorImpl& input, const ir::StrideRule& rule);
  /// The values of symbols in the rule of an input.
  [[nodiscard]] ir::SymbolDim dims_of_symbols();
  void note_operation(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  void pin(std::uint32_t symbol, bool is_by_conditions = false);
  void add_condition(const ir::Condition& condition);
  void repeat(Shadow& shadow, const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
              std::span<const c10::IValue> results);
  /// The type that a tensor of the program has at all sizes; nullopt: it is none, or nobody knows.
  [[nodiscard]] std::optional<ir::TensorType> general_type(const at::Tensor& tensor);
  /// Makes it a condition that the operation does nothing else where a size is next to another one.
  void probe(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
             std::span<const c10::IValue> results);
  [[nodiscard]] std::optional<ir::Dim> size_at(const c10::IValue& tensor, std::int64_t dim);
  [[nodiscard]] at::Tensor tensor_in(const Shadow& shadow, const at::Tensor& tensor) const;
  void pair(Shadow& shadow, const c10::IValue& result, const c10::IValue& other);
  /// Pairs the recorded operations in histories, as far back as they are not known yet.
  void pair_nodes(Shadow& shadow, const autograd::NodePointer& node, const autograd::NodePointer& other);
  /// `derive` at another size, whose gradients are for values of the same numbers.
  void derive_in(Shadow& shadow, const TraceNode& node, std::span<const at::Tensor> cotangents,
                 std::span<const at::Tensor> gradients);
  Recorder& program_;
  std::shared_ptr<SizeScope> scope_ = std::make_shared<SizeScope>();
  std::vector<SizeSymbol> symbols_;
  std::vector<ir::Condition> layouts_;
  std::vector<StrideInput> stride_inputs_;
  std::unique_ptr<Host> host_;
  SizeProbes probes_;
  std::vector<Shadow> shadows_;
  /// Tensors of the program, whose addresses are keys. Backwards ask who else refers to a gradient: this does not
  /// count.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> kept_;
  std::vector<autograd::NodePointer> kept_nodes_;
  std::set<std::uint32_t> pinned_;
  std::set<std::uint32_t> to_tell_apart_;
  std::set<std::uint32_t> ints_;  ///< symbols that are ints among the arguments
  std::vector<Reason> reasons_;
  std::optional<ir::SourceLocation> lost_at_;  ///< where an operation first did something else at another size
  std::vector<Assumed> assumed_;
  std::vector<ir::Dim> expressions_;  ///< that the program computed
  std::unique_ptr<ir::SizeFit> fit_;
  std::unordered_map<const c10::TensorImpl*, ir::Dims> input_dims_;  ///< known where few samples are left, too
  /// Sizes and strides that were given to the program.
  std::unordered_map<const c10::TensorImpl*, std::vector<c10::SymInt>> sizes_;
  std::unordered_map<const c10::TensorImpl*, std::vector<c10::SymInt>> strides_;
  bool wants_samples_ = false;
  /// Few sizes were left, and the program got numbers for what it computed: what it decides on them is for no others.
  bool gave_numbers_ = false;
  bool tells_all_strides_ = false;
  int depth_ = 0;
};

}  // namespace thunder::tracer
