#include "runtime/autograd_node.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "autograd/node_pointer.h"
#include "runtime/batched_cotangents.h"
#include "runtime/compiled_autograd.h"
#include "runtime/memory_pool.h"
#include "runtime/partial_gradients.h"
#include "runtime/shared_gradients.h"
#include "runtime/spared_hooks.h"

namespace thunder::runtime {
namespace {

using autograd::make_node;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

constexpr const char* kDoubleBackward =
    "thunder: the gradients of a compiled function cannot be differentiated again (double backward). Call the function "
    "without thunder.jit where higher derivatives are needed, or leave out create_graph=True.";

void share_version(const at::Tensor& tensor, const c10::VariableVersion& version) {
  if (tensor.defined() && version.enabled() && !tensor.is_inference()) {
    tensor.unsafeGetTensorImpl()->set_version_counter(version);
  }
}

at::Tensor with_strides(const at::Tensor& cotangent, at::IntArrayRef strides) {
  bool equal = cotangent.layout() == at::kStrided && cotangent.dim() == static_cast<std::int64_t>(strides.size());
  if (!equal) return cotangent;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    equal = equal && (cotangent.size(static_cast<std::int64_t>(i)) == 1 ||
                      cotangent.stride(static_cast<std::int64_t>(i)) == strides[i]);
  }
  if (equal || cotangent.numel() == 0) return cotangent;
  return at::empty_strided(cotangent.sizes(), strides, cotangent.options()).copy_(cotangent);
}

at::Tensor with_layout(const at::Tensor& cotangent, const CotangentLayout& layout) {
  if (layout.order.empty()) return with_strides(cotangent, layout.strides);
  if (static_cast<std::size_t>(cotangent.dim()) != layout.order.size()) return cotangent;
  std::vector<std::int64_t> strides(layout.order.size());
  std::int64_t stride = 1;
  for (auto dim = layout.order.rbegin(); dim != layout.order.rend(); ++dim) {
    strides[*dim] = stride;
    stride *= cotangent.size(static_cast<std::int64_t>(*dim));
  }
  return with_strides(cotangent, strides);
}

void append_cotangents(const BackwardProgram& backward, variable_list& cotangents, std::vector<c10::IValue>& inputs) {
  auto layout = backward.cotangent_layouts.begin();
  for (at::Tensor& cotangent : cotangents) {
    if (cotangent.defined()) inputs.emplace_back(with_layout(std::move(cotangent), *layout++));
  }
}

/// The gradients that a backward gave, by edge of the node. PyTorch checks the metadata of each, also of one that
/// nobody asks for and that eager does not have.
variable_list gradients_of(const DifferentiableProgram& program, std::vector<c10::IValue>& results,
                           const std::vector<bool>& needed) {
  variable_list gradients;
  gradients.reserve(program.differentiable_inputs.size());
  for (const std::uint32_t i : program.differentiable_inputs) {
    const bool is_given = needed[gradients.size()] && !results[i].isNone();
    gradients.push_back(is_given ? std::move(results[i]).toTensor() : at::Tensor());
  }
  return gradients;
}

/// Runs a backward on values that the forward saved: those that are watched for writes, then the others.
variable_list run_on_saved(const DifferentiableProgram& program, variable_list cotangents,
                           const std::vector<bool>& needed, std::vector<c10::IValue> saved) {
  if (std::ranges::none_of(cotangents, &at::Tensor::defined)) return variable_list(needed.size());
  const bool is_traced = std::ranges::any_of(
      cotangents, [](const at::Tensor& t) { return t.defined() && t.key_set().has(c10::DispatchKey::Fake); });
  TORCH_CHECK_NOT_IMPLEMENTED(!is_traced, "thunder: the backward of a compiled function as a part of another program");
  const std::shared_ptr<const BackwardProgram> backward = program.backwards->find(cotangents);
  std::size_t variable = 0;
  auto plain = static_cast<std::size_t>(std::ranges::count_if(
      program.saved, [](const SavedValue& value) { return value.kind != SavedValue::Kind::kPlain; }));
  std::vector<c10::IValue> inputs;
  for (std::size_t i = 0; i < program.saved.size(); ++i) {
    const std::size_t position = program.saved[i].kind == SavedValue::Kind::kPlain ? plain++ : variable++;
    if (backward->reads[i]) inputs.push_back(std::move(saved[position]));
  }
  const HeldCotangents held(cotangents);
  append_cotangents(*backward, cotangents, inputs);
  const PoolScope pool;
  std::vector<c10::IValue> results(backward->program.output_count());
  backward->program.run(inputs, results);
  variable_list gradients = gradients_of(program, results, needed);
  held.separate(gradients);
  return gradients;
}

/// The one node of a compiled function in PyTorch's graph.
class CompiledBackward final : public Node {
 public:
  CompiledBackward(std::shared_ptr<const DifferentiableProgram> program, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), program_(std::move(program)) {}

