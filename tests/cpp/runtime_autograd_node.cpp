#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include <string>

#include "check.h"
#include "program_operands.h"
#include "runtime/autograd_node.h"
#include "runtime/program_builder.h"

using c10::IValue;
using thunder::check::constant;
using thunder::check::find;
using thunder::check::slot;
using thunder::runtime::BackwardProgram;
using thunder::runtime::BackwardPrograms;
using thunder::runtime::CotangentSet;
using thunder::runtime::DifferentiableProgram;
using thunder::runtime::Operand;
using thunder::runtime::ProgramBuilder;
using thunder::runtime::run_with_autograd;
using thunder::runtime::SavedValue;
using thunder::runtime::Slot;
using Output = DifferentiableProgram::Output;

namespace {

/// Lets `backward` be the one for all cotangents, which reads all of `saved`.
void set_backward(DifferentiableProgram& program, ProgramBuilder& builder, std::size_t cotangent_count) {
  auto backward = std::make_shared<BackwardProgram>();
  backward->cotangents.assign(cotangent_count, true);
  backward->reads.assign(program.saved.size(), true);
  backward->cotangent_layouts.assign(cotangent_count, thunder::runtime::CotangentLayout{{1}, {}});
  backward->program = builder.build();
  program.backwards = std::make_unique<const BackwardPrograms>([backward](const CotangentSet& cotangents) {
    CHECK(cotangents == backward->cotangents);
    return backward;
  });
}

/// (x * w).sigmoid() with what its backward needs: x, w and the result; `view` saves a view of x in the place of x.
std::shared_ptr<DifferentiableProgram> sigmoid_of_product(bool view = false) {
  auto program = std::make_shared<DifferentiableProgram>();
  ProgramBuilder forward;
  forward.add_input(Slot{0});
  forward.add_input(Slot{1});
  forward.call(find("aten::mul", "Tensor"), {slot(0), slot(1)}, {Slot{2}});
  forward.call(find("aten::sigmoid"), {slot(2)}, {Slot{3}});
  if (view) forward.call(find("aten::alias"), {slot(0)}, {Slot{4}});
  forward.set_outputs({slot(3), view ? slot(4) : slot(0), slot(1), slot(3)});
  program->forward = forward.build();

  ProgramBuilder backward;  // inputs: x, w, y, cotangent
  for (std::uint32_t i = 0; i < 4; ++i) backward.add_input(Slot{i});
  backward.call(find("aten::sigmoid_backward"), {slot(3), slot(2)}, {Slot{4}});
  backward.call(find("aten::mul", "Tensor"), {slot(4), slot(1)}, {Slot{5}});
  backward.call(find("aten::mul", "Tensor"), {slot(4), slot(0)}, {Slot{6}});
  backward.set_outputs({slot(5), slot(6)});

  program->outputs = {{.kind = Output::kDifferentiable, .takes_cotangent = true}};
  program->saved = {{.kind = SavedValue::Kind::kVariable},
                    {.kind = SavedValue::Kind::kVariable},
                    {.kind = SavedValue::Kind::kOutput, .index = 0}};
  if (view) program->saved[0].shares_input = 0;
  program->differentiable_inputs = {0, 1};
  set_backward(*program, backward, 1);
  return program;
}

at::Tensor leaf(std::int64_t size = 3) { return at::randn({size}, at::kDouble).requires_grad_(); }

/// The message of the error that `function` throws.
template <typename Function>
std::string message_of(const Function& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "(no error)";
}
bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(gradients_equal_eager) {
  const at::Tensor x = leaf();
  const at::Tensor w = leaf();
  const at::Tensor cotangent = at::randn({3}, at::kDouble);
  const at::Tensor y = run_with_autograd(sigmoid_of_product(), {x, w})[0];
  const auto got = torch::autograd::grad({y}, {x, w}, {cotangent});
  const at::Tensor expected_y = (x * w).sigmoid();
  const auto expected = torch::autograd::grad({expected_y}, {x, w}, {cotangent});
  CHECK(at::equal(y, expected_y));
  CHECK(at::allclose(got[0], expected[0]));
  CHECK(at::allclose(got[1], expected[1]));
  CHECK_EQ(y.grad_fn()->name(), std::string("ThunderBackward"));
}

TEST(gradients_accumulate_in_leaves_and_follow_the_graph_before) {
  const at::Tensor x = leaf();
  const at::Tensor w = leaf();
  const auto program = sigmoid_of_product();
  run_with_autograd(program, {x * 2, w})[0].sum().backward();
  run_with_autograd(program, {x * 2, w})[0].sum().backward();
  const auto expected = torch::autograd::grad({(x * 2 * w).sigmoid().sum()}, {x});
  CHECK(at::allclose(x.grad(), 2 * expected[0]));
}

TEST(backward_twice_needs_retain_graph) {
  const at::Tensor x = leaf();
  const at::Tensor y = run_with_autograd(sigmoid_of_product(), {x, leaf()})[0].sum();
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  CHECK(contains(message_of([&] { y.backward(); }), "Trying to backward through the graph a second time"));
}

TEST(writing_to_a_saved_input_is_detected) {
  const at::Tensor x = at::randn({3}, at::kDouble);
  const at::Tensor y = run_with_autograd(sigmoid_of_product(), {x, leaf()})[0].sum();
  x.add_(1);
  CHECK(contains(message_of([&] { y.backward(); }), "modified by an inplace operation"));
}

TEST(writing_to_an_input_with_a_saved_view_is_detected) {
  const at::Tensor x = at::randn({3}, at::kDouble);
  const at::Tensor y = run_with_autograd(sigmoid_of_product(/*view=*/true), {x, leaf()})[0].sum();
  x.add_(1);
  CHECK(contains(message_of([&] { y.backward(); }), "modified by an inplace operation"));
}

TEST(writing_to_a_saved_output_is_detected) {
  const at::Tensor y = run_with_autograd(sigmoid_of_product(), {leaf(), leaf()})[0];
  const at::Tensor total = y.sum();
  y.detach().add_(1);
  CHECK(contains(message_of([&] { total.backward(); }), "modified by an inplace operation"));
}

TEST(node_keeps_nothing_alive_after_backward) {
  at::Tensor y = run_with_autograd(sigmoid_of_product(), {leaf(), leaf()})[0];
  const c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> weak(y.getIntrusivePtr());
  y.reset();
  CHECK(weak.expired());
}

TEST(input_without_gradient_gets_none) {
  const at::Tensor x = at::randn({3}, at::kDouble);
  const at::Tensor w = leaf();
  run_with_autograd(sigmoid_of_product(), {x, w})[0].sum().backward();
  CHECK(!x.grad().defined());
  CHECK(w.grad().defined());
}

TEST(returned_input_stays_itself) {
  auto program = sigmoid_of_product();
  ProgramBuilder forward;
  forward.add_input(Slot{0});
  forward.add_input(Slot{1});
  forward.call(find("aten::mul", "Tensor"), {slot(0), slot(1)}, {Slot{2}});
  forward.call(find("aten::sigmoid"), {slot(2)}, {Slot{3}});
  forward.set_outputs({slot(3), slot(0), slot(0), slot(1), slot(3)});
  program->forward = forward.build();
  program->outputs.push_back({.kind = Output::kInput});
  const at::Tensor x = leaf();
  const auto outputs = run_with_autograd(program, {x, leaf()});
  CHECK(outputs[1].is_same(x));
  CHECK(x.is_leaf());
  outputs[0].sum().backward();
  CHECK(x.grad().defined());
}

TEST(returned_view_of_an_input_leaves_the_input_alone) {
  auto program = std::make_shared<DifferentiableProgram>();
  ProgramBuilder forward;
  forward.add_input(Slot{0});
  forward.call(find("aten::dropout"), {slot(0), constant(0.5), constant(false)}, {Slot{1}});
  forward.set_outputs({slot(1)});
  program->forward = forward.build();
  ProgramBuilder backward;
  backward.add_input(Slot{0});
  backward.set_outputs({slot(0)});
  set_backward(*program, backward, 1);
  program->outputs = {{.kind = Output::kDifferentiable, .takes_cotangent = true, .shares_input = 0}};
  program->differentiable_inputs = {0};
  const at::Tensor x = leaf();
  const at::Tensor y = run_with_autograd(program, {x})[0];
  CHECK(x.is_leaf());
  CHECK(!y.is_leaf());
  x.detach().add_(1);
  CHECK_EQ(y._version(), x._version());
  y.sum().backward();
  CHECK(at::equal(x.grad(), at::ones({3}, at::kDouble)));
}

/// A backward of `two_sines`: for one output it reads the saved value of that one alone.
std::shared_ptr<const BackwardProgram> backward_of_two_sines(const CotangentSet& cotangents) {
  auto backward = std::make_shared<BackwardProgram>();
  backward->cotangents = cotangents;
  backward->reads = cotangents;
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.add_input(Slot{1});
  builder.call(find("aten::mul", "Tensor"), {slot(0), slot(1)}, {Slot{2}});
  builder.set_outputs({slot(2)});
  backward->cotangent_layouts = {{{1}, {}}};
  backward->program = builder.build();
  return backward;
}

/// sin(x) and sin(2 x) / 2, with their derivatives as saved values; `made` counts the backwards.
std::shared_ptr<DifferentiableProgram> two_sines(int& made) {
  auto program = std::make_shared<DifferentiableProgram>();
  ProgramBuilder forward;
  forward.add_input(Slot{0});
  forward.call(find("aten::sin"), {slot(0)}, {Slot{1}});
  forward.call(find("aten::cos"), {slot(0)}, {Slot{2}});
  forward.call(find("aten::mul", "Tensor"), {slot(1), slot(2)}, {Slot{3}});
  forward.call(find("aten::add", "Tensor"), {slot(0), slot(0), constant(1)}, {Slot{4}});
  forward.call(find("aten::cos"), {slot(4)}, {Slot{5}});
  forward.set_outputs({slot(1), slot(3), slot(2), slot(5)});
  program->forward = forward.build();
  program->outputs.assign(2, {.kind = Output::kDifferentiable, .takes_cotangent = true});
  program->saved.assign(2, {.kind = SavedValue::Kind::kPlain});
  program->differentiable_inputs = {0};
  program->backwards = std::make_unique<const BackwardPrograms>([&made](const CotangentSet& cotangents) {
    ++made;
    return backward_of_two_sines(cotangents);
  });
  return program;
}

TEST(backward_is_made_for_the_cotangents_that_come) {
  int made = 0;
  const auto program = two_sines(made);
  const at::Tensor x = leaf();
  for (int i = 0; i < 3; ++i) {
    const auto got = torch::autograd::grad({run_with_autograd(program, {x})[1].sum()}, {x});
    CHECK(at::allclose(got[0], (2 * x).cos()));
  }
  CHECK_EQ(made, 1);
}

TEST(backward_leaves_what_it_does_not_read_for_another_one) {
  int made = 0;
  const at::Tensor x = leaf();
  const auto outputs = run_with_autograd(two_sines(made), {x});
  CHECK(at::allclose(torch::autograd::grad({outputs[0].sum()}, {x})[0], x.cos()));
  CHECK(at::allclose(torch::autograd::grad({outputs[1].sum()}, {x})[0], (2 * x).cos()));
  CHECK_EQ(made, 2);
  CHECK(contains(message_of([&] { torch::autograd::grad({outputs[0].sum()}, {x}); }),
                 "Trying to backward through the graph a second time"));
}

TEST(differentiating_a_gradient_raises) {
  const at::Tensor x = leaf();
  const at::Tensor y = run_with_autograd(sigmoid_of_product(), {x, leaf()})[0].sum();
  const auto gradients = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
  CHECK(contains(message_of([&] { gradients[0].sum().backward(); }), "cannot be differentiated again"));
}
