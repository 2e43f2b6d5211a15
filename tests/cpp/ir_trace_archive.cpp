#include <cmath>
#include <limits>

#include "check.h"
#include "ir/builder.h"
#include "ir/equality.h"
#include "ir/trace_archive.h"

namespace thunder::ir {
namespace {

const Operator kMix = parse_operator("aten::mix(Tensor self, Tensor other) -> Tensor");
const Operator kPrim = parse_operator("prims::each(Tensor self) -> Tensor");

TypePtr make_f32(Dims sizes) { return tensor_type(Dtype::kFloat32, std::move(sizes)); }

/// A symbol with an argument of every kind.
BoundSymbol everything(Trace& trace, ValueId x) {
  BoundSymbol symbol;
  symbol.op = &kPrim;
  symbol.arguments = {Argument(),
                      Argument(x),
                      Argument(true),
                      Argument(std::numeric_limits<std::int64_t>::min()),
                      Argument(-1),
                      Argument(300),
                      Argument(-0.0),
                      Argument(std::nan("7")),
                      Argument(std::complex<double>(1, -2)),
                      Argument(std::string("same")),
                      Argument(Dtype::kFloat8E8m0fnu),
                      Argument(Device{DeviceType::kCuda, 3}),
                      Argument(Layout::kJagged),
                      Argument(MemoryFormat::kChannelsLast3d),
                      Argument(ObjectConstant{130}),
                      Argument(ArgumentList{Argument(x), Argument(ArgumentList{}), Argument(2.5)})};
  symbol.results = {Argument(ArgumentList{Argument(trace.add_value(make_f32({2}))), Argument(None{})})};
  symbol.location = {trace.context()->intern("model.py"), 12};
  symbol.comment = "recomputed";
  symbol.nested.emplace_back().op = &kMix;
  symbol.nested.back().arguments = {Argument(x), Argument(x)};
  return symbol;
}

Trace example() {
  Trace trace("computation", std::make_shared<TraceContext>());
  const ValueId x = trace.add_input(make_f32({2}), "x");
  trace.add_value(nullptr, "none");
  trace.add_value(make_type(ScalarKind::kInt));
  trace.memory_of_inputs = {7};
  trace.add(everything(trace, x));
  trace.outputs = {Argument(x), Argument(None{})};
  trace.add_history("recorded");
  return trace;
}

void check_equal(const Trace& left, const Trace& right) {
  CHECK(is_same(left, right));
  CHECK(left.context() == right.context());
}

/// `trace`, then with another symbol and another type, then with fewer symbols, then with fewer values.
std::vector<Trace> descendants() {
  std::vector<Trace> traces{example()};
  Trace more = traces.front();
  more.add_history("more");
  const ValueId x = more.inputs[0];
  more.set_type(x, make_f32({3}));
  more.outputs = {add_call(more, kMix, {x, x}, make_f32({2}))};
  traces.push_back(more);
  Trace less = traces.back().empty_copy("less");
  less.add(traces.back().symbols.back());
  traces.push_back(less);
  Trace other("backward", std::make_shared<TraceContext>());
  other.add_input(make_f32({5}), "x");
  traces.push_back(other);
  return traces;
}

}  // namespace

TEST(a_restored_trace_equals_the_one_that_was_added) {
  const std::vector<Trace> traces = descendants();
  TraceArchive archive;
  for (const Trace& trace : traces) archive.add(trace);
  CHECK_EQ(archive.size(), traces.size());
  for (std::size_t i = 0; i < traces.size(); ++i) check_equal(archive.restore(i), traces[i]);
  CHECK_EQ(archive.restore_all().size(), traces.size());
}

TEST(an_archive_that_was_shrunk_takes_more_traces) {
  const std::vector<Trace> traces = descendants();
  TraceArchive archive;
  for (const Trace& trace : traces) {
    archive.add(trace);
    archive.shrink();
  }
  for (std::size_t i = 0; i < traces.size(); ++i) check_equal(archive.restore(i), traces[i]);
}

TEST(a_type_where_another_one_lay_is_not_taken_for_it) {
  TraceArchive archive;
  for (std::int64_t i = 0; i < 50; ++i) {
    Trace trace("computation", std::make_shared<TraceContext>());
    trace.add_input(make_f32({i}));
    archive.add(trace);
  }
  for (std::int64_t i = 0; i < 50; ++i) {
    const Trace trace = archive.restore(static_cast<std::size_t>(i));
    CHECK(trace.tensor_type(trace.inputs[0])->sizes[0] == Dim(i));
  }
}

}  // namespace thunder::ir
