#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/trace.h"
#include "operators/facts.h"
#include "tracer/live_tensors.h"
#include "tracer/numbers.h"

namespace torch::autograd {
struct FunctionPreHook;
}

namespace thunder::tracer {

struct CustomGradient;
struct PythonFunction;
struct TraceState;
class TraceNode;
struct ResultTypes;
class Realizer;

/// Where in the dispatcher calls are recorded.
enum class Level : std::uint8_t {
  kTop,     ///< as the program called them, above autocast and autograd
  kBottom,  ///< below autograd: what backends execute
};

/// Settings of the process that operators follow when they run.
struct NumberSettings {
  caffe2::TypeMeta default_dtype;
  bool deterministic = false;
  [[nodiscard]] static NumberSettings now();
  bool operator==(const NumberSettings&) const = default;
};

/// Builds a trace from the dispatcher calls made on a thread while a `RecordTop` or `RecordBottom` scope is active.
///
/// Program tensors are trace tensors (`trace_tensor.h`): real `at::Tensor`s without data. The trace is functional: a
/// write gives its target, and what shares memory with it, a new value; writes to inputs end the trace as `copy_`.
/// A real tensor that is not an input becomes a constant of the trace.
class Recorder {
 public:
  /// Records under the settings of the trace that is recorded on this thread, or those of now.
  Recorder(std::string trace_name, std::shared_ptr<ir::TraceContext> context, Level level = Level::kTop);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  [[nodiscard]] const NumberSettings& settings() const { return settings_; }
  [[nodiscard]] LiveTensors& live_tensors() { return live_; }
  /// Adds the trace tensors that somebody keeps, those of parts of the program too.
  void add_kept_tensors(std::vector<WeakTensor>& tensors) const {
    live_.add_kept(tensors);
    for (const std::shared_ptr<Recorder>& part : parts_) part->add_kept_tensors(tensors);
  }

  /// A trace tensor that stands for `real` (same metadata, `requires_grad` too) and is the next input of the trace.
  /// The same tensor gives the same trace tensor. `real` is kept alive while the recorder lives.
  at::Tensor add_input(const at::Tensor& real, std::string name);
  /// A trace tensor of the given type, the next input of the trace.
  at::Tensor add_input(ir::TypePtr type, std::string name = {});
  /// The real tensors behind the inputs, in order (undefined for those added by type).
  [[nodiscard]] const std::vector<at::Tensor>& real_inputs() const { return real_inputs_; }
  /// The trace tensor for a real one that is an input already.
  [[nodiscard]] std::optional<at::Tensor> find_input(const at::Tensor& real) const;

  /// The value that a trace tensor of this recorder stands for now. May record views anew after a write.
  ir::ValueId value_of(const at::Tensor& trace_tensor);
  /// The value to return for a trace tensor: as `value_of`, but never memory that belongs to the trace itself.
  ir::ValueId output_of(const at::Tensor& trace_tensor);
  /// The same, laid out as recorded, for views that are made of it outside of the trace.
  ir::ValueId viewed_output_of(const at::Tensor& trace_tensor);
  /// Storages that several inputs lie in, one of which the program writes to. Such inputs are recorded as views of the
  /// storage. What is not known at first is added when it is found, with an error: trace again with what is here then.
  std::vector<const c10::StorageImpl*> shared_storages;
  /// Positions of the inputs whose memory the program has written to.
  [[nodiscard]] std::vector<std::size_t> written_inputs() const;
  /// For each input a number that it has in common with those in the same of `shared_storages`; -1: with none.
  [[nodiscard]] std::vector<std::int32_t> shared_memory_of_inputs() const;
  /// Inputs that take part in autograd by what was written to them, and the written values: the caller's tensors get
  /// their history.
  [[nodiscard]] std::vector<std::pair<std::size_t, ir::ValueId>> inputs_with_new_history() const;
  /// Whether it is what an input was before the program turned it in place (`t_`).
  [[nodiscard]] bool was_input(const at::Tensor& trace_tensor) const;
  /// Whether something was written to the memory of the input that `trace_tensor` stands for.
  [[nodiscard]] bool is_written(const at::Tensor& trace_tensor) const;

  /// The user's line for the symbols recorded next; may be empty. Called once per recorded operation.
  std::function<ir::SourceLocation()> locate;

