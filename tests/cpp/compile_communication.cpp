// Traces with collectives, through all passes: what a running one uses is neither written to nor freed before the wait
// for it, and ordered operations keep their order.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "compile/collectives.h"
#include "compile/compiler.h"
#include "compile/pipeline.h"
#include "executors/api/lowering.h"
#include "ir/builder.h"
#include "ir/verifier.h"
#include "operators/facts.h"
#include "tracer/fallback.h"
#include "tracer/operators.h"

namespace thunder::compile {
namespace {

using ir::ArgumentList;
using ir::Trace;
using ir::ValueId;

// --- collectives of one process, which double what they get, and only when somebody waits

struct Running {
  at::Tensor given;  ///< a copy of the argument
  c10::weak_intrusive_ptr<c10::StorageImpl> argument;
  const void* memory;
  at::Tensor result;
};

struct Network {
  std::vector<Running> running;
  std::vector<std::string> log;
  std::vector<std::string> faults;
};
Network& network() {
  static auto* const kNetwork = new Network;
  return *kNetwork;
}

Running start(const at::Tensor& argument, const at::Tensor& result) {
  return {argument.clone(), argument.storage().getWeakStorageImpl(), argument.const_data_ptr(), result};
}

at::Tensor doubled(const at::Tensor& argument, std::string name) {
  at::Tensor result = at::full_like(argument, 7);
  network().log.push_back("start " + std::move(name));
  network().running.push_back(start(argument, result));
  return result;
}

at::Tensor doubled_in_place(at::Tensor argument, std::string name) {
  network().log.push_back("start " + std::move(name));
  network().running.push_back(start(argument, argument));
  return argument;
}

at::Tensor wait_tensor(const at::Tensor& waited) {
  Network& all = network();
  all.log.emplace_back("wait");
  const auto found =
      std::ranges::find_if(all.running, [&](const Running& each) { return each.result.is_same(waited); });
  if (found == all.running.end()) {
    all.faults.emplace_back("nothing to wait for");
    return waited;
  }
  if (found->argument.expired()) {
    all.faults.emplace_back("the argument was freed");
  } else {
    const at::Tensor now = at::from_blob(const_cast<void*>(found->memory), found->given.sizes());
    if (!at::equal(now, found->given)) all.faults.emplace_back("the argument was written to");
  }
  found->result.copy_(found->given * 2);
  at::Tensor result = found->result;
  all.running.erase(found);
  return result;
}

TORCH_LIBRARY_FRAGMENT(_c10d_functional, library) {
  library.def("doubled(Tensor input, str name) -> Tensor");
  library.def("doubled_(Tensor(a!) input, str name) -> Tensor(a!)");
}
TORCH_LIBRARY_IMPL(_c10d_functional, CPU, library) {
  library.impl("doubled", &doubled);
  library.impl("doubled_", &doubled_in_place);
  library.impl("wait_tensor", &wait_tensor);
}

// --- traces

class Example {
 public:
  Trace trace{"computation", std::make_shared<ir::TraceContext>()};
  ValueId x = input();
  ValueId y = input();

