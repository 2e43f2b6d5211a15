#include "ir/trace_archive.h"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "ir/builder.h"

namespace thunder::ir {
namespace {

std::size_t hash_bytes(std::string_view bytes) { return std::hash<std::string_view>{}(bytes); }

// The last enumerators, for what is read from bytes that may be damaged.
constexpr CallStyle last_of(CallStyle) { return CallStyle::kBlock; }
constexpr Condition::Kind last_of(Condition::Kind) { return Condition::Kind::kAtMost; }
constexpr DeviceType last_of(DeviceType) { return DeviceType::kOther; }
constexpr Dtype last_of(Dtype) { return Dtype::kFloat8E8m0fnu; }
constexpr Layout last_of(Layout) { return Layout::kJagged; }
constexpr MemoryFormat last_of(MemoryFormat) { return MemoryFormat::kChannelsLast3d; }
constexpr ScalarKind last_of(ScalarKind) { return ScalarKind::kComplex; }
constexpr TraceKind last_of(TraceKind) { return TraceKind::kEpilogue; }
constexpr ValueId last_of(ValueId) { return kNoValue; }

void require(bool condition, const char* what) { THUNDER_CHECK(condition, "ir/trace_archive", what); }

template <typename Enumeration>
Enumeration to_enumerator(std::uint64_t number) {
  require(number <= static_cast<std::uint64_t>(last_of(Enumeration{})), "no such enumerator");
  return static_cast<Enumeration>(number);
}

template <typename T>
const T& at(const std::vector<T>& table, std::uint64_t index) {
  require(index < table.size(), "an index is too large");
  return table[static_cast<std::size_t>(index)];
}

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
  void write(const Dim& dim) {
    write_signed(dim.hint);
    write_number(dim.is_concrete() ? 0 : archive_.number_of(dim.expression) + 1);
  }
  void write(const Dims& dims) {
    write_number(dims.size());
    for (const Dim& dim : dims) write(dim);
  }
  void write(const Type& type) {
    write_number(type.index());
    std::visit([this](const auto& content) { write_type(content); }, type);
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
  void write_type(const TensorType& type) {
    write_content(type.dtype);
    write_content(type.device);
    write_content(type.layout);
    write_content(type.requires_grad);
    write(type.sizes);
    write(type.strides);
    write(type.storage_offset);
  }
  void write_type(ScalarKind kind) { write_content(kind); }
  void write_type(const ObjectType& type) { write_text(type.python_type); }

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
  void write_content(const Dim& dim) { write(dim); }
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
    const std::uint64_t count = read_number();
    std::size_t left = read_count();
    require(count <= values.size() + left, "there are fewer values");
    values.resize(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; left > 0; --left) {
      i += read_number();
      require(i < count, "there are fewer values");
      StoredValue& value = values[static_cast<std::size_t>(i)];
      value.type = read_small();
      value.name = read_small();
    }
  }
  template <typename Enumeration>
  Enumeration read_enumerator() {
    return to_enumerator<Enumeration>(read_number());
  }
  Argument read_argument() { return read_alternative<0>(read_number()); }
  ArgumentList read_list() {
    const Level level(*this);
    ArgumentList list(read_count());
    for (Argument& argument : list) argument = read_argument();
    return list;
  }
  BoundSymbol read_symbol() {
    const Level level(*this);
    BoundSymbol symbol;
    symbol.op = at(archive_.operators_, read_number());
    symbol.arguments = read_list();
    symbol.results = read_list();
    const std::uint64_t file = read_number();
    symbol.location.file = file == 0 ? nullptr : at(archive_.files_, file - 1);
    symbol.location.line = static_cast<std::int32_t>(read_signed());
    symbol.comment = at(archive_.texts_, read_number());
    symbol.nested.resize(read_count());
    for (BoundSymbol& nested : symbol.nested) nested = read_symbol();
    return symbol;
  }
  Dim read_dim() {
    Dim dim(read_signed());
    const std::uint64_t expression = read_number();
    if (expression != 0) dim.expression = at(archive_.expressions_, expression - 1);
    return dim;
  }
  Dims read_dims() {
    Dims dims(read_count());
    for (Dim& dim : dims) dim = read_dim();
    return dims;
  }
  Type read_type() {
    const std::uint64_t kind = read_number();
    require(kind < std::variant_size_v<Type>, "no such kind of type");
    if (kind == 1) return read_enumerator<ScalarKind>();
    if (kind == 2) return ObjectType{std::string(read_text())};
    TensorType type;
    type.dtype = read_enumerator<Dtype>();
    type.device = read_content(std::in_place_type<Device>);
    type.layout = read_enumerator<Layout>();
    type.requires_grad = read_number() != 0;
    type.sizes = read_dims();
    type.strides = read_dims();
    type.storage_offset = read_dim();
    require(type.strides.size() == type.sizes.size(), "a tensor lacks strides");
    return type;
  }

