# Precompiles HEADERS next to the file, where GCC and Clang look first for -include HEADERS.
cmake_minimum_required(VERSION 3.24)
list(TRANSFORM EIGEN PREPEND -isystem)
execute_process(
  COMMAND ${COMPILER} -std=c++20 -DFOVEA_COMPILED -I${INCLUDE} ${EIGEN}
          -x c++-header ${HEADERS} -o ${HEADERS}.gch
  COMMAND_ERROR_IS_FATAL ANY)