  [[nodiscard]] std::string name() const override { return "ThunderBackward"; }

  /// The saved values lie in memory of a graph, which goes on holding them.
  void hold(std::shared_ptr<GraphRunner> graphs, GraphRunner::Hold hold) {
    graphs_ = std::move(graphs);
    hold_ = std::move(hold);
  }

  void save(std::vector<SavedVariable> variables, std::vector<c10::IValue> plain) {
    variables_ = std::move(variables);
    plain_ = std::move(plain);
  }

  variable_list apply(variable_list&& cotangents) override {
    const bool keep = torch::autograd::get_current_graph_task_keep_graph();
    if (!keep) ++releases_to_come_;
    if (!has_examples(cotangents)) return run(std::move(cotangents), keep);
    return run_examples(
        cotangents, [&](variable_list&& example, bool is_last) { return run(std::move(example), keep || !is_last); });
  }

  variable_list run(variable_list&& cotangents, bool keep) {
    if (std::none_of(cotangents.begin(), cotangents.end(), [](const at::Tensor& t) { return t.defined(); })) {
      return variable_list(num_outputs());
    }
    const std::shared_ptr<const BackwardProgram> backward = program_->backwards->find(cotangents);
    const std::vector<bool> differentiable =
        at::GradMode::is_enabled() ? program_->backwards->find_differentiable(cotangents) : std::vector<bool>();
    const PoolScope pool;
    GraphRunner::Hold hold;  // until the backward has run
    std::vector<c10::IValue> inputs = saved_values(*backward, cotangents, keep, hold);
    const HeldCotangents held(cotangents);
    append_cotangents(*backward, cotangents, inputs);
    std::vector<c10::IValue> results(backward->program.output_count());
    if (hold == nullptr || !graphs_->run_backward(*backward, inputs, results, hold)) {
      backward->program.run(inputs, results);
    }

    std::vector<bool> needed;
    for (std::size_t i = 0; i < num_outputs(); ++i) needed.push_back(task_should_compute_output(i));
    variable_list gradients = gradients_of(*program_, results, needed);
    held.separate(gradients);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) spare_hooks_behind(next_edge(i));
    }
    if (at::GradMode::is_enabled()) forbid_double_backward(gradients, differentiable);
    return gradients;
  }

  void compiled_args(CompiledNodeArgs& args) const override {
    // Its program reads the saved values when this node has long released them.
    if (hold_ != nullptr) graphs_->retire("compiled autograd takes its backward");
    TORCH_CHECK(std::ranges::find(released_, true) == released_.end(), torch::autograd::ERR_BACKWARD_TWICE);
    args.collect(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(program_.get())));
    args.collect(variables_, /*is_output=*/true);
    args.collect(plain_);
  }

  variable_list apply_with_saved(const variable_list& cotangents, SwapSavedVariables& compiler) override {
    // The graph keeps the program, whose address is its key.
    const auto run = [program = program_](variable_list arguments, const std::vector<bool>& needed,
                                          std::vector<c10::IValue> saved) {
      return run_on_saved(*program, std::move(arguments), needed, std::move(saved));
    };
    return call_in_graph(*this, {variables_, plain_}, cotangents, run, compiler);
  }

  /// After a run without retain_graph what it read is released already; otherwise the graph dies.
  void release_variables() override {
    if (releases_to_come_ > 0) {
      --releases_to_come_;
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    released_.assign(program_->saved.size(), true);
    variables_.clear();
    plain_.clear();
    hold_.reset();
  }

 private:
  /// The saved values that the backward reads. Unless the graph is kept, they leave the node, so that the program frees
  /// each plain value after its last use.
  std::vector<c10::IValue> saved_values(const BackwardProgram& backward, const variable_list& cotangents, bool keep,
                                        GraphRunner::Hold& hold) {
    const std::lock_guard<std::mutex> lock(mutex_);
    hold = hold_;
    std::vector<c10::IValue> inputs;
    inputs.reserve(backward.program.input_count());
    if (released_.empty()) released_.resize(program_->saved.size());
    if (std::ranges::find(backward.reads, true) != backward.reads.end()) require_unspent(cotangents);
    if (!keep) spend(cotangents);
    std::size_t variable = 0;
    std::size_t plain = 0;
    for (std::size_t i = 0; i < program_->saved.size(); ++i) {
      const bool is_plain = program_->saved[i].kind == SavedValue::Kind::kPlain;
      const std::size_t position = is_plain ? plain++ : variable++;
      if (!backward.reads[i]) continue;
      TORCH_CHECK(!released_[i], torch::autograd::ERR_BACKWARD_TWICE);
      inputs.push_back(is_plain ? plain_[position] : variables_[position].unpack(getptr()));
    }
    if (!keep) release(backward.reads);
    if (std::ranges::find(released_, false) == released_.end()) hold_.reset();
    return inputs;
  }

  void require_unspent(const variable_list& cotangents) const {
    for (std::size_t i = 0; i < spent_.size(); ++i) {
      TORCH_CHECK(!spent_[i] || !cotangents[i].defined(), torch::autograd::ERR_BACKWARD_TWICE);
    }
  }

  void spend(const variable_list& cotangents) {
    spent_.resize(cotangents.size());
    for (std::size_t i = 0; i < cotangents.size(); ++i) spent_[i] = spent_[i] || cotangents[i].defined();
  }

  /// Inputs stay for backwards that come from other outputs: in eager code each operation has its own.
  void release(const std::vector<bool>& which) {
    const bool is_over = std::ranges::find(spent_, false) == spent_.end();
    std::size_t variable = 0;
    std::size_t plain = 0;
    for (std::size_t i = 0; i < which.size(); ++i) {
      const bool is_plain = program_->saved[i].kind == SavedValue::Kind::kPlain;
      const std::size_t position = is_plain ? plain++ : variable++;
      if (!is_over && (!which[i] || program_->saved[i].is_input())) continue;
      released_[i] = true;
      if (is_plain) {
        plain_[position] = c10::IValue();
      } else {
        variables_[position] = SavedVariable();
      }
    }
  }

  /// Whoever only asked for create_graph keeps going; an error comes when the gradients are differentiated.
  void forbid_double_backward(variable_list& gradients, const std::vector<bool>& differentiable) const {
    const auto error = make_node<torch::autograd::Error>(kDoubleBackward, torch::autograd::edge_list(next_edges()));
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      at::Tensor& gradient = gradients[i];
      // A cotangent that is handed on has a history of its own.
      const bool has_history = gradient.defined() && gradient.requires_grad();
      const bool is_constant = !differentiable.empty() && !differentiable[program_->differentiable_inputs[i]];
      if (!gradient.defined() || has_history || is_constant) continue;
      gradient = shallow_alias(gradient);
      torch::autograd::set_history(gradient, error);
    }
  }

  std::shared_ptr<const DifferentiableProgram> program_;
  std::vector<SavedVariable> variables_;
  std::vector<c10::IValue> plain_;
  std::shared_ptr<GraphRunner> graphs_;  ///< null: kernels are launched one by one
  GraphRunner::Hold hold_;
  std::vector<bool> released_;  ///< by saved value; empty: none
  std::vector<bool> spent_;     ///< by cotangent: a backward without retain_graph has had it; empty: none
  std::atomic<int> releases_to_come_ = 0;
};

