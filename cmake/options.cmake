# `thunder_options`: warnings and sanitizers of our own sources.
add_library(thunder_options INTERFACE)
target_compile_options(thunder_options INTERFACE -Wall -Wextra -Wno-psabi)
if(THUNDER_WARNINGS_AS_ERRORS)
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
endif()
