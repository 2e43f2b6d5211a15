#include <cmath>
#include <limits>

#include "check.h"
#include "ir/builder.h"
#include "ir/printer.h"
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

bool equal(const BoundSymbol& left, const BoundSymbol& right) {
  return left.op == right.op && identical(left.arguments, right.arguments) && identical(left.results, right.results) &&
         left.location == right.location && left.comment == right.comment &&
         std::ranges::equal(left.nested, right.nested, equal);
}

void check_equal(const Trace& left, const Trace& right) {
  CHECK_EQ(left.name(), right.name());
  CHECK(left.context() == right.context());
  CHECK(left.history() == right.history());
  CHECK(left.inputs == right.inputs);
  CHECK(left.memory_of_inputs == right.memory_of_inputs);
  CHECK(identical(left.outputs, right.outputs));
  CHECK(std::ranges::equal(left.symbols, right.symbols, equal));
  CHECK_EQ(left.value_count(), right.value_count());
  for (std::uint32_t i = 0; i < left.value_count(); ++i) {
    const Value& a = left.value(ValueId{i});
    const Value& b = right.value(ValueId{i});
    CHECK_EQ(a.name, b.name);
    CHECK((a.type == nullptr) == (b.type == nullptr));
    CHECK(a.type == nullptr || *a.type == *b.type);
  }
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

TEST(archives_of_equal_traces_are_the_same) {
  const auto archive_of = [](const Trace& trace) {
    TraceArchive archive;
    archive.add(trace);
    return archive;
  };
  const TraceArchive archive = archive_of(example());
  CHECK(is_same(archive, archive_of(example())));
  CHECK_EQ(archive.hash(), archive_of(example()).hash());
  const auto differs = [&](const auto& change) {
    Trace changed = example();
    change(changed);
    return !is_same(archive, archive_of(changed));
  };
  CHECK(differs([](Trace& trace) { trace.set_type(trace.inputs[0], make_f32({3})); }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].arguments[6] = Argument(0.0); }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].location = {trace.context()->intern("other.py"), 12}; }));
  CHECK(differs([](Trace& trace) { trace.symbols[0].op = &kMix; }));
  CHECK(differs([](Trace& trace) { trace.outputs.pop_back(); }));
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
