#include <ATen/ATen.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "program_operands.h"
#include "runtime/program.h"
#include "runtime/program_builder.h"

using c10::IValue;
using thunder::check::constant;
using thunder::check::find;
using thunder::check::slot;
using thunder::runtime::kNoSlot;
using thunder::runtime::ListOperand;
using thunder::runtime::Operand;
using thunder::runtime::Program;
using thunder::runtime::ProgramBuilder;
using thunder::runtime::Slot;

namespace {

Operand tensors(std::vector<Operand> elements) { return {ListOperand{c10::TensorType::get(), std::move(elements)}}; }

std::vector<at::Tensor> run(const Program& program, std::vector<at::Tensor> inputs) {
  std::vector<at::Tensor> outputs(program.output_count());
  program.run(std::span(inputs), std::span(outputs));
  return outputs;
}

/// relu(a + 2 * b)
Program add_and_relu() {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.add_input(Slot{1});
  builder.call(find("aten::add", "Tensor"), {slot(0), slot(1), constant(2)}, {Slot{2}}, {"model.py", 7});
  builder.call(find("aten::relu"), {slot(2)}, {Slot{3}});
  builder.set_outputs({slot(3)});
  return builder.build();
}

/// A kernel of an executor that counts the tensor it is called with.
void count_elements(const void* state, std::vector<IValue>& stack) {
  const std::int64_t numel = stack.back().toTensor().numel() + *static_cast<const std::int64_t*>(state);
  stack.clear();
  stack.emplace_back(numel);
}

}  // namespace

TEST(program_calls_common_signatures_unboxed) {
  const Program program = add_and_relu();
  CHECK_EQ(program.instruction_count(), 2u);
  CHECK_EQ(program.unboxed_count(), 2u);
  const at::Tensor a = at::randn({3, 4});
  const at::Tensor b = at::randn({3, 4});
  CHECK(at::equal(run(program, {a, b})[0], at::relu(a + 2 * b)));
}

TEST(program_reuses_registers_of_dead_values) {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  for (std::uint32_t i = 0; i < 50; ++i) builder.call(find("aten::sin"), {slot(i)}, {Slot{i + 1}});
  builder.set_outputs({slot(50)});
  CHECK_EQ(builder.build().register_count(), 2u);
}

TEST(program_frees_an_input_after_its_last_use) {
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  at::Tensor input = at::ones({4});
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.call(find("aten::sin"), {slot(0)}, {Slot{1}});
  builder.call("test::expired",
               [](const void* state, std::vector<IValue>& stack) {
                 stack.emplace_back(static_cast<const Weak*>(state)->expired());
               },
               std::make_shared<Weak>(input.getIntrusivePtr()), {}, {Slot{2}});
  builder.set_outputs({slot(1), slot(2)});
  const Program program = builder.build();
  std::vector<IValue> inputs{std::move(input)};
  std::vector<IValue> outputs(2);
  program.run(inputs, outputs);
  CHECK(outputs[1].toBool());
}

TEST(program_calls_other_signatures_boxed) {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.call(find("aten::_cdist_forward"), {slot(0), slot(0), constant(2.0), constant(IValue())}, {Slot{1}});
  builder.set_outputs({slot(1)});
  const Program program = builder.build();
  CHECK_EQ(program.unboxed_count(), 0u);
  const at::Tensor x = at::randn({3, 4});
  CHECK(at::equal(run(program, {x})[0], at::_cdist_forward(x, x, 2.0, std::nullopt)));
}

TEST(program_takes_lists_apart_and_puts_them_together) {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.call(find("aten::split", "Tensor"), {slot(0), constant(2), constant(0)},
               {std::vector<Slot>{Slot{1}, Slot{2}}});
  builder.call(find("aten::cat"), {tensors({slot(2), slot(1)}), constant(0)}, {Slot{3}});
  builder.set_outputs({slot(3)});
  const Program program = builder.build();
  CHECK_EQ(program.unboxed_count(), 2u);
  CHECK(at::equal(run(program, {at::arange(4)})[0], at::tensor({2, 3, 0, 1})));
}

TEST(program_returns_inputs_constants_and_repeated_values) {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.add_constant(Slot{1}, at::ones({2}));
  builder.set_outputs({slot(0), slot(0), constant(IValue()), slot(1)});
  const Program program = builder.build();
  const at::Tensor x = at::zeros({2});
  const std::vector<at::Tensor> outputs = run(program, {x});
  CHECK(outputs[0].is_same(x));
  CHECK(outputs[1].is_same(x));
  CHECK(!outputs[2].defined());
  CHECK(at::equal(outputs[3], at::ones({2})));
}

TEST(program_bumps_the_version_of_an_input_written_through_a_view) {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.call(find("aten::select", "int"), {slot(0), constant(0), constant(1)}, {Slot{1}});
  builder.call(find("aten::add_", "Scalar"), {slot(1), constant(5), constant(1)}, {Slot{2}});
  builder.set_outputs({});
  const Program program = builder.build();
  const at::Tensor x = at::zeros({2});
  const std::int64_t version = x._version();
  run(program, {x});
  CHECK(at::equal(x, at::tensor({0.0F, 5.0F})));
  CHECK_EQ(x._version(), version + 1);
}

TEST(program_runs_below_autograd) {
  const at::Tensor a = at::randn({3}).requires_grad_();
  CHECK(!run(add_and_relu(), {a, a})[0].requires_grad());
}

TEST(program_error_keeps_its_type_and_names_the_line) {
  const Program program = add_and_relu();
  const at::Tensor a = at::ones({2});
  std::string message;
  try {
    run(program, {a, at::ones({3})});
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  }
  CHECK(message.find("must match the size") != std::string::npos);
  CHECK(message.find("aten::add.Tensor of model.py:7") != std::string::npos);
  CHECK_EQ(a.use_count(), 1u);

  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.call(find("aten::select", "int"), {slot(0), constant(0), constant(9)}, {Slot{1}});
  builder.set_outputs({slot(1)});
  const Program selects = builder.build();
  CHECK_THROWS(run(selects, {at::ones({2})}), c10::IndexError);
}

TEST(program_runs_an_executors_kernel) {
  ProgramBuilder builder;
  builder.add_input(Slot{0});
  builder.call("test::count", &count_elements, std::make_shared<std::int64_t>(10), {slot(0)}, {Slot{1}});
  builder.set_outputs({slot(1)});
  const Program program = builder.build();
  std::vector<IValue> inputs{at::ones({2, 3})};
  std::vector<IValue> outputs(1);
  program.run(inputs, outputs);
  CHECK_EQ(outputs[0].toInt(), 16);
}

TEST(program_runs_in_several_threads) {
  const Program program = add_and_relu();
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (std::size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      const at::Tensor x = at::full({8}, static_cast<double>(t));
      equal[t] = true;
      for (int i = 0; i < 100; ++i) equal[t] = equal[t] && at::equal(run(program, {x, x})[0], 3 * x);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const bool one : equal) CHECK(one);
}
