# Installs BUILD into a prefix and moves it to PREFIX.
cmake_minimum_required(VERSION 3.24)
file(REMOVE_RECURSE ${PREFIX} ${PREFIX}-before)
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}-before
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${PREFIX}-before ${PREFIX})

# Every header must be there, the bodies too.
file(GLOB_RECURSE sources RELATIVE ${INCLUDE} ${INCLUDE}/*.hpp)
file(GLOB_RECURSE installed RELATIVE ${PREFIX}/include ${PREFIX}/include/*)
if(NOT sources STREQUAL installed)
  message(FATAL_ERROR "sources:   ${sources}\ninstalled: ${installed}")
endif()