/// One call of a differentiable program, in the order of its methods.
class ForwardRun {
 public:
  ForwardRun(const std::shared_ptr<const DifferentiableProgram>& program, std::vector<at::Tensor>&& inputs,
             const Versions& versions, const std::shared_ptr<GraphRunner>& graphs)
      : program_(*program) {
    const InputVersions input_versions(versions, inputs);
    torch::autograd::edge_list edges;
    edges.reserve(program_.differentiable_inputs.size());
    for (const std::uint32_t i : program_.differentiable_inputs) {
      edges.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
    }
    node_ = make_node<CompiledBackward>(program, std::move(edges));
    if (std::ranges::count(program_.outputs, true, &DifferentiableProgram::OutputInfo::takes_cotangent) > 1) {
      node_->add_tensor_pre_hook(make_hook_gate(node_.get()));
    }
    if (!program_.feeds.empty()) {
      node_->add_tensor_pre_hook(make_partial_gradient_check(program, node_.get()));
    }
    for (const auto& output : program_.outputs) input_versions_.push_back(version_of(inputs, output.shares_input));
    for (const SavedValue& saved : program_.saved) saved_versions_.push_back(version_of(inputs, saved.shares_input));

    c10::SmallVector<c10::IValue, 16> arguments;
    for (at::Tensor& input : inputs) arguments.emplace_back(std::move(input));
    results_.resize(program_.forward.output_count());
    run(std::span(arguments.begin(), arguments.size()), graphs);
    input_versions.set();
  }

