#include "ir/trace_archive.h"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace thunder::ir {
namespace {

std::size_t hash_type(const Type& type) {
  if (const auto* tensor = std::get_if<TensorType>(&type)) return hash_value(*tensor);
  return std::hash<std::string>{}(to_string(type));
}

std::size_t hash_bytes(std::string_view bytes) { return std::hash<std::string_view>{}(bytes); }

}  // namespace

class TraceArchive::Writer : public ByteWriter {
 public:
  Writer(TraceArchive& archive, std::string& bytes) : ByteWriter(bytes), archive_(archive) {}

  void write(const Argument& argument) {
    write_number(argument.content.index());
    std::visit([this](const auto& content) { write_content(content); }, argument.content);
  }
  void write(const ArgumentList& list) {
    write_number(list.size());
    for (const Argument& argument : list) write(argument);
  }
  void write(const BoundSymbol& symbol) {
    write_number(archive_.number_of(symbol.op));
    write(symbol.arguments);
    write(symbol.results);
    write_number(symbol.location.file == nullptr ? 0 : archive_.number_of_file(symbol.location.file) + 1);
    write_signed(symbol.location.line);
    write_number(archive_.number_of_text(symbol.comment));
    write_number(symbol.nested.size());
    for (const BoundSymbol& nested : symbol.nested) write(nested);
  }

 private:
  void write_content(None /*content*/) {}
  void write_content(ValueId id) { write_number(index_of(id)); }
  void write_content(bool value) { write_number(value ? 1 : 0); }
  void write_content(std::int64_t value) { write_signed(value); }
  void write_content(double value) { write_double(value); }
  void write_content(std::complex<double> value) {
    write_content(value.real());
    write_content(value.imag());
  }
  void write_content(const std::string& value) { write_number(archive_.number_of_text(value)); }
  void write_content(Device device) {
    write_number(static_cast<std::uint64_t>(device.type));
    write_signed(device.index);
  }
  void write_content(ObjectConstant object) { write_number(object.index); }
  /// Expressions live as long as the process.
  void write_content(const Dim& dim) {
    write_signed(dim.hint);
    write_number(reinterpret_cast<std::uintptr_t>(dim.expression));
  }
  void write_content(const ArgumentList& list) { write(list); }
  template <typename Enumeration>
    requires std::is_enum_v<Enumeration>
  void write_content(Enumeration value) {
    write_number(static_cast<std::uint64_t>(value));
  }

  TraceArchive& archive_;
};

class TraceArchive::Reader : public ByteReader {
 public:
  Reader(const TraceArchive& archive, std::string_view bytes) : ByteReader(bytes), archive_(archive) {}

  /// Makes of the values of a trace those of the next one.
  void read_values(StoredValues& values) {
    values.resize(read_index());
    std::size_t i = 0;
    for (std::size_t left = read_index(); left > 0; --left) {
      i += read_index();
      values[i].type = read_small();
      values[i].name = read_small();
    }
  }
  Argument read_argument() { return read_alternative<0>(read_index()); }
  ArgumentList read_list() {
    ArgumentList list(read_index());
    for (Argument& argument : list) argument = read_argument();
    return list;
  }
  BoundSymbol read_symbol() {
    BoundSymbol symbol;
    symbol.op = archive_.operators_[read_index()];
    symbol.arguments = read_list();
    symbol.results = read_list();
    const std::size_t file = read_index();
    symbol.location.file = file == 0 ? nullptr : archive_.files_[file - 1];
    symbol.location.line = static_cast<std::int32_t>(read_signed());
    symbol.comment = archive_.texts_[read_index()];
    symbol.nested.resize(read_index());
    for (BoundSymbol& nested : symbol.nested) nested = read_symbol();
    return symbol;
  }

 private:
  template <std::size_t kKind>
  Argument read_alternative(std::size_t kind) {
    if constexpr (kKind < std::variant_size_v<Argument::Variant>) {
      if (kind != kKind) return read_alternative<kKind + 1>(kind);
      Argument argument;
      argument.content.emplace<kKind>(
          read_content(std::in_place_type<std::variant_alternative_t<kKind, Argument::Variant>>));
      return argument;
    } else {
      throw InternalError("ir/trace_archive", "unknown kind of argument " + std::to_string(kind));
    }
  }
  None read_content(std::in_place_type_t<None> /*type*/) { return {}; }
  bool read_content(std::in_place_type_t<bool> /*type*/) { return read_number() != 0; }
  std::int64_t read_content(std::in_place_type_t<std::int64_t> /*type*/) { return read_signed(); }
  double read_content(std::in_place_type_t<double> /*type*/) { return read_double(); }
  std::complex<double> read_content(std::in_place_type_t<std::complex<double>> /*type*/) {
    const double real = read_double();
    return {real, read_double()};
  }
  std::string read_content(std::in_place_type_t<std::string> /*type*/) { return archive_.texts_[read_index()]; }
  Device read_content(std::in_place_type_t<Device> /*type*/) {
    Device device;
    device.type = static_cast<decltype(device.type)>(read_number());
    device.index = static_cast<decltype(device.index)>(read_signed());
    return device;
  }
  ObjectConstant read_content(std::in_place_type_t<ObjectConstant> /*type*/) { return {read_small()}; }
  Dim read_content(std::in_place_type_t<Dim> /*type*/) {
    Dim dim(read_signed());
    dim.expression = reinterpret_cast<const SizeExpression*>(read_number());  // NOLINT(performance-no-int-to-ptr)
    return dim;
  }
  ArgumentList read_content(std::in_place_type_t<ArgumentList> /*type*/) { return read_list(); }
  template <typename Enumeration>
    requires std::is_enum_v<Enumeration>
  Enumeration read_content(std::in_place_type_t<Enumeration> /*type*/) {
    return static_cast<Enumeration>(read_number());
  }

