#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compile/saved_values.h"
#include "dispatch/call/output_history.h"
#include "interpreter/python/python_ref.h"
#include "runtime/versions.h"
#include "tracer/recorder.h"
#include "tracer/size_shadows.h"
#include "tracer/trace_tensor.h"

namespace thunder::dispatch {

/// The view that a trace tensor is to autograd; null: a tensor of its own, or one that an autograd function of the
/// program gave, whose gradient is not that of the view.
[[nodiscard]] const tracer::ViewOf* view_of(const at::Tensor& tensor);

/// How a view that the program returns or stores is made of the tensor that it shows: as the program made it, so that
/// autograd knows it as a view, as in eager.
class OutputView {
 public:
  /// Takes the view apart down to `root`, a result of the computation or, if `is_input`, an input. Throws where what
  /// the program has done to it cannot be repeated.
  OutputView(const at::Tensor& view, const at::Tensor& root, bool is_input);
  /// The sizes among the arguments of each view, the last one first, are these expressions.
  void set_sizes(std::vector<std::vector<tracer::SizeInCall>> sizes);
  /// Adds the symbols that such sizes depend on to a sorted list.
  void add_symbols(std::vector<std::uint32_t>& symbols) const;
  /// `symbols`: their values, by index.
  [[nodiscard]] at::Tensor show(const at::Tensor& root, ir::SymbolValues symbols) const;

 private:
  struct Step {
    std::optional<c10::OperatorHandle> op;  ///< nullopt: `.data`
    std::vector<c10::IValue> arguments;     ///< the first one is what is viewed
    std::vector<tracer::SizeInCall> sizes;  ///< integers among the arguments that depend on symbols
    bool by_position = false;               ///< `as_strided`: its arguments count from the start of the memory
    std::size_t result = 0;
    bool grad_mode = true;
    bool inference_mode = false;
  };
  void add(const tracer::ViewOf& view);
  static at::Tensor run(const Step& step, const at::Tensor& shown, ir::SymbolValues symbols);

  std::vector<Step> steps_;                         ///< the last one first
  std::vector<std::optional<std::size_t>> places_;  ///< in `steps_`, by view; nullopt: the tracer's own, no step
  std::optional<std::int64_t> offset_;  ///< offset of a computed root as recorded, from which `as_strided` counts
  bool is_leaf_ = false;                ///< the program says that it requires grad
  std::int64_t version_ = 0;            ///< version counter of a view of `.data`, which is not the root's
};

/// How the tensors that a computation gives become what the caller gets.
struct OutputPlan {
  static constexpr std::int32_t kNoView = -1;
  struct Source {
    bool is_input = false;
    std::uint32_t index = 0;        ///< position among the inputs, or the results of the computation
    std::int32_t view = kNoView;    ///< position in `views` of the view that is given instead; kNoView: none
    py::Ref type{};                 ///< a subclass of Tensor, or of an int; null: none
    bool is_parameter = false;      ///< a leaf of its own, as `as_subclass` makes it; others only get their class
    std::optional<ir::Dim> size{};  ///< an int: there is no tensor
  };
  struct View {
    OutputView how;
    bool is_input = false;
    std::uint32_t index = 0;      ///< position among the inputs, or the results of the computation
    std::int32_t base = kNoView;  ///< position in `views` of an earlier view that this is a view of
  };

  std::vector<Source> sources;  ///< by tensor of the structure; empty: the computation's results, one by one
  std::vector<View> views;
  compile::Feeds feeds;                  ///< views that results of the computation are computed from
  compile::Feeds written_feeds;          ///< new histories of written inputs that results are computed from
  compile::Feeds result_feeds;           ///< results that are fed themselves, and others that are computed from them
  std::vector<OutputHistory> histories;  ///< by result of the computation; empty: all kComputed
  std::vector<std::pair<std::uint32_t, std::uint32_t>> behind_raising;  ///< result that raises, input behind it
  runtime::Versions versions;

  /// The symbols that sizes of views, and those that are results, depend on, ascending.
  [[nodiscard]] std::vector<std::uint32_t> symbols() const;
};

/// Plans the outputs of one trace.
class OutputPlanner {
 public:
  /// `shadows`: of a trace for many sizes; null: all are numbers.
  OutputPlanner(tracer::Recorder& recorder, tracer::SizeShadows* shadows);

