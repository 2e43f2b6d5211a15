#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "interpreter/traces/guard_primitives.h"
#include "interpreter/traces/guard_trace.h"
#include "ir/builder.h"
#include "ir/printer.h"

namespace thunder::interpreter {
namespace {

ir::TypePtr object_type() { return ir::make_type(ir::ObjectType{"object"}); }

class EpilogueWriter {
 public:
  explicit EpilogueWriter(const Structure& structure)
      : structure_(structure),
        trace_(ir::TraceKind::kEpilogue, std::make_shared<ir::TraceContext>()),
        values_(structure.parts().size()),
        made_(structure.parts().size()) {
    outputs_ = trace_.add_input(object_type(), "outputs");
    inputs_ = trace_.add_input(object_type(), "inputs");
    externals_ = trace_.add_input(object_type(), "externals");
  }

  ir::Trace write() {
    for (const Effect& effect : structure_.effects()) {
      write_effect(effect);
      effects_.push_back(trace_.symbols.size() - 1);
    }
    trace_.outputs = {value_of(structure_.result())};
    return std::move(trace_);
  }
  /// After `write`: where in the trace each effect stands, and for each part what stands for it.
  [[nodiscard]] const std::vector<std::size_t>& effects() const { return effects_; }
  [[nodiscard]] const std::vector<ir::Argument>& values() const { return values_; }

 private:
  ir::Argument call(std::string_view name, ir::ArgumentList arguments) {
    return ir::add_call(trace_, *primitive(name), std::move(arguments), object_type());
  }
  void perform(std::string_view name, ir::ArgumentList arguments) {
    ir::add_symbol(trace_, *primitive(name), std::move(arguments), {});
  }
  ir::Argument constant(py::Borrowed object) { return to_argument(object, *trace_.context()); }
  ir::Argument value_of(std::uint32_t index) {
    if (!made_[index]) {
      made_[index] = true;
      values_[index] = make(structure_.parts()[index]);
    }
    return values_[index];
  }
  ir::ArgumentList values_of(const StructurePart& part, std::size_t begin, std::size_t end) {
    ir::ArgumentList list;
    for (std::size_t i = begin; i < end; ++i) list.push_back(value_of(part.children[i]));
    return list;
  }
  ir::Argument make(const StructurePart& part);
  ir::Argument make_instance(const StructurePart& part);
  void write_effect(const Effect& effect);

  const Structure& structure_;
  ir::Trace trace_;
  ir::Argument outputs_, inputs_, externals_;
  std::vector<ir::Argument> values_;
  std::vector<bool> made_;
  std::vector<std::size_t> effects_;
};

ir::Argument EpilogueWriter::make_instance(const StructurePart& part) {
  const std::size_t items = part.children.size() - part.attributes.size() - part.slots.size();
  ir::ArgumentList names;
  for (const py::Ref& name : part.attributes) names.push_back(constant(name.get()));
  for (const py::Ref& name : part.slots) names.push_back(constant(name.get()));
  return call("make_instance", {constant(part.object.get()), values_of(part, 0, items), std::move(names),
                                values_of(part, items, part.children.size())});
}

ir::Argument EpilogueWriter::make(const StructurePart& part) {
  const auto index = static_cast<std::int64_t>(part.index);
  const auto all = [&] { return values_of(part, 0, part.children.size()); };
  switch (part.kind) {
    case PartKind::kConstant:
      return constant(part.object.get());
    case PartKind::kOutput:
      return call("get_item", {outputs_, index});
    case PartKind::kInput:
      return call("get_item", {inputs_, index});
    case PartKind::kExternal:
      return call("get_item", {externals_, index});
    case PartKind::kTuple:
      return call("make_tuple", {all()});
    case PartKind::kList:
      return call("make_list", {all()});
    case PartKind::kDict:
      return call(part.object ? "make_ordered_dict" : "make_dict", {all()});
    case PartKind::kSet:
      return call("make_set", {all()});
    case PartKind::kFrozenSet:
      return call("make_frozenset", {all()});
    case PartKind::kSlice:
      return call("make_slice", {all()});
    case PartKind::kMethod:
      return call("make_method", {all()});
    case PartKind::kInstance:
      return make_instance(part);
    case PartKind::kCell:
      return call("make_cell", {all()});
    case PartKind::kFunction:
      return call("make_function", {constant(part.object.get()), all()});
    case PartKind::kCall:
      return call("make_call", {all()});
    case PartKind::kCopy:
      return call("make_copy", {constant(part.object.get())});
  }
  return {};
}

void EpilogueWriter::write_effect(const Effect& effect) {
  const ir::Argument owner = value_of(effect.owner);
  const ir::Argument key = has_key(effect.kind) ? value_of(effect.key) : ir::Argument();
  const ir::Argument value = has_value(effect.kind) ? value_of(effect.value) : ir::Argument();
  switch (effect.kind) {
    case EffectKind::kSetItem:
      return perform("set_item", {owner, key, value});
    case EffectKind::kDeleteItem:
      return perform("delete_item", {owner, key});
    case EffectKind::kSetListItem:
      return perform("set_item", {owner, static_cast<std::int64_t>(effect.index), value});
    case EffectKind::kExtendList:
    case EffectKind::kExtendDeque:
      return perform("extend", {owner, value});
    case EffectKind::kReplaceDict:
    case EffectKind::kReplaceList:
    case EffectKind::kReplaceSet:
    case EffectKind::kReplaceDeque:
      return perform("replace_contents", {owner, value});
    case EffectKind::kAddMember:
      return perform("add_member", {owner, key});
    case EffectKind::kDiscardMember:
      return perform("discard_member", {owner, key});
    case EffectKind::kSetCell:
      return perform("set_cell", {owner, value});
    case EffectKind::kClearCell:
      return perform("clear_cell", {owner});
    case EffectKind::kSetSlot:
      return perform("set_slot", {owner, key, value});
    case EffectKind::kDeleteSlot:
      return perform("delete_slot", {owner, key});
    case EffectKind::kCall:
      return perform("call", {owner, key, value});
  }
}

[[noreturn]] void refuse_change(const std::string& what) {
  throw UserError(ErrorKind::kValue,
                  "the epilogue: expected an edit that removes writes, stores outputs that were added, or returns "
                  "another of its values, got " +
                      what);
}

}  // namespace

ir::Trace epilogue_trace(const Structure& structure) { return EpilogueWriter(structure).write(); }

/// Reads a changed epilogue.
class EpilogueReader {
 public:
  EpilogueReader(const Structure& structure, const ir::Trace& before, const ir::Trace& after, const AddedOutputs& added)
      : result_(structure), effects_(structure.effects()), before_(before), after_(after), added_(added) {
    EpilogueWriter writer(structure);
    static_cast<void>(writer.write());
    places_ = writer.effects();
    for (std::size_t part = 0; part < writer.values().size(); ++part) {
      if (const auto* id = writer.values()[part].get<ir::ValueId>()) {
        parts_.emplace(index_of(*id), static_cast<std::uint32_t>(part));
      }
    }
  }

