#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/trace.h"
#include "operators/facts.h"
#include "tracer/recording_host.h"

namespace thunder::tracer {

/// The trace in the making. Symbols are added at its end; some turn out later to be other ones.
class TraceBuilder {
 public:
  /// A place in the trace that moves with what lies behind it: at first the end.
  class Mark {
   public:
    explicit Mark(TraceBuilder& builder);
    ~Mark() { std::erase(builder_.marks_, this); }
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    [[nodiscard]] std::size_t position() const { return position_; }

   private:
    friend class TraceBuilder;
    TraceBuilder& builder_;
    std::size_t position_;
  };

  /// Goes on with a trace, mostly an empty one.
  TraceBuilder(ir::Trace trace, RecordingHost& host) : host_(host), trace_(std::move(trace)) {}

  [[nodiscard]] ir::Trace& trace() { return trace_; }
  [[nodiscard]] const ir::Trace& trace() const { return trace_; }
  /// The user's line for what is recorded now.
  [[nodiscard]] ir::SourceLocation location() const;
  /// Where the symbol comes from that is replayed, if any: symbols recorded meanwhile have its line.
  const ir::SourceLocation* replayed_location = nullptr;

  /// Adds a symbol as it is.
  ir::BoundSymbol& add(ir::BoundSymbol symbol);
  /// Adds a symbol with the user's line.
  ir::BoundSymbol& add_here(ir::BoundSymbol symbol);
  /// Takes the symbols from `begin` on out of the trace. Constants stay: the program may use them again.
  [[nodiscard]] std::vector<ir::BoundSymbol> cut(std::size_t begin);
  /// How many operations there are from `begin` on, without constants.
  [[nodiscard]] std::size_t operations_from(std::size_t begin) const;
  /// Where the last `count` operations begin, without constants.
  [[nodiscard]] std::size_t begin_of_last(std::size_t count) const;
  /// The position of the symbol that makes `value`; the end: none does.
  [[nodiscard]] std::size_t maker_of(ir::ValueId value) const;
  /// Lets the symbol at `position` make another value in the place of `value`, and gives that.
  ir::ValueId rename_result(std::size_t position, ir::ValueId value);
  void insert(std::size_t position, ir::BoundSymbol symbol);
  /// Moves what reads nothing, the symbols from `begin` on, to the front.
  void move_to_front(std::size_t begin);
  /// Puts `symbols` in the place of the one that made `result`, when the trace is read next.
  void replace(ir::ValueId result, std::vector<ir::BoundSymbol> symbols);
  /// Puts in place what is to be replaced.
  void settle();
  /// How often symbols have been put in before the end.
  [[nodiscard]] std::size_t edits() const { return edits_; }

  /// Whether an operator in the trace has one of these facts.
  [[nodiscard]] bool has_any(operators::FactSet facts);
  /// The trace with these outputs; a new one begins.
  [[nodiscard]] ir::Trace finish(ir::ArgumentList outputs);

 private:
  RecordingHost& host_;
  ir::Trace trace_;
  std::size_t edits_ = 0;
  std::optional<operators::FactSet> facts_ = operators::FactSet();                ///< none: to be found in the trace
  std::unordered_map<std::uint32_t, std::vector<ir::BoundSymbol>> replacements_;  ///< by index of the first result
  std::vector<Mark*> marks_;
};

}  // namespace thunder::tracer