  /// Notes which value a view among the program's results shows. To be called before anything else is done for a
  /// result.
  void note_view(PyObject* object);
  /// Backwards through these nodes of the program's graph raise, since what they read is written over. To be called
  /// before `outputs`.
  void note_overwritten(std::unordered_set<const torch::autograd::Node*> nodes) { overwritten_ = std::move(nodes); }
  void add_number(ir::ValueId value);
  /// `type`: NumPy's, in the place of `int`, or null.
  void add_size(const ir::Dim& size, PyObject* type) {
    plan_.sources.push_back({.type = py::Ref::share(type), .size = size});
  }
  /// A tensor that the program returns or stores.
  void add_tensor(PyObject* object);
  /// The values that the computation has to return. To be called after the last `add_number` and `add_tensor`.
  [[nodiscard]] ir::ArgumentList outputs();
  /// `trace` is what was recorded, with these outputs first.
  [[nodiscard]] OutputPlan finish(const ir::Trace& trace);

 private:
  struct Root {
    at::Tensor tensor;
    bool is_input = false;
    std::uint32_t index = 0;
  };
  struct Computed {
    at::Tensor tensor{};  ///< undefined: a number
    ir::ValueId number = ir::kNoValue;
    bool is_viewed = false;  ///< views of it are made after the computation
  };
  struct Viewed {
    at::Tensor tensor;
    Root root;
    std::size_t source = kNoSource;
    std::size_t depth = 0;  ///< views between the root and this
  };
  static constexpr std::size_t kNoSource = ~std::size_t{0};
  Root find_root(const at::Tensor& tensor);
  void add_shared_data();
  void plan_views();
  /// The value of an output, found in the recorders at other sizes, too. `stays`: its history is that of the value.
  [[nodiscard]] ir::ValueId output_of(const Computed& computed, bool stays);
  void plan_sizes(const at::Tensor& tensor, const at::Tensor& base, OutputView& view);
  [[nodiscard]] compile::Feeds find_feeds(const ir::Trace& trace, std::span<const compile::FeedSource> sources) const;
  [[nodiscard]] compile::Feeds find_view_feeds(const ir::Trace& trace) const;
  [[nodiscard]] compile::Feeds find_written_feeds(const ir::Trace& trace) const;
  [[nodiscard]] compile::Feeds find_result_feeds(const ir::Trace& trace) const;
  std::uint32_t computed(const at::Tensor& tensor);
  /// Results with one value are one tensor: the first of them.
  [[nodiscard]] static std::uint32_t first_with_value_of(const ir::Trace& trace, std::uint32_t result);
  void require_as_outside(const Root& root) const;
  void require_separate() const;
  void require_no_gradient_inside() const;
  [[nodiscard]] OutputHistory find_history(const at::Tensor& tensor) const;
  void note_behind_raising(std::uint32_t result);
  void note_versions();

  tracer::Recorder& recorder_;
  tracer::SizeShadows* shadows_;
  std::unordered_map<const c10::TensorImpl*, std::uint32_t> inputs_;
  std::unordered_map<const c10::TensorImpl*, std::uint32_t> known_;
  std::vector<Computed> computed_;
  std::vector<Viewed> viewed_;
  std::unordered_map<const c10::TensorImpl*, compile::FeedSource> values_of_views_;  ///< views that require grad
  std::unordered_set<const torch::autograd::Node*> overwritten_;
  std::vector<const c10::TensorImpl*> leaves_;  ///< that the program made
  OutputPlan plan_;
};

/// `torch.Tensor`, borrowed.
[[nodiscard]] PyObject* plain_tensor_type();
/// Whether a class of tensors hands its type on to no result: `nn.Parameter`.
[[nodiscard]] bool keeps_class_to_itself(py::Borrowed type);
/// A tensor of a subclass that hands its type on to nothing (`nn.Parameter`), over the memory of `object`'s.
[[nodiscard]] py::Ref as_subclass(py::Borrowed object, py::Borrowed type);

}  // namespace thunder::dispatch
