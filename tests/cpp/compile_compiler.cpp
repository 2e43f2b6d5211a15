#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "bridge/convert.h"
#include "check.h"
#include "compile/compiler.h"
#include "ir/builder.h"
#include "traced_operator.h"

using thunder::check::find;
using thunder::compile::compile;
using thunder::compile::Options;
using thunder::ir::Argument;
using thunder::ir::ArgumentList;
using thunder::ir::Trace;
using thunder::ir::ValueId;

namespace {

thunder::ir::TypePtr type(thunder::ir::Dims sizes, bool requires_grad) {
  auto result = std::get<thunder::ir::TensorType>(*thunder::ir::tensor_type(thunder::ir::Dtype::kFloat32, sizes));
  result.requires_grad = requires_grad;
  return thunder::ir::make_type(std::move(result));
}

/// silu(linear(x, w, b)), with its input x returned as well.
Trace layer(bool requires_grad) {
  Trace trace("computation", std::make_shared<thunder::ir::TraceContext>());
  const ValueId x = trace.add_input(type({2, 3}, false), "x");
  const ValueId w = trace.add_input(type({4, 3}, requires_grad), "w");
  const ValueId b = trace.add_input(type({4}, requires_grad), "b");
  const ValueId y = thunder::ir::add_call(trace, find("aten::linear"), {x, w, b}, type({2, 4}, requires_grad));
  trace.symbols.back().location = {trace.context()->intern("model.py"), 12};
  // Dead, and equal to another one.
  static_cast<void>(thunder::ir::add_call(trace, find("aten::linear"), {x, w, b}, type({2, 4}, requires_grad)));
  const ValueId z = thunder::ir::add_call(trace, find("aten::silu"), {y}, type({2, 4}, requires_grad));
  trace.outputs = ArgumentList{z, x};
  return trace;
}

struct Inputs {
  at::Tensor x = at::randn({2, 3});
  at::Tensor w = at::randn({4, 3}).requires_grad_();
  at::Tensor b = at::randn({4}).requires_grad_();
  [[nodiscard]] at::Tensor eager() const { return at::silu(at::linear(x, w, b)); }
};

/// Sets an environment variable while alive.
struct Environment {
  Environment(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Environment() { unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

bool has_step(const thunder::compile::Compiled& compiled, const char* name) {
  return compiled.timings().contains(name);
}

}  // namespace

TEST(compiled_runs_forward_without_gradients) {
  const Inputs inputs;
  const auto compiled = compile(layer(false), {});
  const at::NoGradGuard no_grad;
  const auto outputs = compiled->run({inputs.x, inputs.w, inputs.b});
  CHECK(at::allclose(outputs[0], inputs.eager()));
  CHECK(outputs[1].is_same(inputs.x));
  CHECK(compiled->backward_traces().empty());
  CHECK_EQ(compiled->forward_traces().back().symbols.size(), 2u);
}

TEST(compiled_runs_forward_and_backward) {
  const Inputs inputs;
  const auto compiled = compile(layer(true), {.verify = true});
  const auto outputs = compiled->run({inputs.x, inputs.w, inputs.b});
  CHECK(at::allclose(outputs[0], inputs.eager()));
  CHECK(outputs[1].is_same(inputs.x));
  const at::Tensor cotangent = at::randn({2, 4});
  const auto got = torch::autograd::grad({outputs[0]}, {inputs.w, inputs.b}, {cotangent});
  const auto expected = torch::autograd::grad({inputs.eager()}, {inputs.w, inputs.b}, {cotangent});
  CHECK(at::allclose(got[0], expected[0], 1e-5, 1e-6));
  CHECK(at::allclose(got[1], expected[1], 1e-5, 1e-6));
}

TEST(compiled_takes_an_expanded_cotangent) {
  const Inputs inputs;
  const auto compiled = compile(layer(true), {});
  compiled->run({inputs.x, inputs.w, inputs.b})[0].sum().backward();
  const auto expected = torch::autograd::grad({inputs.eager().sum()}, {inputs.w});
  CHECK(at::allclose(inputs.w.grad(), expected[0], 1e-5, 1e-6));
}

TEST(compiled_runs_without_gradients_what_was_recorded_with_them) {
  const Inputs inputs;
  const auto compiled = compile(layer(true), {});
  const at::NoGradGuard no_grad;
  const auto outputs = compiled->run({inputs.x, inputs.w, inputs.b});
  CHECK(at::allclose(outputs[0], inputs.eager()));
  CHECK(!outputs[0].requires_grad());
}

TEST(compiled_saves_only_what_the_backward_reads) {
  const auto compiled = compile(layer(true), {});
  const Trace backward = compiled->backward_traces().back();
  // x, the output of linear, and the cotangent; the weight is for x's gradient, which nobody needs.
  CHECK_EQ(backward.inputs.size(), 3u);
}

TEST(disabled_pass_is_left_out) {
  const auto all = compile(layer(false), {});
  CHECK(has_step(*all, "dead_code_elimination"));
  const auto some = compile(layer(false), {.disabled_passes = {"dead_code_elimination"}});
  CHECK(!has_step(*some, "dead_code_elimination"));
  std::string names;
  for (const std::string& name : thunder::compile::pass_names()) names += name + ",";
  const Environment environment("THUNDER_DISABLE_PASSES", names.c_str());
  const auto none = compile(layer(false), {});
  CHECK(!has_step(*none, "dead_code_elimination"));
  CHECK_EQ(none->forward_traces().size(), 1u);
}

TEST(unknown_names_are_refused_with_the_valid_ones) {
  CHECK_THROWS(compile(layer(false), {.disabled_passes = {"dse"}}), thunder::UserError);
  CHECK_THROWS(thunder::compile::find_executor("tpu"), thunder::UserError);
  std::string message;
  try {
    static_cast<void>(compile(layer(false), {.disabled_passes = {"lower"}}));
  } catch (const thunder::UserError& error) {
    message = error.what();
  }
  CHECK(message.find("dead_code_elimination") != std::string::npos);
}

TEST(dump_writes_each_trace) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "thunder_test_dump";
  std::filesystem::remove_all(folder);
  const Environment environment("THUNDER_DUMP", folder.string());
  const auto compiled = compile(layer(true), {});
  const std::size_t traces = compiled->forward_traces().size() + compiled->backward_traces().size();
  CHECK_EQ(static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {})), traces);
  std::filesystem::remove_all(folder);
}

