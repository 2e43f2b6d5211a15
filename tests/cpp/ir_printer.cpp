#include <limits>

#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"

namespace thunder::ir {
namespace {

const Operator kAdd = parse_operator("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
const Operator kRelu = parse_operator("aten::relu(Tensor self) -> Tensor");
const Operator kSplit =
    parse_operator("aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]");
const Operator kRandomFrom = parse_operator(
    "aten::random_.from(Tensor(a!) self, int from, int? to, *, Generator? generator=None) -> Tensor(a!)");

TypePtr matrix() { return tensor_type(Dtype::kFloat32, {2, 16}); }

/// The text of a primitive's call with `argument`.
std::string show(Argument argument) {
  static const Operator kShow = parse_operator("prims::show(Any value) -> ()", CallStyle::kPrimitive);
  Trace trace("computation", std::make_shared<TraceContext>());
  const std::string line = print(add_symbol(trace, kShow, {std::move(argument)}, {}), trace);
  const std::string prefix = "prims.show(";
  return line.substr(prefix.size(), line.size() - prefix.size() - 1);
}

/// The name that an input gets which hints at `hint`.
std::string name_of(const std::string& hint) {
  Trace trace("f", std::make_shared<TraceContext>());
  trace.outputs = {trace.add_input(matrix(), hint)};
  const std::string text = print(trace);
  const std::size_t begin = text.find("def f(") + 6;
  return text.substr(begin, text.find(')', begin) - begin);
}

}  // namespace

TEST(a_trace_prints_as_a_program) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(matrix(), "x");
  const ValueId bias = trace.add_input(matrix(), "self.bias");
  trace.add_history("recorded");
  trace.add_history("dead_code_elimination");
  const SourceLocation line{trace.context()->intern("/home/user/models/llama.py"), 12};

  const ValueId sum = add_call(trace, kAdd, {x, bias, 2}, matrix());
  trace.symbols.back().location = line;
  const ValueId relu = add_call(trace, kRelu, {sum}, matrix());
  trace.symbols.back().location = line;
  trace.symbols.back().comment = "recomputed";
  const ValueId left = trace.add_value(tensor_type(Dtype::kFloat32, {2, 8}));
  const ValueId right = trace.add_value(tensor_type(Dtype::kFloat32, {2, 8}));
  add_symbol(trace, kSplit, {relu, 8, 1}, {ArgumentList{left, right}});
  trace.symbols.back().location = {line.file, 14};
  trace.outputs = {left, ArgumentList{bias, None{}}};

  CHECK_EQ(print(trace), R"(# computation: recorded; dead_code_elimination
import torch

@torch.no_grad()
def computation(x, self_bias):
  # x: "cpu f32[2, 16]"
  # self_bias: "cpu f32[2, 16]"
  # models/llama.py:12
  t2 = torch.ops.aten.add.Tensor(x, self_bias, alpha=2)  # t2: "cpu f32[2, 16]"
  del x
  t3 = torch.ops.aten.relu.default(t2)  # t3: "cpu f32[2, 16]"  # recomputed
  del t2
  # models/llama.py:14
  (t4, t5) = torch.ops.aten.split.Tensor(t3, 8, 1)  # t4: "cpu f32[2, 8]", t5: "cpu f32[2, 8]"
  del t3, t5
  return (t4, [self_bias, None])
)");
}

TEST(nested_operations_print_as_comments_when_asked) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(matrix(), "x");
  const ValueId y = add_call(trace, kAdd, {x, x}, matrix(), "y");
  BoundSymbol& symbol = trace.symbols.back();
  symbol.nested.push_back(symbol);
  symbol.nested.front().nested.push_back(symbol.nested.front());
  trace.outputs = {y};
  CHECK_EQ(print(trace, {.nested = true, .locations = false, .deletions = false}), R"(# computation
import torch

@torch.no_grad()
def computation(x):
  # x: "cpu f32[2, 16]"
  y = torch.ops.aten.add.Tensor(x, x)  # y: "cpu f32[2, 16]"
    # y = torch.ops.aten.add.Tensor(x, x)  # y: "cpu f32[2, 16]"
      # y = torch.ops.aten.add.Tensor(x, x)  # y: "cpu f32[2, 16]"
  return (y,)
)");
}

TEST(a_prologue_prints_primitives_and_its_objects) {
  static const Operator kGuard = parse_operator("check_type(Any value, Any type) -> ()", CallStyle::kPrimitive);
  static const Operator kNote = parse_operator("note() -> ()", CallStyle::kComment);
  static const Operator kReturn = parse_operator("return(Any[] values) -> ()", CallStyle::kReturn);
  Trace trace("prologue", std::make_shared<TraceContext>());
  const ValueId module = trace.add_input(make_type(ObjectType{"Linear"}), "module");
  trace.context()->add_object({ObjectKind::kPythonObject, nullptr, "unused"});
  const ObjectConstant type =
      trace.context()->add_object({ObjectKind::kPythonObject, nullptr, "<class 'torch.nn.Linear'>"});
  add_symbol(trace, kGuard, {module, type}, {});
  add_symbol(trace, kNote, {}, {}).comment = "two\nlines";
  add_symbol(trace, kReturn, {module}, {});
  CHECK_EQ(print(trace), R"(# prologue
import torch
from thunder import prims

# object1: <class 'torch.nn.Linear'>

def prologue(module):
  # module: "object Linear"
  prims.check_type(module, object1)
  # two lines
  return (module,)
)");
}