  /// Gives a scope that is held while a call is recorded: in it Python may be asked for lines, and Python code that
  /// runs (meta kernels) is not taken for the program's. May be empty.
  std::function<std::shared_ptr<void>()> outside_program;

  /// Gives the stand-in for a tensor that is not of this recorder, in a recorder for a part of a program (`region.h`).
  /// Empty: real tensors become constants, and tensors of other traces are refused.
  std::function<at::Tensor(const at::Tensor&)> adopt;
  /// Whether the program has written to any tensor in place.
  [[nodiscard]] bool has_writes() const { return has_writes_; }
  [[nodiscard]] const at::Tensor& input(std::size_t position) const { return inputs_.at(position); }
  /// In such a part, the data that the program in `input(position)` gets, as far as it is known while tracing.
  std::function<at::Tensor(std::size_t position)> data_of_input;
  /// What `trace_tensor` holds, by running the trace so far on its real inputs.
  [[nodiscard]] at::Tensor data_of(const at::Tensor& trace_tensor);
  /// Records a check of another trace (`prims.check_number`, `prims.check_shape`) again, of `trace_tensor`.
  void repeat_check(const ir::BoundSymbol& check, const at::Tensor& trace_tensor);
  /// Keeps the recorder of a part of the program alive as long as this one.
  void keep(std::shared_ptr<Recorder> part) { parts_.push_back(std::move(part)); }

  /// Refuse programs that read the data of tensors, instead of specializing on what they read.
  bool full_graph = false;
  /// The one element of a trace tensor; what the trace does with it holds for any number.
  [[nodiscard]] Number item(const at::Tensor& trace_tensor);
  /// See `bridge::compute_number`.
  [[nodiscard]] std::optional<Number> compute(std::string_view operation, const NumberOperand& left,
                                              const NumberOperand& right);
  /// The program looks at a number: what follows holds for this one only.
  void meet(const Number& number);
  /// A trace tensor that stands for a number among the arguments of operations.
  [[nodiscard]] at::Tensor number_tensor(ir::ValueId number);
  /// Records `prims.item` or `prims.number` of another trace again; numbers are what `number_tensor` gives.
  [[nodiscard]] at::Tensor repeat_number(const ir::BoundSymbol& symbol,
                                         const std::function<at::Tensor(ir::ValueId)>& stand_in);
  /// The program looks at all of a tensor: a real copy of it. What follows holds for these contents only.
  [[nodiscard]] at::Tensor contents_of(const at::Tensor& trace_tensor);
  /// Memory that arrays of NumPy, or the like, and tensors of the trace share.
  struct SharedMemory {
    at::Tensor real;    ///< over that memory
    at::Tensor before;  ///< a copy of it
    std::shared_ptr<TraceState> state;
    std::uint32_t writes = 0;  ///< to the tensor of the trace, before
    bool is_returned = false;
  };
  /// Enters that the program may see the memory of `real` without the dispatcher.
  void add_shared_memory(const at::Tensor& real, const at::Tensor& trace_tensor);
  [[nodiscard]] const std::vector<SharedMemory>& shared_memory() const { return shared_memory_; }
  /// Refuses programs that wrote to shared memory: the trace keeps what a tensor held, not the memory.
  void require_unwritten_memory() const;
  /// Refuses results over memory that an input, or another result, has by way of what is no tensor.
  void require_memory_of_one() const;
  /// Types to take for the results of `op` where they follow from data; set by replays, which have none.
  void expect_results(const c10::OperatorHandle& op, std::shared_ptr<const ResultTypes> types);

