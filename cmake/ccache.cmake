# Compiles through ccache where it is installed. The sloppiness is what ccache's manual asks for with precompiled headers.
find_program(THUNDER_CCACHE ccache)
if(THUNDER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;${THUNDER_CCACHE}")
endif()