  const TraceArchive& archive_;
};

void TraceArchive::build_index() {
  if (index_ != nullptr) return;
  index_ = std::make_unique<Index>();
  const auto number = [](const auto& items, const auto& add) {
    for (std::size_t i = 0; i < items.size(); ++i) add(items[i], static_cast<std::uint32_t>(i));
  };
  number(operators_, [&](const Operator* op, std::uint32_t i) { index_->operators.emplace(op, i); });
  number(types_, [&](const TypePtr& type, std::uint32_t i) {
    index_->types.emplace(type, i);
    index_->types_by_content.emplace(hash_type(*type), i);
  });
  number(texts_, [&](const std::string& text, std::uint32_t i) { index_->texts.emplace(text, i); });
  number(files_, [&](const std::string* file, std::uint32_t i) { index_->files.emplace(file, i); });
  number(symbol_ends_,
         [&](std::uint32_t /*end*/, std::uint32_t i) { index_->symbols.emplace(hash_bytes(symbol_bytes(i)), i); });
  if (!stages_.empty()) index_->values = values_of(stages_.size() - 1);
}

std::uint32_t TraceArchive::number_of(const Operator* op) {
  const auto [known, added] = index_->operators.emplace(op, static_cast<std::uint32_t>(operators_.size()));
  if (added) operators_.push_back(op);
  return known->second;
}

std::uint32_t TraceArchive::number_of(const TypePtr& type) {
  if (const auto known = index_->types.find(type); known != index_->types.end()) return known->second;
  const std::size_t hash = hash_type(*type);
  const auto [begin, end] = index_->types_by_content.equal_range(hash);
  const auto equal = std::find_if(begin, end, [&](const auto& entry) { return *types_[entry.second] == *type; });
  const auto number = equal == end ? static_cast<std::uint32_t>(types_.size()) : equal->second;
  if (equal == end) {
    types_.push_back(type);
    index_->types_by_content.emplace(hash, number);
  }
  index_->types.emplace(type, number);
  return number;
}

std::uint32_t TraceArchive::number_of_text(const std::string& text) {
  const auto [known, added] = index_->texts.emplace(text, static_cast<std::uint32_t>(texts_.size()));
  if (added) texts_.push_back(text);
  return known->second;
}

std::uint32_t TraceArchive::number_of_file(const std::string* file) {
  const auto [known, added] = index_->files.emplace(file, static_cast<std::uint32_t>(files_.size()));
  if (added) files_.push_back(file);
  return known->second;
}

std::uint32_t TraceArchive::number_of_context(const std::shared_ptr<TraceContext>& context) {
  const auto known = std::ranges::find(contexts_, context);
  const auto number = static_cast<std::uint32_t>(known - contexts_.begin());
  if (known == contexts_.end()) contexts_.push_back(context);
  return number;
}

std::uint32_t TraceArchive::number_of_symbol(const BoundSymbol& symbol) {
  const std::size_t begin = symbols_.size();
  Writer(*this, symbols_).write(symbol);
  const std::string_view bytes = std::string_view(symbols_).substr(begin);
  const std::size_t hash = hash_bytes(bytes);
  const auto [first, last] = index_->symbols.equal_range(hash);
  const auto equal = std::find_if(first, last, [&](const auto& entry) { return symbol_bytes(entry.second) == bytes; });
  if (equal != last) {
    symbols_.resize(begin);
    return equal->second;
  }
  const auto number = static_cast<std::uint32_t>(symbol_ends_.size());
  symbol_ends_.push_back(static_cast<std::uint32_t>(symbols_.size()));
  index_->symbols.emplace(hash, number);
  return number;
}

std::string_view TraceArchive::symbol_bytes(std::uint32_t number) const {
  const std::size_t begin = number == 0 ? 0 : symbol_ends_[number - 1];
  return std::string_view(symbols_).substr(begin, symbol_ends_[number] - begin);
}

