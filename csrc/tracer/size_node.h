#pragma once

#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/condition.h"
#include "ir/size.h"

namespace thunder::tracer {

/// Is told what code does with sizes. `SizeShadows` is the only implementation.
class SizeUses {
 public:
  SizeUses() = default;
  SizeUses(const SizeUses&) = delete;
  SizeUses& operator=(const SizeUses&) = delete;

  /// The program is for sizes that meet the condition, as those that were traced do.
  virtual void assume(const ir::Condition& condition) = 0;
  /// A size is divided by another one, which is not zero.
  virtual void require_divisor(const ir::Dim& divisor) = 0;
  /// The program has computed a size.
  virtual void note_expression(const ir::Dim& dim) = 0;
  /// Has the program run only for sizes at which 64 bits hold all that computing `dim` meets; false: they do not hold
  /// it with room to spare at the sizes that were traced.
  virtual bool keep_within_range(const ir::Dim& dim) = 0;
  /// The number is needed.
  virtual void pin_symbols_of(const ir::Dim& dim) = 0;

 protected:
  ~SizeUses() = default;
};

/// The recording that sizes belong to; null once it has ended.
struct SizeScope {
  SizeUses* shadows = nullptr;
};

/// A size of the program as code in C++ and Python gets it: an expression over the symbols, with the number that it is
/// at the sizes that were traced. Arithmetic gives other expressions, a comparison becomes a condition as soon as
/// somebody decides on it, and whoever needs the number pins the symbols.
class SizeNode final : public c10::SymNodeImpl {
 public:
  SizeNode(std::shared_ptr<SizeScope> scope, ir::Dim dim) : scope_(std::move(scope)), dim_(dim) {}

  [[nodiscard]] const ir::Dim& dim() const { return dim_; }
  [[nodiscard]] const std::shared_ptr<SizeScope>& scope() const { return scope_; }
  /// The number, which pins the symbols.
  std::int64_t look_at() const;

  bool is_int() override { return true; }
  bool is_bool() override { return false; }
  bool is_float() override { return false; }
  c10::SymNode clone() override;
  c10::SymNode wrap_int(std::int64_t number) override;
  c10::SymNode wrap_bool(bool value) override;
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode floordiv(const c10::SymNode& other) override;
  c10::SymNode int_floordiv(const c10::SymNode& other) override { return floordiv(other); }
  c10::SymNode mod(const c10::SymNode& other) override;
  c10::SymNode neg() override;
  c10::SymNode sym_min(const c10::SymNode& other) override;
  c10::SymNode sym_max(const c10::SymNode& other) override;
  c10::SymNode eq(const c10::SymNode& other) override;
  c10::SymNode ne(const c10::SymNode& other) override;
  c10::SymNode lt(const c10::SymNode& other) override;
  c10::SymNode le(const c10::SymNode& other) override;
  c10::SymNode gt(const c10::SymNode& other) override;
  c10::SymNode ge(const c10::SymNode& other) override;
  std::int64_t guard_int(const char* /*file*/, std::int64_t /*line*/) override { return look_at(); }
  std::int64_t int_() override { return look_at(); }
  bool has_hint() override { return true; }
  std::string str() override { return std::to_string(look_at()); }
  std::optional<std::int64_t> constant_int() override;
  std::optional<std::int64_t> maybe_as_int() override { return constant_int(); }

 private:
  /// The number of another node; one that is none of ours is looked at.
  static ir::Dim dim_of(const c10::SymNode& node);
  [[nodiscard]] c10::SymNode with(const ir::Dim& dim) const;

  std::shared_ptr<SizeScope> scope_;
  ir::Dim dim_;
};

/// The outcome of a comparison of sizes, with the conditions under which it stays the same.
class SizeDecision final : public c10::SymNodeImpl {
 public:
  SizeDecision(std::shared_ptr<SizeScope> scope, bool outcome, std::vector<ir::Condition> conditions)
      : scope_(std::move(scope)), outcome_(outcome), conditions_(std::move(conditions)) {}

  /// The outcome, which becomes a condition of the trace.
  bool decide() const;

  bool is_int() override { return false; }
  bool is_bool() override { return true; }
  bool is_float() override { return false; }
  c10::SymNode wrap_bool(bool value) override;
  c10::SymNode sym_and(const c10::SymNode& other) override;
  c10::SymNode sym_or(const c10::SymNode& other) override;
  c10::SymNode sym_not() override;
  bool guard_bool(const char* /*file*/, std::int64_t /*line*/) override { return decide(); }
  bool guard_size_oblivious(const char* /*file*/, std::int64_t /*line*/) override { return decide(); }
  bool guard_or_false(const char* /*file*/, std::int64_t /*line*/) override { return decide(); }
  bool guard_or_true(const char* /*file*/, std::int64_t /*line*/) override { return decide(); }
  bool expect_true(const char* /*file*/, std::int64_t /*line*/) override { return decide(); }
  bool statically_known_true(const char* /*file*/, std::int64_t /*line*/) override {
    return outcome_ && conditions_.empty();
  }
  bool bool_() override { return decide(); }
  bool has_hint() override { return true; }
  std::string str() override { return decide() ? "True" : "False"; }
  std::optional<bool> constant_bool() override;

 private:
  std::shared_ptr<SizeScope> scope_;
  bool outcome_;
  std::vector<ir::Condition> conditions_;
};

enum class SizeComparison : std::uint8_t { kLess, kLessOrEqual, kEqual, kNotEqual, kGreater, kGreaterOrEqual };

/// Whether a condition holds whatever the symbols are.
[[nodiscard]] bool is_certain(const ir::Condition& condition);
/// `left comparison right` at the sizes that were traced, and under which conditions it stays so.
struct Compared {
  bool outcome = false;
  std::vector<ir::Condition> conditions;
};
[[nodiscard]] Compared compare_sizes(const ir::Dim& left, SizeComparison comparison, const ir::Dim& right);
/// Whether the product of two sizes may be 2**50 or more, for sizes that tensors have.
[[nodiscard]] bool may_be_large(const ir::Dim& left, const ir::Dim& right);
/// Rounded towards minus infinity, or its remainder, of a divisor that is not zero.
[[nodiscard]] ir::Dim floor_remainder(const ir::Dim& left, const ir::Dim& right);

/// The node of ours behind a size; null: it is a number, or somebody else's.
[[nodiscard]] const SizeNode* size_node_of(const c10::SymInt& size);
/// A size as an expression; somebody else's is looked at.
[[nodiscard]] ir::Dim dim_of(const c10::SymInt& size);

}  // namespace thunder::tracer
