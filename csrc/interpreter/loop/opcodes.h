// The table of the running Python: THUNDER_OPCODE(opcode, handler, inline cache units). Included once per use.

#if PY_VERSION_HEX >= 0x030d0000
#include "interpreter/loop/opcodes_3_13.h"
#elif PY_VERSION_HEX >= 0x030c0000
#include "interpreter/loop/opcodes_3_12.h"
#elif PY_VERSION_HEX >= 0x030b0000
#include "interpreter/loop/opcodes_3_11.h"
#else
#include "interpreter/loop/opcodes_3_10.h"
#endif
#undef THUNDER_OPCODE
