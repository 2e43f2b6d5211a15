#include "ir/serialization.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "ir/trace_archive.h"
#include "ir/verifier.h"

namespace thunder::ir {
namespace {

constexpr std::string_view kMagic = "thundrtr";
constexpr std::size_t kHeaderSize = kMagic.size() + 4 + 8 + 8;

/// The objects that a trace uses, with the first line that does.
using UsedObjects = std::map<std::uint32_t, SourceLocation>;

void find_objects(const ArgumentList& arguments, const SourceLocation& location, UsedObjects& used) {
  for (const Argument& argument : arguments) {
    if (const auto* object = argument.get<ObjectConstant>()) used.try_emplace(object->index, location);
    if (const auto* list = argument.get<ArgumentList>()) find_objects(*list, location, used);
  }
}

void find_objects(const std::vector<BoundSymbol>& symbols, UsedObjects& used) {
  for (const BoundSymbol& symbol : symbols) {
    find_objects(symbol.arguments, symbol.location, used);
    find_objects(symbol.nested, used);
  }
}

UsedObjects objects_of(std::span<const Trace> traces) {
  UsedObjects used;
  for (const Trace& trace : traces) {
    find_objects(trace.symbols, used);
    find_objects(trace.outputs, {}, used);
  }
  return used;
}

void write_fixed(std::string& bytes, std::uint64_t number, int width) {
  for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(number >> (8 * i)));
}

std::uint64_t read_fixed(std::string_view& bytes, std::size_t width) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < width; ++i) number |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (8 * i);
  bytes.remove_prefix(width);
  return number;
}

[[noreturn]] void refuse(const std::string& what) { throw UserError(ErrorKind::kValue, "stored traces: " + what); }

std::string_view payload_of(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < kHeaderSize) {
    refuse("expected what thunder stored, got " + std::to_string(bytes.size()) + " bytes of something else");
  }
  bytes.remove_prefix(kMagic.size());
  const std::uint64_t version = read_fixed(bytes, 4);
  if (version != kSerializationVersion) {
    refuse("expected version " + std::to_string(kSerializationVersion) + ", got " + std::to_string(version) +
           (version > kSerializationVersion ? ", of a newer thunder" : ", of an older thunder"));
  }
  const std::uint64_t size = read_fixed(bytes, 8);
  const std::uint64_t sum = read_fixed(bytes, 8);
  if (size != bytes.size()) {
    refuse("expected " + std::to_string(size) + " bytes behind the header, got " + std::to_string(bytes.size()));
  }
  if (sum != checksum(bytes)) refuse("damaged: the checksum is another one");
  return bytes;
}

enum Content : std::uint8_t { kNone, kBytes, kPart };

/// Traces, and behind them those that their objects are made of, by the object's number.
struct WithParts {
  std::vector<Trace> traces;
  std::map<std::uint32_t, std::size_t> parts;
};

WithParts with_parts(std::span<const Trace> traces, const ConstantStorage& storage) {
  WithParts all{{traces.begin(), traces.end()}, {}};
  for (std::size_t i = 0; storage.store_part && i < all.traces.size(); ++i) {
    for (const auto& [index, location] : objects_of(std::span(&all.traces[i], 1))) {
      const TraceContext::Object& object = all.traces[i].context()->objects.at(index);
      if (object.owner == nullptr || all.parts.contains(index)) continue;
      std::optional<Trace> part = storage.store_part(object, all.traces[i]);
      if (!part) continue;
      all.parts[index] = all.traces.size();
      all.traces.push_back(*std::move(part));
    }
  }
  return all;
}

/// `count` objects, of which those that no trace uses are not described.
void write_objects(ByteWriter& writer, const WithParts& all, const TraceContext& context,
                   const ConstantStorage& storage) {
  const UsedObjects used = objects_of(all.traces);
  writer.write_number(used.empty() ? 0 : used.rbegin()->first + std::uint64_t{1});
  writer.write_number(used.size());
  for (const auto& [index, location] : used) {
    THUNDER_CHECK(index < context.objects.size(), "ir/serialization", "a trace names an object that is not there");
    const TraceContext::Object& object = context.objects[index];
    const auto content = object.owner != nullptr && storage.store ? storage.store(object) : std::nullopt;
    writer.write_number(index);
    writer.write_number(static_cast<std::uint64_t>(object.kind));
    writer.write_text(object.description);
    const auto part = all.parts.find(index);
    writer.write_number(part != all.parts.end() ? kPart : content ? kBytes : kNone);
    if (part != all.parts.end()) {
      writer.write_number(part->second);
    } else if (content) {
      writer.write_text(*content);
    }
  }
}

