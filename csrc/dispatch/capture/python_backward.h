#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <unordered_set>
#include <vector>

#include "autograd/node_pointer.h"
#include "dispatch/capture/sharp_edges.h"
#include "interpreter/provenance/tracker.h"
#include "interpreter/structures/structure_builder.h"
#include "tracer/python_function.h"
#include "tracer/recorder.h"
#include "tracer/trace_node.h"

namespace thunder::dispatch {

/// The backwards of `torch.autograd.Function`s of a program, and its hooks on gradients.
///
/// One that does nothing but compute gradients, from what its forward and the hook's surroundings gave it, becomes a
/// part of the trace. Every other one (it looks at data, writes, prints, reads what may be another by then, raises)
/// runs as the program's own Python at each backward; see tracer/python_function.h. Which it is shows when it is
/// recorded: the trace is thrown away then, and made again.
class PythonBackwards {
 public:
  /// The backwards and hooks that earlier attempts to trace the program left to Python.
  struct Found {
    std::unordered_set<const void*> functions;  ///< classes
    bool hooks = false;                         ///< the program's hooks on gradients
    bool operator==(const Found&) const = default;
  };

  /// `failed` is set to the line of what is refused.
  PythonBackwards(tracer::Recorder& recorder, SharpEdgeWatch& edges, Found found, ir::SourceLocation& failed)
      : recorder_(recorder), edges_(edges), found_(std::move(found)), failed_(failed) {}

  [[nodiscard]] const Found& found() const { return found_; }

  /// `Function.apply`, by the convention of a substitute. `own` is what it substitutes.
  int apply(PyObject* own, PyObject* const* arguments, std::size_t count, PyObject* names, PyObject** result);
  /// Called where `Function.apply` begins: refuses a call by code in C, which does not tell the arguments. 0 or -1 with
  /// an exception.
  int enter();
  /// Whether `record` does nothing but compute. What it recorded is not to be used otherwise.
  [[nodiscard]] bool only_computes(interpreter::Tracker& tracker, const std::function<bool()>& record);
  /// Hooks run as Python: the program is to be traced again.
  void leave_hooks() { found_.hooks = true; }
  [[nodiscard]] bool leaves_hooks() const { return found_.hooks; }
  /// Whether a node of the program's graph is there when the trace runs.
  [[nodiscard]] bool keeps(const torch::autograd::Node& node) const;
  /// Whether a backward has run through a node of the program's graph, and was not asked to keep it.
  [[nodiscard]] bool is_released(const torch::autograd::Node& node) const;
  /// Whether a node of the program's graph runs as Python and saved what was written to since.
  [[nodiscard]] bool reads_written(const torch::autograd::Node& node) const;
  /// Gives the contexts of functions what the forward left on them, and the hooks that the program put on them.
  [[nodiscard]] bool add_effects(interpreter::StructureBuilder& builder) const;

  /// Makes `call`, a part of the program that a backward recomputes, and gives its result; null with an exception set
  /// when it does something besides computing.
  [[nodiscard]] py::Ref call_without_effects(const std::function<py::Ref()>& call, const char* what);

  interpreter::Tracker* tracker = nullptr;

 private:
  struct Application {
    py::Ref result;   ///< stands for one of its results
    py::Ref context;  ///< made by the traced forward
    std::vector<tracer::ReadMemory> saved;
    std::shared_ptr<const tracer::PythonFunction> function;
    std::size_t number;  ///< place of the result among all
  };

  struct Applied {
    autograd::NodePointer node;
    py::Ref context;
  };

  /// A leaf that the program made: in a run it would be a part of the graph that leads to it.
  [[nodiscard]] bool is_own_leaf(const at::Tensor& tensor) const;
  bool adopt(PyObject* type, std::span<PyObject* const> arguments, PyObject* names, PyObject* result);
  void keep_as_python(PyObject* type, std::span<PyObject* const> arguments, PyObject* result, PyObject* context);

  /// A tensor that stands for the result of an application before hooks of the trace.
  [[nodiscard]] py::Ref unhooked_result(const Application& application) const;

  void watch_effects();
  void note_effects();

  tracer::Recorder& recorder_;
  SharpEdgeWatch& edges_;
  Found found_;
  ir::SourceLocation& failed_;
  bool is_entering_ = false;
  int effect_depth_ = 0;
  bool has_effects_ = false;
  std::vector<Application> applications_;  ///< functions that run their backward as Python
  std::vector<Applied> applied_;           ///< the others, too
};

}  // namespace thunder::dispatch
