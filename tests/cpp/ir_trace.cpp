#include "base/error.h"
#include "check.h"
#include "ir/builder.h"
#include "ir/trace.h"

namespace thunder::ir {

TEST(a_file_name_is_interned_once) {
  TraceContext context;
  const std::string* first = context.intern("model.py");
  for (int i = 0; i < 100; ++i) CHECK(context.intern("file" + std::to_string(i)) != first);
  CHECK(context.intern("model.py") == first);
}

TEST(an_object_keeps_its_name_when_added_again) {
  TraceContext context;
  const auto owner = std::make_shared<int>(1);
  CHECK_EQ(context.add_object({ObjectKind::kGenerator, owner, "generator"}).index, 0U);
  CHECK_EQ(context.add_object({ObjectKind::kPythonObject, std::make_shared<int>(1), "other"}).index, 1U);
  CHECK_EQ(context.add_object({ObjectKind::kGenerator, owner, "generator"}).index, 0U);
  CHECK_EQ(context.objects.size(), 2U);
  CHECK(context.owner_of({0}, ObjectKind::kGenerator) == owner);
  CHECK_THROWS(context.owner_of({0}, ObjectKind::kTensor), InternalError);
}

TEST(an_empty_copy_has_all_but_the_symbols) {
  Trace trace("computation", std::make_shared<TraceContext>());
  const Operator relu = parse_operator("aten::relu(Tensor self) -> Tensor");
  const ValueId x = trace.add_input(tensor_type(Dtype::kFloat32, {2}), "x");
  trace.outputs = {add_call(trace, relu, {x}, tensor_type(Dtype::kFloat32, {2}))};
  trace.add_history("recorded");

  const Trace copy = trace.empty_copy("pass");
  CHECK(copy.symbols.empty());
  CHECK_EQ(copy.value_count(), 2U);
  CHECK(copy.inputs == trace.inputs);
  CHECK(copy.outputs == trace.outputs);
  CHECK(copy.context() == trace.context());
  CHECK_EQ(copy.history().back(), "pass");
  CHECK_EQ(trace.history().size(), 1U);
}

TEST(tensor_type_of_what_is_no_tensor_is_null) {
  Trace trace("prologue", std::make_shared<TraceContext>());
  CHECK(trace.tensor_type(trace.add_input(make_type(ScalarKind::kInt))) == nullptr);
  CHECK(trace.tensor_type(trace.add_input(tensor_type(Dtype::kInt64, {}))) != nullptr);
}

TEST(a_trace_is_named_after_its_kind_and_segment) {
  const auto context = std::make_shared<TraceContext>();
  const Trace trace(TraceKind::kBackward, context, 2);
  CHECK_EQ(trace.name(), "backward_2");
  CHECK(trace.empty_copy("pass").kind() == TraceKind::kBackward);
  CHECK_EQ(trace.blank().segment(), 2U);
  CHECK_EQ(Trace(TraceKind::kComputation, context).name(), "computation");
  CHECK(Trace("backward", context).kind() == TraceKind::kPart);
}

TEST(a_trace_without_a_context_is_refused) { CHECK_THROWS(Trace("computation", nullptr), InternalError); }

}  // namespace thunder::ir
