#include "ir/builder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ir/layout.h"

namespace thunder::ir {
namespace {

std::string_view strip(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

/// The parts of `text` between commas that stand in no bracket.
std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (depth > 0 || c != ',') continue;
    if (const std::string_view part = strip(text.substr(begin, i - begin)); !part.empty()) parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

Argument parse_constant(std::string_view text) {
  if (text == "None") return None{};
  if (text == "True") return true;
  if (text == "False") return false;
  if (text.starts_with('[')) {
    ArgumentList elements;
    for (const std::string_view part : split(text.substr(1, text.size() - 2))) elements.push_back(parse_constant(part));
    return elements;
  }
  std::int64_t integer = 0;
  const char* end = text.data() + text.size();
  if (const auto [rest, error] = std::from_chars(text.data(), end, integer); error == std::errc{} && rest == end) {
    return integer;
  }
  double number = 0;
  if (const auto [rest, error] = std::from_chars(text.data(), end, number); error == std::errc{} && rest == end) {
    return number;
  }
  if (text == "contiguous_format") return MemoryFormat::kContiguous;
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'')) text = text.substr(1, text.size() - 2);
  return std::string(text);
}

/// `Tensor(a!)[] name=default`; the name may be missing.
SchemaValue parse_value(std::string_view text) {
  SchemaValue value;
  const std::size_t annotation = text.find('(');
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos) {
    value.default_value = parse_constant(strip(text.substr(equals + 1)));
    text = strip(text.substr(0, equals));
  }
  if (annotation != std::string_view::npos && annotation < text.size()) {
    const std::size_t close = text.find(')', annotation);
    value.alias_set = text.substr(annotation + 1, close - annotation - 1);
    value.mutated = value.alias_set.ends_with('!');
    if (value.mutated) value.alias_set.pop_back();
    if (const std::size_t arrow = value.alias_set.find(" ->"); arrow != std::string::npos) {
      value.alias_set.resize(arrow);
    }
    value.type = text.substr(0, annotation);
    text.remove_prefix(close + 1);
  }
  const std::size_t space = text.find(' ');
  value.type += text.substr(0, space);
  if (space != std::string_view::npos) value.name = strip(text.substr(space));
  return value;
}

void require(bool condition, std::string_view schema) {
  THUNDER_CHECK(condition, "ir/builder", "not a schema: " + std::string(schema));
}

}  // namespace

Operator parse_operator(std::string_view schema, CallStyle style) {
  const std::size_t open = schema.find('(');
  const std::size_t arrow = schema.rfind(") -> ");
  require(open != std::string_view::npos && arrow != std::string_view::npos && open <= arrow, schema);
  Operator op;
  op.style = style;
  const std::string_view full_name = schema.substr(0, open);
  const std::size_t dot = full_name.find('.');
  op.name = full_name.substr(0, dot);
  if (dot != std::string_view::npos) op.overload = full_name.substr(dot + 1);

  bool keyword_only = false;
  for (const std::string_view part : split(schema.substr(open + 1, arrow - open - 1))) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    op.parameters.push_back(parse_value(part));
    op.parameters.back().keyword_only = keyword_only;
  }
  std::string_view results = strip(schema.substr(arrow + 5));
  if (results.starts_with('(')) results = results.substr(1, results.size() - 2);
  for (const std::string_view part : split(results)) op.results.push_back(parse_value(part));

  op.mutates = std::ranges::any_of(op.parameters, &SchemaValue::mutated);
  op.view = std::ranges::any_of(op.results,
                                [](const SchemaValue& result) { return !result.alias_set.empty() && !result.mutated; });
  return op;
}

std::string schema_of(const Operator& op) {
  const auto append = [](std::string& text, const SchemaValue& value) {
    const std::string alias = value.mutated || !value.alias_set.empty()
                                  ? "(" + value.alias_set + (value.mutated ? "!)" : ")")
                                  : std::string();
    const std::size_t brackets = std::min(value.type.find('['), value.type.size());
    text.append(value.type, 0, brackets).append(alias).append(value.type, brackets);
    if (!value.name.empty()) text.append(" ").append(value.name);
  };
  std::string text = op.name + (op.overload.empty() ? "" : "." + op.overload) + "(";
  std::string_view separator;
  bool keyword_only = false;
  for (const SchemaValue& parameter : op.parameters) {
    text += std::exchange(separator, ", ");
    if (parameter.keyword_only && !std::exchange(keyword_only, true)) text += "*, ";
    append(text, parameter);
  }
  text += ") -> (";
  separator = {};
  for (const SchemaValue& result : op.results) {
    text += std::exchange(separator, ", ");
    append(text, result);
  }
  return text += ")";
}

TypePtr tensor_type(Dtype dtype, Dims sizes, Device device) {
  TensorType type;
  type.dtype = dtype;
  type.device = device;
  type.strides = contiguous_strides(sizes);
  type.sizes = std::move(sizes);
  return make_type(std::move(type));
}

BoundSymbol& add_symbol(Trace& trace, const Operator& op, ArgumentList arguments, ArgumentList results) {
  for (std::size_t i = arguments.size(); i < op.parameters.size(); ++i) {
    const std::optional<Argument>& value = op.parameters[i].default_value;
    THUNDER_CHECK(value.has_value(), "ir/builder", op.name + " needs its argument " + op.parameters[i].name);
    arguments.push_back(*value);
  }
  BoundSymbol symbol;
  symbol.op = &op;
  symbol.arguments = std::move(arguments);
  symbol.results = std::move(results);
  return trace.add(std::move(symbol));
}

ValueId add_call(Trace& trace, const Operator& op, ArgumentList arguments, TypePtr type, std::string name,
                 SourceLocation location) {
  const ValueId result = trace.add_value(std::move(type), std::move(name));
  ArgumentList results;
  results.emplace_back(result);
  add_symbol(trace, op, std::move(arguments), std::move(results)).location = std::move(location);
  return result;
}

}  // namespace thunder::ir