TEST(results_that_are_none_print_as_underscores) {
  static const Operator kBackward = parse_operator("aten::b(Tensor x) -> (Tensor, Tensor, Tensor)");
  Trace trace("backward", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(matrix(), "x");
  const ValueId y = trace.add_value(matrix(), "y");
  CHECK_EQ(print(add_symbol(trace, kBackward, {x}, {None{}, y, None{}}), trace),
           "(_, y, _) = torch.ops.aten.b.default(x)  # y: \"cpu f32[2, 16]\"");
  CHECK_EQ(print(add_symbol(trace, kBackward, {x}, {None{}, None{}, None{}}), trace), "torch.ops.aten.b.default(x)");
}

TEST(a_single_element_of_a_list_is_unpacked) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(matrix(), "x");
  const ValueId y = trace.add_value(matrix(), "y");
  CHECK_EQ(print(add_symbol(trace, kSplit, {x, 2}, {ArgumentList{y}}), trace),
           "(y,) = torch.ops.aten.split.Tensor(x, 2)  # y: \"cpu f32[2, 16]\"");
}

TEST(a_default_is_left_out_only_if_it_is_identical) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(matrix(), "x");
  const auto call = [&](Argument alpha) { return print(add_symbol(trace, kAdd, {x, x, alpha}, {None{}}), trace); };
  CHECK_EQ(call(1), "torch.ops.aten.add.Tensor(x, x)");
  CHECK_EQ(call(1.0), "torch.ops.aten.add.Tensor(x, x, alpha=1.0)");
  CHECK_EQ(call(true), "torch.ops.aten.add.Tensor(x, x, alpha=True)");
}

TEST(an_overload_that_is_a_keyword_is_reached_by_getattr) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(matrix(), "x");
  CHECK_EQ(print(add_symbol(trace, kRandomFrom, {x, 0, 5}, {None{}}), trace),
           "getattr(torch.ops.aten.random_, \"from\")(x, 0, 5)");
}

TEST(floats_round_trip_and_look_like_repr) {
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK_EQ(show(0.1), "0.1");
  CHECK_EQ(show(-0.0), "-0.0");
  CHECK_EQ(show(100000.0), "100000.0");
  CHECK_EQ(show(1e16), "1e+16");
  CHECK_EQ(show(9999999999999998.0), "9999999999999998.0");
  CHECK_EQ(show(1e-4), "0.0001");
  CHECK_EQ(show(1e-5), "1e-05");
  CHECK_EQ(show(5e-324), "5e-324");
  CHECK_EQ(show(infinity), "float(\"inf\")");
  CHECK_EQ(show(-infinity), "float(\"-inf\")");
  CHECK_EQ(show(std::numeric_limits<double>::quiet_NaN()), "float(\"nan\")");
}

TEST(constants_print_as_python) {
  CHECK_EQ(show(None{}), "None");
  CHECK_EQ(show(true), "True");
  CHECK_EQ(show(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  CHECK_EQ(show(std::complex<double>(1, -0.5)), "complex(1.0, -0.5)");
  CHECK_EQ(show("a\"b\\c\n\x01\u00e9"), "\"a\\\"b\\\\c\\n\\x01\u00e9\"");
  CHECK_EQ(show(Dtype::kBfloat16), "torch.bfloat16");
  CHECK_EQ(show(Device{}), "torch.device(\"cpu\")");
  CHECK_EQ(show(Device{DeviceType::kCuda, 0}), "torch.device(\"cuda\", 0)");
  CHECK_EQ(show(Layout::kStrided), "torch.strided");
  CHECK_EQ(show(MemoryFormat::kPreserve), "torch.preserve_format");
  CHECK_EQ(show(ArgumentList{1, ArgumentList{2.0, false}}), "[1, [2.0, False]]");
}

TEST(a_hint_becomes_an_identifier_that_clashes_with_nothing) {
  CHECK_EQ(name_of("layers.0.weight"), "layers_0_weight");
  CHECK_EQ(name_of("lambda"), "lambda_");
  CHECK_EQ(name_of("torch"), "torch_");
  CHECK_EQ(name_of("object3"), "object3_");
  CHECK_EQ(name_of("t12"), "t12_");
  CHECK_EQ(name_of("0"), "_0");
  CHECK_EQ(name_of("_"), "__");
  CHECK_EQ(name_of("caf\u00e9"), "caf__");
  CHECK_EQ(name_of(""), "t0");
}

TEST(equal_hints_get_different_names) {
  Trace trace("f", std::make_shared<TraceContext>());
  for (const char* hint : {"x", "x_1", "x", "x", "x_1"}) trace.add_input(matrix(), hint);
  CHECK(print(trace).find("def f(x, x_1, x_2, x_3, x_1_1):") != std::string::npos);
}

TEST(the_program_is_the_same_each_time) {
  Trace trace("f", std::make_shared<TraceContext>());
  ValueId x = trace.add_input(matrix(), "x");
  for (int i = 0; i < 50; ++i) x = add_call(trace, kAdd, {x, x}, matrix(), i % 3 == 0 ? "x" : "");
  trace.outputs = {x};
  const Trace copy = trace;
  CHECK_EQ(print(trace), print(copy));
}

}  // namespace thunder::ir
