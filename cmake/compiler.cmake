# Enables C++, or says what to install.
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(FATAL_ERROR "thunder needs a compiler for C++20, g++ 11 or newer, and found none. On Debian: apt-get install g++. "
                      "Another one than the first on the path: CXX=/path/to/g++")
endif()
enable_language(CXX)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "thunder needs g++ 11 or newer, got ${CMAKE_CXX_COMPILER_VERSION} (${CMAKE_CXX_COMPILER}). Another one: "
                      "CXX=/path/to/g++")
endif()
