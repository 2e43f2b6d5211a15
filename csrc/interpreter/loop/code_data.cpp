#include "interpreter/loop/code_data.h"

#include <algorithm>
#include <cstring>

#include "interpreter/python/python_ref.h"

namespace thunder::interpreter {

namespace {

#if PY_VERSION_HEX >= 0x030b0000
/// Reads one number of an exception table: six bits a byte, the highest first; bit 6 says that more follow.
int read_number(const unsigned char*& position) {
  int value = *position & 63;
  while ((*position++ & 64) != 0) value = (value << 6) | (*position & 63);
  return value;
}
#endif

}  // namespace

int CodeData::prepare() {
  if (slot_ >= 0) return 0;
  slot_ = request_code_slot([](void* data) { delete static_cast<CodeData*>(data); });
  if (slot_ >= 0) return 0;
  PyErr_SetString(PyExc_RuntimeError, "thunder.interpreter: no free slot in code objects");
  return -1;
}

CodeData* CodeData::create(PyCodeObject* code) {
  const py::Ref bytecode = py::Ref::steal(original_bytecode(code));
  if (!bytecode) return nullptr;
  auto data = std::make_unique<CodeData>();
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(bytecode.get()));
  data->instructions_ = std::make_unique<Instruction[]>(size / sizeof(Instruction) + 1);
  std::memcpy(data->instructions_.get(), PyBytes_AS_STRING(bytecode.get()), size);
  data->read_exception_table(code);
  constexpr int kPlain = CO_OPTIMIZED | CO_NEWLOCALS;
  constexpr int kSpecial = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
  data->simple_function_ = (code->co_flags & (kPlain | kSpecial)) == kPlain && code->co_kwonlyargcount == 0;
  if (set_code_slot(code, slot_, data.get()) < 0) return nullptr;
  return data.release();
}

void CodeData::read_exception_table([[maybe_unused]] PyCodeObject* code) {
#if PY_VERSION_HEX >= 0x030b0000
  PyObject* table = code->co_exceptiontable;
  const auto* position = reinterpret_cast<const unsigned char*>(PyBytes_AS_STRING(table));
  const auto* end = position + PyBytes_GET_SIZE(table);
  while (position < end) {
    ExceptionRegion region{};
    region.start = read_number(position);
    region.end = region.start + read_number(position);
    region.handler = read_number(position);
    const int depth_and_flag = read_number(position);
    region.depth = depth_and_flag >> 1;
    region.push_last_instruction = (depth_and_flag & 1) != 0;
    regions_.push_back(region);
  }
#endif
}

const ExceptionRegion* CodeData::find_region(int offset) const {
  // The compiler emits disjoint regions in ascending order.
  const auto after = std::upper_bound(regions_.begin(), regions_.end(), offset,
                                      [](int value, const ExceptionRegion& region) { return value < region.start; });
  if (after == regions_.begin()) return nullptr;
  const ExceptionRegion& region = *std::prev(after);
  return offset < region.end ? &region : nullptr;
}

}  // namespace thunder::interpreter
