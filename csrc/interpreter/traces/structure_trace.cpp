#include <string>
#include <utility>

#include "interpreter/traces/guard_primitives.h"
#include "interpreter/traces/guard_trace.h"
#include "ir/builder.h"

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
    for (const Effect& effect : structure_.effects()) write_effect(effect);
    trace_.outputs = {value_of(structure_.result())};
    return std::move(trace_);
  }

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

}  // namespace

ir::Trace epilogue_trace(const Structure& structure) { return EpilogueWriter(structure).write(); }

}  // namespace thunder::interpreter