void require(bool condition, const char* what) { THUNDER_CHECK(condition, "ir/serialization", what); }

/// The trace that each object which is made of one is made of, by the object's number.
std::map<std::uint64_t, std::uint64_t> read_objects(ByteReader& reader, TraceContext& context,
                                                    const ConstantStorage& storage) {
  std::map<std::uint64_t, std::uint64_t> parts;
  constexpr std::uint64_t kMost = 1U << 24;  // numbers without an object take no bytes
  const std::uint64_t count = reader.read_number();
  require(count <= kMost, "there are fewer objects");
  context.objects.resize(static_cast<std::size_t>(count));
  for (std::size_t left = reader.read_count(); left > 0; --left) {
    const std::uint64_t index = reader.read_number();
    const std::uint64_t kind = reader.read_number();
    require(index < count, "there are fewer objects");
    require(kind <= static_cast<std::uint64_t>(ObjectKind::kPythonFunction), "no such kind of object");
    TraceContext::Object& object = context.objects[static_cast<std::size_t>(index)];
    object = {static_cast<ObjectKind>(kind), nullptr, std::string(reader.read_text())};
    const std::uint64_t content = reader.read_number();
    require(content <= kPart, "no such content");
    if (content == kPart) parts[index] = reader.read_number();
    if (content != kBytes) continue;
    const std::string_view bytes = reader.read_text();
    if (storage.load) object.owner = storage.load(object.kind, bytes);
  }
  return parts;
}

void check(const Trace& trace) {
  verify(trace, "stored traces");
  require(trace.memory_of_inputs.empty() || trace.memory_of_inputs.size() == trace.inputs.size(),
          "there is memory of other inputs");
  for (const auto& [index, location] : objects_of(std::span(&trace, 1))) {
    require(index < trace.context()->objects.size(), "there are fewer objects");
  }
}

}  // namespace

std::string serialize(std::span<const Trace> traces, const ConstantStorage& storage) {
  std::string payload;
  ByteWriter writer(payload);
  const std::shared_ptr<TraceContext> none = std::make_shared<TraceContext>();
  const WithParts all = with_parts(traces, storage);
  writer.write_number(traces.size());
  write_objects(writer, all, traces.empty() ? *none : *traces[0].context(), storage);
  TraceArchive archive;
  for (const Trace& trace : all.traces) archive.add(trace);
  archive.write(writer);

  std::string bytes{kMagic};
  write_fixed(bytes, kSerializationVersion, 4);
  write_fixed(bytes, payload.size(), 8);
  write_fixed(bytes, checksum(payload), 8);
  return bytes += payload;
}

std::vector<Trace> deserialize(std::string_view bytes, FindOperator find_operator, const ConstantStorage& storage) {
  const std::string_view payload = payload_of(bytes);
  try {
    ByteReader reader(payload);
    const auto context = std::make_shared<TraceContext>();
    const std::uint64_t count = reader.read_number();
    const auto parts = read_objects(reader, *context, storage);
    const TraceArchive archive = TraceArchive::read(reader, find_operator, context);
    require(reader.is_at_end(), "there is more than traces");
    std::vector<Trace> traces = archive.restore_all();
    std::ranges::for_each(traces, &check);
    require(count <= traces.size(), "there are fewer traces");
    for (const auto& [index, position] : parts) {
      require(position < traces.size(), "there are fewer traces");
      TraceContext::Object& object = context->objects[static_cast<std::size_t>(index)];
      if (storage.load_part) object.owner = storage.load_part(object.kind, traces[static_cast<std::size_t>(position)]);
    }
    traces.erase(traces.begin() + static_cast<std::ptrdiff_t>(count), traces.end());
    return traces;
  } catch (const InternalError& error) {
    refuse(std::string("damaged: ") + error.what());
  } catch (const UserError& error) {
    refuse(error.what());
  }
}

std::vector<Hole> holes_of(const Trace& trace) {
  std::vector<Hole> holes;
  for (const auto& [index, location] : objects_of(std::span(&trace, 1))) {
    const auto& objects = trace.context()->objects;
    if (index < objects.size() && objects[index].owner == nullptr) holes.push_back({{index}, location});
  }
  return holes;
}

}  // namespace thunder::ir