TEST(internal_error_names_the_step_and_a_script) {
  Trace broken = layer(false);
  static const thunder::ir::Operator kUnknown =
      thunder::ir::parse_operator("prims::unknown() -> ()", thunder::ir::CallStyle::kPrimitive);
  thunder::ir::add_symbol(broken, kUnknown, {}, {});
  std::string message;
  try {
    static_cast<void>(compile(broken, {.disabled_passes = {"dead_code_elimination"}}));
  } catch (const thunder::InternalError& error) {
    CHECK_EQ(error.where(), "claim");
    message = error.what();
  }
  CHECK(message.find("no executor claims") != std::string::npos);
  const std::size_t begin = message.rfind(": /");
  CHECK(begin != std::string::npos);
  const std::string path = message.substr(begin + 2);
  std::stringstream script;
  script << std::ifstream(path).rdbuf();
  CHECK(script.str().find("torch.ops.aten.linear") != std::string::npos);
  CHECK(script.str().find("inputs = [") != std::string::npos);
  std::filesystem::remove(path);
}

TEST(run_time_error_names_the_users_line) {
  const Inputs inputs;
  const auto compiled = compile(layer(true), {});
  std::string message;
  try {
    static_cast<void>(compiled->run({at::ones({2, 5}), inputs.w, inputs.b}));
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  }
  CHECK(message.find("model.py:12") != std::string::npos);
}