 private:
  /// A level of nesting: lists in lists, symbols in symbols.
  class Level {
   public:
    explicit Level(Reader& reader) : reader_(reader) {
      require(++reader_.level_ <= kDeepest, "lists, or symbols, are nested too deeply");
    }
    ~Level() { --reader_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    static constexpr int kDeepest = 200;
    Reader& reader_;
  };

  template <std::size_t kKind>
  Argument read_alternative(std::uint64_t kind) {
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
  std::string read_content(std::in_place_type_t<std::string> /*type*/) { return at(archive_.texts_, read_number()); }
  Device read_content(std::in_place_type_t<Device> /*type*/) {
    Device device;
    device.type = read_enumerator<DeviceType>();
    device.index = static_cast<decltype(device.index)>(read_signed());
    return device;
  }
  ObjectConstant read_content(std::in_place_type_t<ObjectConstant> /*type*/) { return {read_small()}; }
  Dim read_content(std::in_place_type_t<Dim> /*type*/) { return read_dim(); }
  ArgumentList read_content(std::in_place_type_t<ArgumentList> /*type*/) { return read_list(); }
  template <typename Enumeration>
    requires std::is_enum_v<Enumeration>
  Enumeration read_content(std::in_place_type_t<Enumeration> /*type*/) {
    return read_enumerator<Enumeration>();
  }

  const TraceArchive& archive_;
  int level_ = 0;
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
    index_->types_by_content.emplace(hash_value(*type), i);
  });
  number(texts_, [&](const std::string& text, std::uint32_t i) { index_->texts.emplace(text, i); });
  number(files_, [&](const std::string* file, std::uint32_t i) { index_->files.emplace(file, i); });
  number(expressions_, [&](const SizeExpression* one, std::uint32_t i) { index_->expressions.emplace(one, i); });
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
  const std::size_t hash = hash_value(*type);
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

std::uint32_t TraceArchive::number_of(const SizeExpression* expression) {
  if (const auto known = index_->expressions.find(expression); known != index_->expressions.end()) return known->second;
  for (const SizeExpression* part : parts_of(*expression)) number_of(part);
  const auto number = static_cast<std::uint32_t>(expressions_.size());
  expressions_.push_back(expression);
  index_->expressions.emplace(expression, number);
  return number;
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
  writer.write_number(static_cast<std::uint64_t>(trace.kind()));
  writer.write_number(trace.kind() == TraceKind::kPart ? number_of_text(trace.name()) : trace.segment());
  writer.write_number(trace.history().size());
  for (const std::string& step : trace.history()) writer.write_number(number_of_text(step));
  writer.write_number(trace.inputs.size());
  for (const ValueId id : trace.inputs) writer.write_number(index_of(id));
  writer.write_number(trace.memory_of_inputs.size());
  for (const std::uint32_t memory : trace.memory_of_inputs) writer.write_number(memory);
  writer.write_number(trace.conditions.size());
  for (const auto& [kind, left, right] : trace.conditions) {
    writer.write_number(static_cast<std::uint64_t>(kind));
    writer.write(left);
    writer.write(right);
  }
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
  const std::shared_ptr<TraceContext>& context = at(contexts_, reader.read_number());
  const auto kind = reader.read_enumerator<TraceKind>();
  const std::uint32_t name = reader.read_small();
  Trace trace = kind == TraceKind::kPart ? Trace(at(texts_, name), context) : Trace(kind, context, name);
  for (const StoredValue& value : values) {
    trace.add_value(value.type == 0 ? nullptr : at(types_, value.type - 1), at(texts_, value.name));
  }
  for (std::size_t steps = reader.read_count(); steps > 0; --steps) trace.add_history(at(texts_, reader.read_number()));
  trace.inputs.resize(reader.read_count());
  for (ValueId& id : trace.inputs) id = ValueId{reader.read_small()};
  trace.memory_of_inputs.resize(reader.read_count());
  for (std::uint32_t& memory : trace.memory_of_inputs) memory = reader.read_small();
  trace.conditions.resize(reader.read_count());
  for (auto& [kind, left, right] : trace.conditions) {
    kind = reader.read_enumerator<Condition::Kind>();
    left = reader.read_dim();
    right = reader.read_dim();
  }
  trace.outputs = reader.read_list();
  std::size_t left = reader.read_count();
  trace.symbols.reserve(left);
  for (std::uint64_t number = 0; left > 0; --left) {
    number += static_cast<std::uint64_t>(reader.read_signed());
    require(number < symbol_ends_.size(), "there are fewer symbols");
    trace.add(Reader(*this, symbol_bytes(static_cast<std::uint32_t>(number++))).read_symbol());
  }
  return trace;
}

std::vector<Trace> TraceArchive::restore_all() const {
  std::vector<Trace> traces;
  for (std::size_t i = 0; i < size(); ++i) traces.push_back(restore(i));
  return traces;
}

void TraceArchive::write(ByteWriter& writer) const {
  require(contexts_.size() <= 1, "traces of several contexts are written together");
  const auto write_table = [&](const auto& table, const auto& write_item) {
    writer.write_number(table.size());
    for (const auto& item : table) write_item(item);
  };
  const auto write_text = [&](const std::string& text) { writer.write_text(text); };
  // Types may have expressions that no symbol has.
  TraceArchive numbering;
  numbering.expressions_ = expressions_;
  numbering.build_index();
  std::string types;
  Writer type_writer(numbering, types);
  for (const TypePtr& type : types_) type_writer.write(*type);

  write_table(numbering.expressions_, [&](const SizeExpression* expression) {
    write_expression(writer, *expression, [&](const SizeExpression* part) { return numbering.number_of(part); });
  });
  write_table(operators_, [&](const Operator* op) {
    writer.write_text(op->name);
    writer.write_text(op->overload);
    writer.write_number(static_cast<std::uint64_t>(op->style));
    writer.write_text(schema_of(*op));
  });
  writer.write_number(types_.size());
  writer.write_text(types);
  write_table(texts_, write_text);
  write_table(files_, [&](const std::string* file) { writer.write_text(*file); });
  writer.write_text(symbols_);
  write_table(symbol_ends_, [&](std::uint32_t end) { writer.write_number(end); });
  write_table(stages_, write_text);
}

namespace {

const Operator* read_operator(ByteReader& reader, FindOperator find_operator) {
  const std::string name(reader.read_text());
  const std::string overload(reader.read_text());
  const auto style = to_enumerator<CallStyle>(reader.read_number());
  const std::string_view schema = reader.read_text();
  const Operator* op = find_operator(name, overload);
  if (op == nullptr) {
    throw UserError(ErrorKind::kValue, "expected an operator that is known here, got " + name +
                                           (overload.empty() ? "" : "." + overload) +
                                           "; import the module that defines it first");
  }
  if (op->style != style || schema_of(*op) != schema) {
    throw UserError(ErrorKind::kValue, "expected " + schema_of(*op) + " as here, got " + std::string(schema));
  }
  return op;
}

}  // namespace

TraceArchive TraceArchive::read(ByteReader& reader, FindOperator find_operator,
                                const std::shared_ptr<TraceContext>& context) {
  TraceArchive archive;
  archive.contexts_ = {context};
  const auto read_table = [&](const auto& read_item) {
    for (std::size_t left = reader.read_count(); left > 0; --left) read_item();
  };
  read_table([&] { archive.expressions_.push_back(read_expression(reader, archive.expressions_)); });
  read_table([&] { archive.operators_.push_back(read_operator(reader, find_operator)); });
  const std::size_t type_count = reader.read_count();
  Reader types(archive, reader.read_text());
  for (std::size_t i = 0; i < type_count; ++i) archive.types_.push_back(make_type(types.read_type()));
  read_table([&] { archive.texts_.emplace_back(reader.read_text()); });
  read_table([&] { archive.files_.push_back(context->intern(reader.read_text())); });
  archive.symbols_ = reader.read_text();
  read_table([&] {
    const std::uint32_t begin = archive.symbol_ends_.empty() ? 0 : archive.symbol_ends_.back();
    archive.symbol_ends_.push_back(reader.read_small());
    require(begin <= archive.symbol_ends_.back() && archive.symbol_ends_.back() <= archive.symbols_.size(),
            "a symbol has no bytes");
  });
  read_table([&] { archive.stages_.emplace_back(reader.read_text()); });
  return archive;
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
