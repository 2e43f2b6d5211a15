#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace thunder::ir {

/// Conversions of object constants, which are opaque here, by a layer that knows them.
struct ConstantStorage {
  /// Bytes that stand for an object; nullopt: it means nothing outside of this process.
  std::function<std::optional<std::string>(const TraceContext::Object&)> store;
  /// The owner of an object of this kind that `store` stored.
  std::function<std::shared_ptr<void>(ObjectKind kind, std::string_view bytes)> load;
  /// An object that consists of operations on values of `trace`, which uses it, as a trace; nullopt: it does not.
  std::function<std::optional<Trace>(const TraceContext::Object&, const Trace& trace)> store_part{};
  /// The owner of an object of this kind that `store_part` made this of.
  std::function<std::shared_ptr<void>(ObjectKind kind, const Trace& part)> load_part{};
};

// Traces as bytes, which hold data alone: nothing in them is ever run, and what is read is checked.
//
//   8 bytes "thundrtr", 4 of the version, 8 of the payload's size, 8 of its FNV-1a checksum, all little-endian;
//   then the payload: how many traces, the object constants, and a TraceArchive (`trace_archive.h`) of the traces and
//   of those that objects are made of. Numbers are in groups of seven bits
//   (`base/bytes.h`); texts and tables begin with their length; enumerators are their numbers. Operators stand by name,
//   overload and schema, without defaults, which are among the arguments.
//
// An object that cannot be stored is a hole: its kind and description stay, its owner is null, and what needs it says
// so. Objects keep their numbers, so that the loaded trace prints as the stored one.

inline constexpr std::uint32_t kSerializationVersion = 3;

/// The traces share one context.
[[nodiscard]] std::string serialize(std::span<const Trace> traces, const ConstantStorage& storage = {});

/// The traces, verified, in a context of their own. Throws UserError that says what is wrong with bytes which are
/// damaged, were cut off, or have another version; which name an operator that `find_operator` does not know or knows
/// with another schema; or that hold an object which this machine has not.
[[nodiscard]] std::vector<Trace> deserialize(std::string_view bytes, FindOperator find_operator,
                                             const ConstantStorage& storage = {});

/// A constant of a trace that was not stored, and a line that uses it.
struct Hole {
  ObjectConstant object;
  SourceLocation location;
};
/// Those that symbols and outputs of the trace use, by number.
[[nodiscard]] std::vector<Hole> holes_of(const Trace& trace);

}  // namespace thunder::ir
