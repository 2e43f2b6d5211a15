#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "check.h"
#include "ir/builder.h"
#include "ir/equality.h"
#include "ir/printer.h"
#include "ir/serialization.h"

namespace thunder::ir {
namespace {

const Operator kMix = parse_operator("aten::mix(Tensor(a!) self, *, Tensor other, float scale=1.0) -> Tensor(a!)");
const Operator kEach = parse_operator(
    "prims::each(Any a, Any b, Any c, Any d, Any e, Any f, Any g, Any h, Any i, Any j, Any k) -> Tensor[]",
    CallStyle::kPrimitive);
const Operator kReshape = parse_operator("aten::reshape(Tensor self, SymInt[] shape) -> Tensor");
const Operator kOtherMix = parse_operator("aten::mix(Tensor self, Tensor other) -> Tensor");

const Operator* find_operator(const std::string& name, const std::string& overload) {
  for (const Operator* op : {&kMix, &kEach, &kReshape}) {
    if (op->name == name && op->overload == overload) return op;
  }
  return nullptr;
}
const Operator* find_changed_operator(const std::string& name, const std::string& overload) {
  return name == kMix.name ? &kOtherMix : find_operator(name, overload);
}
const Operator* find_nothing(const std::string& /*name*/, const std::string& /*overload*/) { return nullptr; }

/// An int stands for a tensor, a trace for a gradient; other objects cannot be stored.
const ConstantStorage kStorage{
    [](const TraceContext::Object& object) {
      return object.kind == ObjectKind::kTensor
                 ? std::optional(std::to_string(*static_cast<const int*>(object.owner.get())))
                 : std::nullopt;
    },
    [](ObjectKind, std::string_view bytes) { return std::make_shared<int>(std::stoi(std::string(bytes))); },
    [](const TraceContext::Object& object, const Trace&) {
      return object.kind == ObjectKind::kCustomGradient ? std::optional(*static_cast<const Trace*>(object.owner.get()))
                                                        : std::nullopt;
    },
    [](ObjectKind, const Trace& part) { return std::make_shared<Trace>(part); }};

/// A trace with everything that a trace can have.
Trace example() {
  const Dim rows = Dim::symbol(0, 5);
  const Dim columns = Dim::symbol(1, 7);
  const Dim size = floor_divide(Dim(64) * rows * columns + Dim(3), columns + Dim(2));
  Trace trace(TraceKind::kBackward, std::make_shared<TraceContext>(), 2);
  const ValueId x = trace.add_input(tensor_type(Dtype::kFloat32, {rows, columns}), "x");
  const ValueId n = trace.add_input(make_type(ScalarKind::kInt));
  const ValueId module = trace.add_input(make_type(ObjectType{"LlamaForCausalLM"}), "self");
  trace.add_value(nullptr, "none");
  trace.memory_of_inputs = {7, 8, 8};
  trace.conditions = {{Condition::Kind::kDivisible, rows * columns, 5}, {Condition::Kind::kAtMost, rows, columns}};
  trace.context()->add_object({ObjectKind::kPythonObject, std::make_shared<int>(0), "of another trace"});
  const auto tensor = trace.context()->add_object(ObjectKind::kTensor, std::make_shared<int>(42));
  const auto type = trace.context()->add_object({ObjectKind::kPythonObject, std::make_shared<int>(1), "<class 'X'>"});
  const ValueId a = trace.add_value(tensor_type(Dtype::kFloat8E8m0fnu, {size}, {DeviceType::kCuda, 3}));
  BoundSymbol& each = add_symbol(
      trace, kEach,
      {None{}, n, true, std::numeric_limits<std::int64_t>::min(), std::nan("7"), std::complex<double>(-0.0, 2),
       std::string("a \0 b", 5), ArgumentList{Dtype::kBfloat16, Device{DeviceType::kMeta, -1}, Layout::kJagged},
       MemoryFormat::kChannelsLast3d, ArgumentList{tensor, type, smaller(size, rows), ArgumentList{}}, module},
      {ArgumentList{a, None{}}});
  each.location = {trace.context()->intern("model.py"), 12};
  each.comment = "recomputed";
  each.nested.emplace_back(BoundSymbol{&kReshape, {x, ArgumentList{rows * columns}}, {x}, {}, {}, {}});
  each.nested[0].results = {trace.add_value(tensor_type(Dtype::kFloat32, {rows * columns}))};
  const ValueId b = add_call(trace, kMix, {x, a, 0.5}, tensor_type(Dtype::kFloat32, {rows, columns}), "gradient");
  trace.outputs = {b, None{}, ArgumentList{x}};
  trace.add_history("recorded");
  trace.add_history("a pass");
  return trace;
}

std::string bytes_of(const Trace& trace) { return serialize(std::span(&trace, 1), kStorage); }

/// With a header that fits.
std::string with_payload(std::string bytes, const std::string& payload) {
  bytes.resize(12);
  for (const std::uint64_t number : {std::uint64_t{payload.size()}, checksum(payload)}) {
    for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(number >> shift));
  }
  return bytes + payload;
}

std::string error_of(const std::string& bytes, FindOperator find = &find_operator) {
  try {
    static_cast<void>(deserialize(bytes, find, kStorage));
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(a_loaded_trace_is_the_stored_one) {
  const Trace trace = example();
  const std::string bytes = bytes_of(trace);
  const Trace loaded = deserialize(bytes, &find_operator, kStorage).at(0);
  CHECK(is_same(trace, loaded));
  CHECK_EQ(print(trace, {.nested = true}), print(loaded, {.nested = true}));
  CHECK(loaded.context() != trace.context());
  CHECK_EQ(bytes_of(loaded), bytes);
}

TEST(traces_of_one_family_are_stored_together) {
  std::vector<Trace> traces{example()};
  traces.push_back(traces[0].empty_copy("emptied"));
  traces[1].outputs = {traces[1].inputs[0]};
  const std::vector<Trace> loaded = deserialize(serialize(traces, kStorage), &find_operator, kStorage);
  CHECK_EQ(loaded.size(), 2U);
  CHECK(is_same(loaded[0], traces[0]) && is_same(loaded[1], traces[1]));
  CHECK(loaded[0].context() == loaded[1].context());
  CHECK(deserialize(serialize({}, kStorage), &find_operator, kStorage).empty());
  traces.push_back(example());
  CHECK_THROWS(serialize(traces, kStorage), InternalError);
}

TEST(objects_keep_their_numbers_and_those_without_bytes_are_holes) {
  const Trace loaded = deserialize(bytes_of(example()), &find_operator, kStorage).at(0);
  const TraceContext& context = *loaded.context();
  CHECK_EQ(*static_cast<const int*>(context.owner_of({1}, ObjectKind::kTensor).get()), 42);
  CHECK_THROWS(context.owner_of({2}, ObjectKind::kPythonObject), UserError);
  const std::vector<Hole> holes = holes_of(loaded);
  CHECK_EQ(holes.size(), 1U);
  CHECK_EQ(holes[0].object.index, 2U);
  CHECK_EQ(holes[0].location.line, 12);
  CHECK(context.objects[0].description.empty());  // objects that only other traces use are not stored
}

TEST(objects_that_consist_of_operations_are_stored_with_what_these_use) {
  Trace trace("trace", std::make_shared<TraceContext>());
  const TypePtr type = tensor_type(Dtype::kFloat32, {4});
  const ValueId x = trace.add_input(type, "x");
  Trace part = trace.empty_copy("gradient");
  const auto tensor = trace.context()->add_object(ObjectKind::kTensor, std::make_shared<int>(42));
  part.outputs = {add_call(part, kMix, {x, x, tensor}, type)};
  const auto gradient = trace.context()->add_object(ObjectKind::kCustomGradient, std::make_shared<Trace>(part));
  trace.outputs = {add_call(trace, kMix, {x, x, gradient}, type)};

  const std::string bytes = bytes_of(trace);
  const std::vector<Trace> loaded = deserialize(bytes, &find_operator, kStorage);
  CHECK_EQ(loaded.size(), 1U);
  const TraceContext& context = *loaded[0].context();
  const auto found = context.owner_of(gradient, ObjectKind::kCustomGradient);
  CHECK_EQ(print(*static_cast<const Trace*>(found.get())), print(part));
  CHECK_EQ(*static_cast<const int*>(context.owner_of(tensor, ObjectKind::kTensor).get()), 42);
  CHECK(bytes_of(loaded[0]) == bytes);
}

// Enumerators and kinds are written by number: a change needs a new version.
TEST(the_format_is_that_of_its_version) {
  CHECK_EQ(kSerializationVersion, 3U);
  CHECK_EQ(checksum(bytes_of(example())), 17970502719934976290ULL);
}

TEST(errors_name_what_is_wrong_with_bytes) {
  const std::string bytes = bytes_of(example());
  CHECK(has(error_of(""), "expected what thunder stored, got 0 bytes"));
  CHECK(has(error_of("PK" + bytes), "of something else"));
  std::string newer = bytes;
  newer[8] = 9;
  CHECK(has(error_of(newer), "expected version 3, got 9, of a newer thunder"));
  CHECK(has(error_of(bytes.substr(0, bytes.size() - 1)), "bytes behind the header"));
  CHECK(has(error_of(bytes + "x"), "bytes behind the header"));
  std::string damaged = bytes;
  damaged[bytes.size() / 2] ^= 1;
  CHECK(has(error_of(damaged), "the checksum is another one"));
  CHECK(has(error_of(bytes, &find_nothing), "expected an operator that is known here, got prims::each"));
  CHECK(has(error_of(bytes, &find_changed_operator), "expected aten::mix(Tensor self, Tensor other)"));
  CHECK_EQ(error_of(bytes), "none");
}

TEST(a_trace_that_is_wrong_is_refused) {
  Trace trace = example();
  trace.outputs = {trace.symbols[1].arguments[0], ValueId{1000}};
  CHECK(has(error_of(bytes_of(trace)), "output t1000 is no value of the trace"));
  trace = example();
  trace.symbols[1].arguments.pop_back();
  CHECK(has(error_of(bytes_of(trace)), "takes 3 arguments, got 2"));
  trace = example();
  trace.memory_of_inputs.push_back(1);
  CHECK(has(error_of(bytes_of(trace)), "memory of other inputs"));
}

TEST(every_prefix_is_refused) {
  const std::string bytes = bytes_of(example());
  const std::string payload = bytes.substr(28);
  for (std::size_t size = 0; size < bytes.size(); ++size) CHECK(error_of(bytes.substr(0, size)) != "none");
  for (std::size_t size = 0; size < payload.size(); ++size) {
    CHECK(error_of(with_payload(bytes, payload.substr(0, size))) != "none");
  }
}

// Under a checksum that fits, as a careless or hostile writer makes them: what is read is a trace that prints, or an
// error. Sanitizers watch.
TEST(bytes_that_were_changed_give_a_trace_or_an_error) {
  const std::string bytes = bytes_of(example());
  const std::string payload = bytes.substr(28);
  std::mt19937 random(1);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random()) % end; };
  std::size_t loaded = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string changed = payload;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const std::size_t at = below(changed.size());
      switch (below(4)) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed[at] = static_cast<char>(changed[at] + static_cast<int>(below(3)) - 1);
          break;
        case 2:
          changed.insert(at, below(4), static_cast<char>(0xff));
          break;
        default:
          changed.erase(at, 1 + below(3));
      }
      if (changed.empty()) changed = "\x01";
    }
    try {
      const std::vector<Trace> traces = deserialize(with_payload(bytes, changed), &find_operator, kStorage);
      for (const Trace& trace : traces) CHECK(!print(trace, {.nested = true}).empty());
      ++loaded;
    } catch (const UserError&) {
    } catch (const std::invalid_argument&) {  // by the int that is a tensor here
    } catch (const std::out_of_range&) {
    }
  }
  CHECK(loaded > 0);
}

}  // namespace thunder::ir
