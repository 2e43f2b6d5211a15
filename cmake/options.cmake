# `thunder_options`: warnings and sanitizers of our own sources.
add_library(thunder_options INTERFACE)
target_compile_options(thunder_options INTERFACE -Wall -Wextra -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of std::string's own inline functions where they come from a precompiled header.
  target_compile_options(thunder_options INTERFACE -Wno-array-bounds -Wno-restrict -Wno-stringop-overread
                                                   -Wno-stringop-overflow)
endif()
if(THUNDER_WARNINGS_AS_ERRORS AND NOT THUNDER_SANITIZE)  # instrumented code is warned about for nothing
  target_compile_options(thunder_options INTERFACE -Werror)
endif()

if(THUNDER_SANITIZE)
  if(NOT THUNDER_SANITIZE MATCHES "^(address|undefined|thread)$")
    message(FATAL_ERROR "THUNDER_SANITIZE: expected address, undefined or thread, got ${THUNDER_SANITIZE}")
  endif()
  # GCC reports false positives of these two when it also instruments.
  target_compile_options(thunder_options INTERFACE -fsanitize=${THUNDER_SANITIZE} -fno-omit-frame-pointer -g1
                                                   -Wno-maybe-uninitialized -Wno-stringop-overflow)
  target_link_options(thunder_options INTERFACE -fsanitize=${THUNDER_SANITIZE})
  if(THUNDER_SANITIZE STREQUAL "undefined")
    target_compile_options(thunder_options INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
  set(runtime_address asan)
  set(runtime_undefined ubsan)
  set(runtime_thread tsan)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=lib${runtime_${THUNDER_SANITIZE}}.so OUTPUT_VARIABLE runtime
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libstdc++.so.6 OUTPUT_VARIABLE standard_library
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  # To be preloaded where the executable is not ours, as Python is not. The sanitizer intercepts C++ exceptions, so the
  # library that throws them comes along.
  set(THUNDER_SANITIZE_RUNTIME "${runtime}:${standard_library}" CACHE INTERNAL "")
endif()