  ValueId call(const char* name, const char* overload, ArgumentList arguments, std::int64_t rows = 64) {
    tracer::init_tracer();
    const ir::Operator* op = tracer::find_operator(name, overload);
    THUNDER_CHECK(op != nullptr, "test", name);
    return ir::add_call(trace, *op, std::move(arguments), ir::tensor_type(ir::Dtype::kFloat32, {rows, 64}));
  }
  ValueId exp(ValueId a) { return call("aten::exp", "", {a}); }
  ValueId sin(ValueId a) { return call("aten::sin", "", {a}); }
  ValueId add(ValueId a, ValueId b) { return call("aten::add", "Tensor", {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return call("aten::mul", "Tensor", {a, b}); }
  ValueId mm(ValueId a, ValueId b) { return call("aten::mm", "", {a, b}); }
  ValueId reduce(ValueId a) { return call("_c10d_functional::doubled", "", {a, next_name()}); }
  ValueId reduce_in_place(ValueId a) { return call("_c10d_functional::doubled_", "", {a, next_name()}); }
  ValueId wait(ValueId a) { return call("_c10d_functional::wait_tensor", "", {a}); }
  ValueId copy(ValueId target, ValueId value) { return call("aten::copy_", "", {target, value}); }

 private:
  ValueId input() { return trace.add_input(ir::tensor_type(ir::Dtype::kFloat32, {64, 64})); }
  std::string next_name() { return std::to_string(count_++); }

  int count_ = 0;
};

std::vector<std::string> communication_of(const Trace& trace) {
  std::vector<std::string> names;
  const auto add = [&](const ir::BoundSymbol& symbol) {
    if (!operators::communicates(*symbol.op)) return;
    const std::size_t last = symbol.arguments.size() - 1;
    const auto* name = symbol.arguments[last].get<std::string>();
    names.push_back(name == nullptr ? "wait" : "start " + *name);
  };
  std::ranges::for_each(trace.symbols, add);
  return names;
}

struct Outcome {
  std::vector<at::Tensor> results;
  std::vector<at::Tensor> inputs;  ///< as they are afterwards
  std::vector<std::string> faults;
};

Outcome run(const Trace& trace, const std::vector<at::Tensor>& inputs, const std::function<void(Outcome&)>& body) {
  Outcome outcome;
  for (const at::Tensor& input : inputs) outcome.inputs.push_back(input.clone());
  network() = {};
  body(outcome);
  CHECK(network().log == communication_of(trace));
  outcome.faults = std::exchange(network().faults, {});
  return outcome;
}

void check_equal(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& expected) {
  CHECK_EQ(results.size(), expected.size());
  for (std::size_t i = 0; i < results.size(); ++i) CHECK(at::allclose(results[i], expected[i], 1e-3, 1e-3));
}

/// Compiles the trace with each executor, and runs it beside the operations as they stand in it.
void check(Example& example, const ArgumentList& outputs) {
  example.trace.outputs = outputs;
  const Trace& trace = example.trace;
  at::manual_seed(0);
  const std::vector<at::Tensor> inputs{at::rand({64, 64}) / 8, at::rand({64, 64}) / 8};
  const Outcome expected = run(trace, inputs, [&](Outcome& outcome) {
    std::vector<at::Tensor> given = outcome.inputs;
    outcome.results.resize(outputs.size());
    executors::lower_operators(trace).run(std::span(given), std::span(outcome.results));
  });
  for (const char* executor : {"aten", "cpu", "reference"}) {
    Options options;
    options.executors = with_fallback({find_executor(executor)});
    options.verify = true;
    const auto compiled = compile(trace, options);
    for (const Trace& stage : compiled->forward_traces()) CHECK(communication_of(stage) == communication_of(trace));
    const Outcome got = run(trace, inputs, [&](Outcome& outcome) { outcome.results = compiled->run(outcome.inputs); });
    CHECK(got.faults == std::vector<std::string>());
    check_equal(got.results, expected.results);
    check_equal(got.inputs, expected.inputs);
  }
}

}  // namespace

TEST(what_a_running_collective_reads_is_kept_until_the_wait) {
  Example e;
  const ValueId made = e.mm(e.x, e.y);
  const ValueId started = e.reduce(made);
  const ValueId between = e.mm(e.sin(made), e.y);
  e.wait(started);
  check(e, {e.mm(between, between)});
}

TEST(what_a_running_collective_reads_is_not_written_to) {
  Example e;
  const ValueId made = e.mm(e.x, e.y);
  const ValueId started = e.reduce(made);
  const ValueId between = e.mm(e.sin(made), e.x);
  check(e, {e.add(between, e.exp(e.wait(started)))});
}

TEST(memory_is_free_behind_the_wait) {
  Example e;
  const ValueId made = e.mm(e.x, e.y);
  const ValueId waited = e.wait(e.reduce(made));
  e.trace.outputs = {waited, e.sin(made)};
  Options options;
  options.executors = with_fallback({find_executor("aten")});
  const Trace last = compile(e.trace, options)->forward_traces().back();
  const auto is_write = [](const ir::BoundSymbol& symbol) { return symbol.op->name == "aten::sin_"; };
  CHECK(std::ranges::any_of(last.symbols, is_write));
}

TEST(a_collective_in_place_is_waited_for_again_and_again) {
  Example e;
  const ValueId made = e.mm(e.x, e.y);
  const ValueId once = e.wait(e.reduce_in_place(made));
  const ValueId between = e.mm(e.x, e.x);
  const ValueId twice = e.wait(e.reduce_in_place(once));
  check(e, {e.mul(e.sin(between), twice)});
}

TEST(collectives_that_cross_one_another_keep_their_order) {
  Example e;
  const ValueId first = e.reduce(e.mul(e.exp(e.x), e.y));
  const ValueId second = e.reduce(e.mul(e.sin(e.y), e.x));
  const ValueId between = e.mul(e.exp(e.y), e.x);
  const ValueId of_second = e.mul(e.sin(e.wait(second)), e.y);
  const ValueId of_first = e.mul(e.sin(e.wait(first)), e.x);
  check(e, {e.add(e.add(of_first, of_second), between)});
}

TEST(collectives_that_nobody_reads_or_that_are_equal_run) {
  Example e;
  e.wait(e.reduce(e.x));
  const ValueId first = e.wait(e.reduce(e.y));
  const ValueId second = e.wait(e.reduce(e.y));
  check(e, {e.mul(e.exp(first), second)});
}

TEST(memory_of_the_caller_is_written_behind_the_wait) {
  Example e;
  const ValueId started = e.reduce(e.y);
  const ValueId made = e.mul(e.sin(e.x), e.x);
  const ValueId waited = e.wait(started);
  e.copy(e.y, made);
  check(e, {e.mul(e.exp(waited), waited)});
}

TEST(parts_of_a_larger_tensor_may_come_from_a_collective) {
  Example e;
  const ValueId started = e.reduce(e.mul(e.exp(e.x), e.y));
  const ValueId part = e.mul(e.sin(e.x), e.y);
  const ArgumentList parts{part, e.wait(started)};
  check(e, {e.call("aten::cat", "", {ir::Argument(parts), 0}, 128)});
}

TEST(a_forward_with_a_collective_saves_what_came_of_it) {
  Example e;
  ir::TensorType type = *e.trace.tensor_type(e.x);
  type.requires_grad = true;
  const ValueId w = e.trace.add_input(ir::make_type(type));
  const auto with_gradient = [&](ValueId id) {
    e.trace.set_type(id, ir::make_type(type));
    return id;
  };
  const ValueId made = e.mul(e.sin(e.x), e.x);
  const ValueId started = e.reduce(made);
  const ValueId grown = with_gradient(e.mul(with_gradient(e.exp(w)), e.sin(made)));
  e.trace.outputs = {with_gradient(e.mul(grown, e.wait(started)))};
  const auto compiled = compile(e.trace, Options());
  for (const Trace& stage : compiled->forward_traces()) CHECK(communication_of(stage) == communication_of(e.trace));
  CHECK(!compiled->backward_traces().empty());
  for (const Trace& stage : compiled->backward_traces()) CHECK(communication_of(stage).empty());
}

TEST(collectives_are_described_alike_on_every_gpu) {
  const auto describe_on = [](std::int8_t index) {
    tracer::init_tracer();
    Trace trace("computation", std::make_shared<ir::TraceContext>());
    const ir::TypePtr type = ir::tensor_type(ir::Dtype::kFloat32, {64}, ir::Device{ir::DeviceType::kCuda, index});
    const ValueId x = trace.add_input(type);
    ir::add_call(trace, *tracer::find_operator("_c10d_functional::doubled", ""), {x, std::string("a")}, type);
    return describe_collectives(trace);
  };
  CHECK(describe_on(0).starts_with("doubled cuda f32[64] \"a\""));
  CHECK_EQ(describe_on(0), describe_on(1));
}

TEST(each_pass_by_itself_keeps_the_order) {
  Example e;
  const ValueId first = e.reduce(e.mul(e.exp(e.x), e.y));
  e.reduce(e.sin(e.y));
  const ValueId third = e.reduce(e.mul(e.exp(e.x), e.y));
  const ValueId waited = e.wait(third);
  e.trace.outputs = {e.add(e.mul(e.wait(first), e.x), waited)};
  for (const passes::Pass& pass : trace_passes()) {
    const Trace rewritten = pass.run(e.trace, &find_operator);
    ir::verify(rewritten, pass.name);
    CHECK(communication_of(rewritten) == communication_of(e.trace));
  }
}

}  // namespace thunder::compile