  /// Records the backward of one recorded operation for these cotangents (undefined: zero) and gives a gradient for
  /// each distinct value among its arguments. Set by whoever can differentiate; see transforms/inner_gradient.h.
  std::function<std::vector<at::Tensor>(TraceNode& node, std::vector<at::Tensor> cotangents)> derive;
  /// The trace tensor to use for any tensor: itself, an input, or a constant.
  at::Tensor stand_in(const at::Tensor& tensor) { return replace_real_tensor(tensor); }
  /// A trace tensor without a history that stands for a value of this trace.
  at::Tensor tensor_of(ir::ValueId value);
  /// Puts `symbols` in the place of the one that made `result`, when the trace is next looked at as a whole.
  void replace(ir::ValueId result, std::vector<ir::BoundSymbol> symbols);
  /// `value` for a tensor that does not require grad though the value does.
  ir::ValueId without_grad(ir::ValueId value);
  /// Records what the hooks on the tensors of a node (`register_hook`) do to gradients, for a backward after the trace.
  /// The program has been recorded.
  void record_hooks(torch::autograd::Node& node);
  /// Gives `results` of an autograd function of the program a history that arises when the trace runs; see
  /// python_function.h. Undefined: no tensor. Gives a tensor that stands for a result as that run makes it.
  at::Tensor add_python_function(std::span<const at::Tensor> results, std::span<const at::Tensor> inputs,
                                 std::span<const at::Tensor> saved, std::shared_ptr<const PythonFunction> function);
  /// Makes `trace_tensor` one that exists by itself when the trace runs, with the history of all that was recorded
  /// before it; false for one that this trace does not make, or that was written to.
  bool set_apart(const at::Tensor& trace_tensor);
  /// From here on, a write to what exists already is noted: what is recorded may turn out not to belong to the program.
  void begin_trial() { trial_ = Trial{static_cast<std::uint32_t>(trace_.value_count()), false}; }
  /// Whether nothing was written to.
  [[nodiscard]] bool end_trial() { return !std::exchange(trial_, Trial()).has_written; }
  /// The real tensor behind an input; undefined for every other trace tensor.
  [[nodiscard]] at::Tensor real_behind(const at::Tensor& trace_tensor) const;

  /// Records one call; arguments on the stack become results. What the fallbacks call.
  void call(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);
  /// Records a call of the tracer's own; arguments that are left out have their defaults (call_builder.h).
  std::vector<c10::IValue> call_by_name(const char* name, const char* overload, std::vector<c10::IValue> arguments);

  /// Ends the trace, or a part of it, with a `copy_` to each input that was written to.
  void copy_written_inputs();
  /// The same; views of these inputs that are read from now on are views of the inputs themselves.
  void return_written_memory();
  /// The trace so far, with these outputs and the writes to inputs; the recorder is empty afterwards.
  [[nodiscard]] ir::Trace finish(ir::ArgumentList outputs);
  [[nodiscard]] ir::Trace& trace() { return trace_; }
  /// Adds a symbol to the trace as it is.
  ir::BoundSymbol& add(ir::BoundSymbol symbol);
  /// Takes the symbols from `begin` on out of the trace. Constants stay: the program may use them again.
  [[nodiscard]] std::vector<ir::BoundSymbol> cut(std::size_t begin);

 private:
  friend class CheckpointRegion;

  at::Tensor add_tensor(ir::TypePtr type, std::string name, bool is_input);
  at::Tensor add_constant(const at::Tensor& real);
  /// Records the backward that an autograd function of the program left on `tensor` and the other results of the same
  /// call, once; see custom_gradient.h.
  void adopt_gradient(const at::Tensor& tensor);
  /// The living results of the node of the program that made `tensor`, by their numbers.
  [[nodiscard]] std::vector<at::Tensor> with_siblings(const at::Tensor& tensor) const;
  /// The value whose gradient goes along an edge that ends the part of the graph that a function of the program left.
  ir::ValueId value_of_edge(const torch::autograd::Edge& edge);
  /// Hangs the results of a symbol in PyTorch's graph.
  void attach_node(const ir::BoundSymbol& symbol, const std::vector<at::Tensor>& arguments,
                   const std::vector<at::Tensor>& results, const std::string& name);
  /// Gives `target` the history of what was written to it.
  void adopt_history(const at::Tensor& target, const at::Tensor& source, bool recorded);
  /// Gives a tensor that the program made a leaf a value that requires grad.
  void mark_leaf(const at::Tensor& tensor);
  void settle();
  /// `value`, whose gradient goes to `owner`: what autograd sees of a write that it does not record.
  ir::ValueId with_gradient_of(ir::ValueId value, ir::ValueId owner);
  std::vector<ir::ValueId> add_custom_gradient(const std::vector<ir::ValueId>& values,
                                               std::shared_ptr<CustomGradient> gradient);
  ir::BoundSymbol make_custom_gradient(const std::vector<ir::ValueId>& values, const std::vector<ir::ValueId>& results,
                                       std::shared_ptr<CustomGradient> gradient);
  /// Puts a gradient behind the symbol that makes `value`, which the rest of the trace reads as it did. Gives what that
  /// symbol makes now.
  ir::ValueId insert_custom_gradient(ir::ValueId hooked, ir::ValueId value, std::shared_ptr<CustomGradient> gradient);
  void record_hook(torch::autograd::FunctionPreHook& hook, const std::vector<ir::ValueId>& hooked,
                   std::vector<ir::ValueId>& values);
  void replace_real_tensors(std::span<c10::IValue> arguments);
  at::Tensor replace_real_tensor(const at::Tensor& tensor);

