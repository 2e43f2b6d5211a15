#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "ir/trace.h"

namespace thunder::ir {

/// Traces that descend from one another, in a fiftieth of their memory: equal symbols, types and texts are kept once,
/// and of values what differs from the trace before. A restored trace equals the one that was added; InternalError for
/// an archive that was read and holds something else than traces.
class TraceArchive {
 public:
  void add(const Trace& trace);
  [[nodiscard]] std::size_t size() const { return stages_.size(); }
  [[nodiscard]] bool empty() const { return stages_.empty(); }
  [[nodiscard]] Trace restore(std::size_t index) const;
  [[nodiscard]] std::vector<Trace> restore_all() const;
  /// Frees what only `add` needs, which builds it again.
  void shrink();

  /// Appends everything but the context, which all traces must share.
  void write(ByteWriter& writer) const;
  /// Reads what `write` wrote, into a context. Throws UserError where an operator is not known or has another schema,
  /// and InternalError for what is no archive.
  [[nodiscard]] static TraceArchive read(ByteReader& reader, FindOperator find_operator,
                                         const std::shared_ptr<TraceContext>& context);

 private:
  class Writer;
  class Reader;

  struct StoredValue {
    std::uint32_t type = 0;  ///< index + 1; 0: none
    std::uint32_t name = 0;
    friend bool operator==(const StoredValue&, const StoredValue&) = default;
  };
  using StoredValues = std::vector<StoredValue>;

  /// Tables that find an item that is there already. Types are held, so that no new one gets the address of an old one.
  struct Index {
    std::unordered_map<const Operator*, std::uint32_t> operators;
    std::unordered_map<TypePtr, std::uint32_t> types;
    std::unordered_multimap<std::size_t, std::uint32_t> types_by_content;
    std::unordered_map<std::string, std::uint32_t> texts;
    std::unordered_map<const std::string*, std::uint32_t> files;
    std::unordered_map<const SizeExpression*, std::uint32_t> expressions;
    std::unordered_multimap<std::size_t, std::uint32_t> symbols;
    StoredValues values;  ///< values of the last trace
  };

  void build_index();
  std::uint32_t number_of(const Operator* op);
  std::uint32_t number_of(const TypePtr& type);
  std::uint32_t number_of_text(const std::string& text);
  std::uint32_t number_of_file(const std::string* file);
  /// Numbers what it consists of first.
  std::uint32_t number_of(const SizeExpression* expression);
  std::uint32_t number_of_symbol(const BoundSymbol& symbol);
  std::uint32_t number_of_context(const std::shared_ptr<TraceContext>& context);
  [[nodiscard]] std::string_view symbol_bytes(std::uint32_t number) const;
  [[nodiscard]] StoredValues values_of(std::size_t index) const;

  std::vector<std::shared_ptr<TraceContext>> contexts_;
  std::vector<const Operator*> operators_;
  std::vector<TypePtr> types_;
  std::vector<std::string> texts_;
  std::vector<const std::string*> files_;  ///< owned by the contexts
  std::vector<const SizeExpression*> expressions_;
  std::string symbols_;
  std::vector<std::uint32_t> symbol_ends_;
  std::vector<std::string> stages_;
  std::unique_ptr<Index> index_;
};

}  // namespace thunder::ir