  Structure read() {
    result_.effects_.clear();
    for (const ir::BoundSymbol& symbol : after_.symbols) {
      const auto known = std::find_if(before_.symbols.begin() + next_, before_.symbols.end(), [&](const auto& each) {
        return each.op == symbol.op && ir::identical(each.arguments, symbol.arguments) &&
               each.results == symbol.results;
      });
      if (known == before_.symbols.end()) {
        add_new(symbol);
        continue;
      }
      next_ = known - before_.symbols.begin() + 1;
      const auto effect = std::ranges::find(places_, static_cast<std::size_t>(next_ - 1));
      if (effect != places_.end()) result_.effects_.push_back(effects_[effect - places_.begin()]);
    }
    if (after_.outputs.size() != 1) refuse_change(std::to_string(after_.outputs.size()) + " outputs");
    if (!(after_.outputs == before_.outputs)) result_.result_ = part_of(after_.outputs[0]);
    return std::move(result_);
  }

 private:
  std::uint32_t add(StructurePart part) {
    result_.parts_.push_back(std::move(part));
    return static_cast<std::uint32_t>(result_.parts_.size() - 1);
  }
  std::uint32_t part_of(const ir::Argument& argument) {
    StructurePart part;
    if (const auto* id = argument.get<ir::ValueId>()) {
      const auto known = parts_.find(index_of(*id));
      if (known == parts_.end()) refuse_change("an input of its own as a value");
      return known->second;
    }
    if (argument.get<ir::None>() != nullptr) {
      part.object = py::Ref::share(Py_None);
    } else if (const auto* text = argument.get<std::string>()) {
      part.object = py::Ref::steal(PyUnicode_FromStringAndSize(text->data(), static_cast<Py_ssize_t>(text->size())));
    } else if (const auto* object = argument.get<ir::ObjectConstant>()) {
      const auto owner = after_.context()->owner_of(*object, ir::ObjectKind::kPythonObject);
      part.object = py::Ref::share(static_cast<PyObject*>(owner.get()));
    } else {
      refuse_change("a constant of its own as a value");
    }
    return add(std::move(part));
  }
  void add_new(const ir::BoundSymbol& symbol) {
    if (symbol.op == primitive("call")) {
      Effect effect{EffectKind::kCall, part_of(symbol.arguments[0])};
      effect.key = part_of(symbol.arguments[1]);
      effect.value = part_of(symbol.arguments[2]);
      result_.effects_.push_back(effect);
      return;
    }
    StructurePart part;
    if (symbol.op == primitive("get_item")) {
      const auto* index = symbol.arguments[1].get<std::int64_t>();
      const auto added = index == nullptr ? added_.end() : added_.find(*index);
      if (added == added_.end()) refuse_change(ir::print(symbol, after_));
      part.kind = PartKind::kOutput;
      part.index = added->second;
    } else if (symbol.op == primitive("make_tuple") || symbol.op == primitive("make_dict")) {
      part.kind = symbol.op == primitive("make_tuple") ? PartKind::kTuple : PartKind::kDict;
      for (const ir::Argument& item : *symbol.arguments[0].get<ir::ArgumentList>()) {
        part.children.push_back(part_of(item));
      }
    } else {
      refuse_change(ir::print(symbol, after_));
    }
    parts_[index_of(*symbol.results[0].get<ir::ValueId>())] = add(std::move(part));
  }

  Structure result_;
  std::vector<Effect> effects_;
  const ir::Trace& before_;
  const ir::Trace& after_;
  const AddedOutputs& added_;
  std::vector<std::size_t> places_;  ///< where the effects stand in `before_`
  std::unordered_map<std::uint32_t, std::uint32_t> parts_;
  std::ptrdiff_t next_ = 0;
};

Structure changed_structure(const Structure& structure, const ir::Trace& before, const ir::Trace& after,
                            const AddedOutputs& added) {
  return EpilogueReader(structure, before, after, added).read();
}

}  // namespace thunder::interpreter