void TraceArchive::add(const Trace& trace) {
  build_index();
  std::string bytes;
  Writer writer(*this, bytes);
  StoredValues values(trace.value_count());
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    const Value& value = trace.value(ValueId{i});
    values[i] = {value.type == nullptr ? 0 : number_of(value.type) + 1, number_of_text(value.name)};
  }
  // Values that the last trace has not, or has otherwise, each with its distance to the one before.
  writer.write_number(values.size());
  std::vector<std::uint32_t> changed;
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    if (i >= index_->values.size() || values[i] != index_->values[i]) changed.push_back(i);
  }
  writer.write_number(changed.size());
  std::uint32_t before = 0;
  for (const std::uint32_t i : changed) {
    writer.write_number(i - std::exchange(before, i));
    writer.write_number(values[i].type);
    writer.write_number(values[i].name);
  }
  index_->values = std::move(values);

  writer.write_number(number_of_context(trace.context()));
  writer.write_number(number_of_text(trace.name()));
  writer.write_number(trace.history().size());
  for (const std::string& step : trace.history()) writer.write_number(number_of_text(step));
  writer.write_number(trace.inputs.size());
  for (const ValueId id : trace.inputs) writer.write_number(index_of(id));
  writer.write_number(trace.memory_of_inputs.size());
  for (const std::uint32_t memory : trace.memory_of_inputs) writer.write_number(memory);
  writer.write(trace.outputs);
  writer.write_number(trace.symbols.size());
  std::int64_t expected = 0;  // symbols mostly follow one another as they did in the trace that had them first
  for (const BoundSymbol& symbol : trace.symbols) {
    const std::int64_t number = number_of_symbol(symbol);
    writer.write_signed(number - std::exchange(expected, number + 1));
  }
  bytes.shrink_to_fit();
  stages_.push_back(std::move(bytes));
}

TraceArchive::StoredValues TraceArchive::values_of(std::size_t index) const {
  StoredValues values;
  for (std::size_t i = 0; i <= index; ++i) {
    Reader reader(*this, stages_[i]);
    reader.read_values(values);
  }
  return values;
}

Trace TraceArchive::restore(std::size_t index) const {
  StoredValues values = index == 0 ? StoredValues() : values_of(index - 1);
  Reader reader(*this, stages_.at(index));
  reader.read_values(values);
  const std::shared_ptr<TraceContext>& context = contexts_[reader.read_index()];
  Trace trace(texts_[reader.read_index()], context);
  for (const StoredValue& value : values) {
    trace.add_value(value.type == 0 ? nullptr : types_[value.type - 1], texts_[value.name]);
  }
  for (std::size_t steps = reader.read_index(); steps > 0; --steps) trace.add_history(texts_[reader.read_index()]);
  trace.inputs.resize(reader.read_index());
  for (ValueId& id : trace.inputs) id = ValueId{reader.read_small()};
  trace.memory_of_inputs.resize(reader.read_index());
  for (std::uint32_t& memory : trace.memory_of_inputs) memory = reader.read_small();
  trace.outputs = reader.read_list();
  std::size_t left = reader.read_index();
  trace.symbols.reserve(left);
  for (std::int64_t number = 0; left > 0; --left) {
    number += reader.read_signed();
    trace.add(Reader(*this, symbol_bytes(static_cast<std::uint32_t>(number++))).read_symbol());
  }
  return trace;
}

std::vector<Trace> TraceArchive::restore_all() const {
  std::vector<Trace> traces;
  for (std::size_t i = 0; i < size(); ++i) traces.push_back(restore(i));
  return traces;
}

std::size_t TraceArchive::hash() const {
  std::size_t hash = hash_bytes(symbols_);
  for (const std::string& stage : stages_) hash = hash_combine(hash, hash_bytes(stage));
  for (const Operator* op : operators_) hash = hash_combine(hash, std::hash<const Operator*>{}(op));
  for (const TypePtr& type : types_) hash = hash_combine(hash, hash_type(*type));
  for (const std::string& text : texts_) hash = hash_combine(hash, hash_bytes(text));
  return hash;
}

bool is_same(const TraceArchive& left, const TraceArchive& right) {
  const auto equal_targets = [](const auto& a, const auto& b) { return *a == *b; };
  return left.stages_ == right.stages_ && left.symbols_ == right.symbols_ && left.symbol_ends_ == right.symbol_ends_ &&
         left.operators_ == right.operators_ && left.texts_ == right.texts_ &&
         std::ranges::equal(left.types_, right.types_, equal_targets) &&
         std::ranges::equal(left.files_, right.files_, equal_targets);
}

void TraceArchive::shrink() {
  index_ = nullptr;
  symbols_.shrink_to_fit();
  symbol_ends_.shrink_to_fit();
  types_.shrink_to_fit();
  texts_.shrink_to_fit();
  stages_.shrink_to_fit();
}

}  // namespace thunder::ir