  /// Takes the outputs out of the results and gives them their history.
  std::vector<at::Tensor> outputs() {
    // Saved outputs are taken from the outputs themselves.
    for (std::size_t i = 0; i < program_.saved.size(); ++i) {
      if (program_.saved[i].kind == SavedValue::Kind::kOutput) results_[program_.outputs.size() + i] = c10::IValue();
    }
    std::vector<at::Tensor> outputs;
    outputs.reserve(program_.outputs.size());
    for (std::size_t i = 0; i < program_.outputs.size(); ++i) {
      const auto& info = program_.outputs[i];
      at::Tensor output = results_[i].isNone() ? at::Tensor() : std::move(results_[i]).toTensor();
      if (info.kind == DifferentiableProgram::Output::kDifferentiable && output.defined()) {
        // Someone else has it: an input that an operator handed through, or another output.
        if (output.use_count() > 1) output = shallow_alias(output);
        share_version(output, input_versions_[i]);
        torch::autograd::set_history(output, node_);
      } else if (info.takes_cotangent) {
        node_->add_input_metadata(output);
      }
      outputs.push_back(std::move(output));
    }
    return outputs;
  }

  void save(const std::vector<at::Tensor>& outputs) {
    std::vector<SavedVariable> variables;
    std::vector<c10::IValue> plain;
    for (std::size_t i = 0; i < program_.saved.size(); ++i) {
      const SavedValue& saved = program_.saved[i];
      c10::IValue& value = results_[program_.outputs.size() + i];
      switch (saved.kind) {
        case SavedValue::Kind::kPlain:
          plain.push_back(std::move(value));
          break;
        case SavedValue::Kind::kVariable: {
          const at::Tensor& tensor = value.toTensor();
          share_version(tensor, saved_versions_[i]);
          if (saved.shares_output != SavedValue::kNone) {
            share_version(tensor, outputs[saved.shares_output].unsafeGetTensorImpl()->version_counter());
          }
          variables.emplace_back(tensor, /*is_output=*/false);
          break;
        }
        case SavedValue::Kind::kOutput: {
          const at::Tensor& output = outputs[saved.index];
          variables.emplace_back(output, /*is_output=*/output.grad_fn().get() == node_.get());
          break;
        }
      }
    }
    node_->save(std::move(variables), std::move(plain));
  }

 private:
  void run(std::span<c10::IValue> arguments, const std::shared_ptr<GraphRunner>& graphs) {
    const std::span results(results_.begin(), results_.size());
    GraphRunner::Hold hold;
    if (graphs != nullptr && graphs->run_forward(program_, arguments, results, hold)) {
      node_->hold(graphs, std::move(hold));
    } else {
      program_.forward.run(arguments, results);
    }
  }

  static c10::VariableVersion version_of(const std::vector<at::Tensor>& inputs, std::uint32_t index) {
    if (index == SavedValue::kNone) return c10::VariableVersion(c10::VariableVersion::DISABLED);
    return inputs[index].unsafeGetTensorImpl()->version_counter();
  }

  const DifferentiableProgram& program_;
  decltype(make_node<CompiledBackward>(std::shared_ptr<const DifferentiableProgram>(),
                                       torch::autograd::edge_list())) node_;
  c10::SmallVector<c10::VariableVersion, 4> input_versions_;
  c10::SmallVector<c10::VariableVersion, 4> saved_versions_;
  c10::SmallVector<c10::IValue, 16> results_;
};

}  // namespace

std::vector<at::Tensor> run_with_autograd(const std::shared_ptr<const DifferentiableProgram>& program,
                                          std::vector<at::Tensor> inputs, const Versions& versions,
                                          const std::shared_ptr<GraphRunner>& graphs) {
  ForwardRun run(program, std::move(inputs), versions, graphs);
  std::vector<at::Tensor> outputs = run.outputs();
  set_output_versions(versions, outputs);  // before they are saved
  run.save(outputs);
  return outputs;
}

}  // namespace thunder::runtime
