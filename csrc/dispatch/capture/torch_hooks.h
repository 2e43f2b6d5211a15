#pragma once

#include <functional>
#include <set>
#include <string>
#include <unordered_map>

#include "dispatch/call/overrides.h"
#include "dispatch/capture/unread_arrays.h"
#include "dispatch/numbers/size_number.h"
#include "dispatch/numbers/traced_number.h"
#include "dispatch/python/errors.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/python/python_ref.h"
#include "interpreter/python/tensor_hooks.h"
#include "tracer/recorder.h"

namespace thunder::dispatch {

/// Shows the program trace tensors in place of the tensors that come from outside.
class TorchHooks final : public interpreter::TensorHooks {
 public:
  TorchHooks(tracer::Recorder& recorder, const Overrides& overrides, UnreadArrays& arrays)
      : recorder_(recorder), overrides_(overrides), arrays_(arrays) {}

  /// Called for each new input, with the tensor and what stands for it.
  std::function<void(PyObject* real, const at::Tensor& traced, const std::string& path)> note_input;
  /// Called for each number that the program reads outside: the tensor that is to be an input for it, or none.
  std::function<at::Tensor(PyObject* number, const std::string& path)> input_for_number;
  /// Called for tuples of constants, and for lists that PyTorch gets, from outside: whether numbers in one are inputs.
  std::function<bool(PyObject* sequence, const std::string& path)> are_inputs;
  /// Called for functions from outside: whether other calls have another one of the same code there.
  std::function<bool(PyObject* function, const std::string& path)> is_changing_function;
  /// `tensor.item()` and `torch.tensor(list)`, of tensors and numbers of the trace.
  std::function<PyObject*(PyObject* tensor)> item_of;
  std::function<PyObject*(PyObject* list)> tensor_of_list;
  /// Called for each number that is an input now, with what stands for it: what the program sees.
  std::function<PyObject*(PyObject* real, const at::Tensor& traced, const std::string& path)> note_number;

  [[nodiscard]] bool is_real_tensor(PyObject* object) const override;
  [[nodiscard]] bool is_plain_class(PyTypeObject* type) const override;
  [[nodiscard]] bool is_traced(PyObject* object) const override;
  PyObject* lift(PyObject* real_tensor, const std::string& path) override;
  PyObject* make_anew(PyObject* real_tensor) override;
  PyObject* original(PyObject* traced) const override;
  [[nodiscard]] std::size_t input_index(PyObject* real_tensor) const override;
  [[nodiscard]] std::size_t recorded() const override { return recorder_.trace().symbols.size(); }
  [[nodiscard]] std::string describe(PyObject* tensor) const override;
  [[nodiscard]] interpreter::ConstantKind classify(PyObject* object) const override;
  [[nodiscard]] PyObject* attribute(PyObject* owner, PyObject* name) const override;

  bool require_known_state(PyObject* traced, PyObject* name) override;
  bool may_set_state(PyObject* traced, PyObject* name) override;
  [[nodiscard]] bool is_unknown_state(PyObject* traced, PyObject* name) const override;
  bool learn_state(PyObject* traced, PyObject* name, PyObject* value) override;
  int is_instance(PyObject* object, PyObject* kind) override;

  [[nodiscard]] bool is_number(PyObject* object) const override { return is_traced_number(object); }
  PyObject* present_sizes(PyObject* value) override;
  void translate_exception() override { set_python_error(); }
  [[nodiscard]] bool is_size(PyObject* object) const override { return is_size_number(object); }
  PyObject* lift_number(PyObject* number, const std::string& path, std::size_t* input) override;
  bool numbers_change(PyObject* sequence, const std::string& path) override;
  bool function_changes(PyObject* function, const std::string& path) override;
  [[nodiscard]] bool takes_sizes(PyObject* function) const override;
  PyObject* plain_number(PyObject* object) override;
  PyObject* number_now(PyObject* object) override;
  void need_number(PyObject* lifted) override;
  PyObject* length(PyObject* object) override;
  PyObject* get_item(PyObject* owner, PyObject* key) override;
  int set_item(PyObject* owner, PyObject* key, PyObject* value) override;
  PyObject* operand(PyObject* number, PyObject* other, bool is_key) override;
  bool look_into(PyObject* object) override { return arrays_.look_into(object); }
  PyObject* tensor_shown_by(PyObject* array) override { return arrays_.tensor_shown_by(array); }

  /// The state of an input, besides its data, that the program has read or written.
  struct InputState {
    py::Ref real;
    py::Ref traced;
    py::Ref grad{};                    ///< as the program found it
    bool knows_grad = false;           ///< whether the program has looked
    std::set<std::string> compared{};  ///< the attributes that the trace tensor has like the tensor, as is guarded
    const Overrides::Entry* override = nullptr;  ///< a transform replaced it, or added others beside
  };
  [[nodiscard]] const std::vector<InputState>& states() const { return states_; }

  /// Runs the hooks that the tensor behind a leaf has, on its gradient; throws PendingError.
  void run_hooks(interpreter::Tracker& tracker, const at::Tensor& leaf, at::Tensor& gradient) const;
  void run_post_accumulate_hooks(interpreter::Tracker& tracker, const at::Tensor& leaf) const;

  /// The tensors behind the inputs, in order.
  [[nodiscard]] const std::vector<py::Ref>& inputs() const { return inputs_; }

 private:
  /// An index of a trace tensor with numbers in the place of tensors that hold one, and tensors in that of lists of
  /// numbers of the trace: as PyTorch takes them.
  PyObject* index_with_numbers(PyObject* index);
  [[nodiscard]] bool is_position(PyObject* index) const;
  /// A number, or a tensor that holds one, as a position: an int or a size; another object as it is.
  PyObject* position(PyObject* index);
  void enter_input(PyObject* real, const py::Ref& traced, const Overrides::Entry* override);

  tracer::Recorder& recorder_;
  const Overrides& overrides_;
  UnreadArrays& arrays_;
  std::vector<py::Ref> inputs_;
  std::unordered_map<const PyObject*, std::size_t> index_by_real_;
  std::unordered_map<const PyObject*, std::size_t> index_by_traced_;
  std::vector<InputState> states_;
};

}  // namespace thunder::dispatch