  std::shared_ptr<const ResultTypes> infer_cached(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                                  Level level);
  std::shared_ptr<const ResultTypes> infer_by_probe_cached(const c10::OperatorHandle& op,
                                                           std::span<const c10::IValue> arguments);
  std::shared_ptr<const ResultTypes> infer_without_data(const c10::OperatorHandle& op,
                                                        std::span<const c10::IValue> arguments, Level level);
  /// Null: a composite that gives a view, whose primitive views are recorded, or that reads data on its way.
  std::shared_ptr<const ResultTypes> infer_unless_parts_are_recorded(const c10::OperatorHandle& op,
                                                                     std::span<const c10::IValue> arguments,
                                                                     Level level);
  /// `tensor`, with the strides that it has here also when it runs: kernels may give others than they say.
  at::Tensor with_recorded_strides(const at::Tensor& tensor);
  /// Makes arguments of `as_strided` and its like say what they mean in the memory that the trace has.
  void lay_out_memory(std::vector<c10::IValue>& arguments);
  void call_functional(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);
  /// Runs a composite's own code, whose parts are recorded. Where it reads the data of integers (positions, lengths),
  /// the trace holds for these.
  void call_parts(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  /// Whether autocast casts inside of a composite, whose parts are recorded then.
  bool is_taken_apart(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  void call_mutable(const c10::OperatorHandle& op, torch::jit::Stack& stack, Level level);
  struct MutableCall;
  std::vector<c10::IValue> call_counterpart(const MutableCall& call, const c10::OperatorHandle& functional,
                                            Level level);
  /// What a call draws, in fresh memory that is laid out as its target.
  at::Tensor fill_alike(const MutableCall& call);
  /// Gives a target of a call what the counterpart computed for it.
  void assign_result(const MutableCall& call, std::size_t target, at::Tensor result, Level level);
  /// Random fills of fresh memory stay in place: the order of the numbers follows the memory's layout.
  bool call_random_fill(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  [[nodiscard]] bool is_uninitialized(const at::Tensor& tensor) const;
  std::vector<c10::IValue> record(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments,
                                  const ResultTypes& types, Level level);
  ir::ArgumentList to_arguments(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

  // Generators that the program makes (generators.cpp)
  void call_making_generator(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  [[nodiscard]] std::optional<ir::ValueId> find_generator(const c10::IValue& value) const;

  // Data dependence (data_dependence.cpp)
  Realizer& realizer();
  void require_data() const;
  void bring_data_of_inputs();
  c10::Scalar read_number(const at::Tensor& tensor);
  bool read_truth(const at::Tensor& tensor);
  Number add_number(const ir::Operator* op, ir::ArgumentList arguments, const c10::Scalar& value);
  at::Tensor make_number_tensor(ir::ValueId id, const ir::Type& type);
  /// For a part of a program: a number that the program around it read is a constant, which that program looks at.
  static at::Tensor adopt_number(const at::Tensor& tensor);
  void call_reading_number(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  c10::IValue with_contents(const c10::IValue& argument);
  void call_writing_by_mask(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  /// Calls an operator whose own code reads lengths; the trace holds for these. False: it is another one.
  bool call_reading_lengths(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  static void call_ctc_loss(Recorder& recorder, std::vector<c10::IValue> arguments, torch::jit::Stack& stack);
  void call_giving_numbers(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  ResultTypes infer_by_running(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);
  void add_check(const ir::Operator* op, ir::ValueId value, ir::Argument expected);
  void check_shapes(std::span<const c10::IValue> results);

  [[nodiscard]] bool is_input(const at::Tensor& trace_tensor) const;
  /// Whether an operator in the trace has one of these facts.
  [[nodiscard]] bool has_any(operators::FactSet facts);

  // The memory behind the inputs (input_memory.cpp)
  struct InputMemory {
    at::Tensor root;                            ///< the input, or all of a storage that inputs share
    ir::ValueId value{};                        ///< before any write
    const c10::StorageImpl* storage = nullptr;  ///< shared by inputs
    std::uint32_t copied = 0;                   ///< the root's writes that are in the input
  };
  void add_memory(const at::Tensor& input);
  std::size_t add_storage(const at::Tensor& real, ir::ValueId input);
  void lay_into_storage(const at::Tensor& real, const at::Tensor& input);
  [[noreturn]] void found_shared(const c10::StorageImpl* storage);
  void require_separate_memory(const TraceState& root);
  void add_resize(const InputMemory& memory);
  [[nodiscard]] bool is_shared_storage(const TraceState& root) const;
  void require_writable(const at::Tensor& target, const at::Tensor& source) const;
  void require_no_leaves(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) const;
  /// A tensor that requires grad and that no operation made, to eager.
  [[nodiscard]] bool is_leaf_of_program(const at::Tensor& tensor) const;
  void require_detachable(const c10::OperatorHandle& op, const at::Tensor& target) const;
  /// Refuses what gives results another history in eager than a trace can give them.
  static void require_known_history(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

  void assign(const c10::OperatorHandle& op, const at::Tensor& target, at::Tensor source, bool may_resize);
  /// `source` with the target's shape, dtype and device, in memory of its own.
  at::Tensor copy_like(const at::Tensor& target, const at::Tensor& source);
  /// `recorded`: autograd sees the write (gradients on, and not through `detach`).
  void write(const at::Tensor& target, const at::Tensor& source, bool recorded);
  /// Records a view anew after a write to its memory, and gives that; undefined when it was up to date.
  at::Tensor refresh(TraceState& state);
  /// The parent of the view `target` with `source` in the place of what the view shows.
  at::Tensor with_tangent_of(const at::Tensor& value, const at::Tensor& before);
  at::Tensor scatter_into_parent(const at::Tensor& target, const at::Tensor& source);

  NumberSettings settings_;
  LiveTensors live_;
  bool has_writes_ = false;
  bool has_inference_inputs_ = false;
  ir::Trace trace_;
  Level level_;
  std::optional<operators::FactSet> facts_ = operators::FactSet();  ///< of its operators; none: to be found in it
  std::vector<at::Tensor> real_inputs_;
  std::vector<at::Tensor> inputs_;
  std::vector<InputMemory> memories_;
  std::vector<std::size_t> memory_of_input_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> inputs_by_real_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> constants_by_real_;
  std::vector<at::Tensor> real_constants_;
  std::vector<SharedMemory> shared_memory_;
  std::unordered_map<std::string, std::shared_ptr<const ResultTypes>> inferred_;
  std::unordered_map<std::string, bool> taken_apart_;
  std::optional<c10::OperatorHandle> expected_operator_;
  std::shared_ptr<const ResultTypes> expected_types_;
  std::unique_ptr<Realizer> realizer_;
  struct KnownNumber {
    c10::Scalar value;
    at::Tensor tensor;  ///< stands for it; made when it is needed
  };
  std::unordered_map<std::uint32_t, KnownNumber> numbers_;                        ///< by value
  std::unordered_map<std::uint32_t, std::vector<ir::BoundSymbol>> replacements_;  ///< by index of the first result
  std::unordered_map<std::uint32_t, ir::ValueId> detached_;
  std::unordered_map<const void*, std::vector<ir::ValueId>> adopted_;  ///< node of the program -> values by result
  std::vector<torch::autograd::Edge> kept_nodes_;                      ///< so that addresses stay unique
  std::vector<std::size_t*> marks_;                                    ///< positions in the trace that move with it
  std::vector<std::shared_ptr<Recorder>> parts_;
  struct Trial {
    std::uint32_t begin = 0;  ///< the first value that is made in it
    bool has_written = false;
  };
  Trial trial_;
  std::vector<std::pair<at::Generator, ir::ValueId>> generators_;  ///< stand-ins of those made at each run
};

/// Whether eager refuses to write to a tensor from outside with gradients on, for what it is a view of.
[[nodiscard]] bool is_closed_outside(const at::Tensor& tensor);

}  // namespace thunder::tracer
