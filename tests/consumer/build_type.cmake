# FOLDER, configured without a build type, must say in one line that kernels will not be optimised if
# LINES is 1, and nothing of it if LINES is 0, or with a build type or a flag that optimises.
cmake_minimum_required(VERSION 3.24)
separate_arguments(OPTIONS UNIX_COMMAND "${OPTIONS}")
unset(ENV{CXXFLAGS})
unset(ENV{CMAKE_BUILD_TYPE})
file(REMOVE_RECURSE ${WORK})
function(expect lines)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/${FOLDER} -B ${WORK}
      -DCMAKE_CXX_COMPILER=${COMPILER} ${ARGN}
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX MATCHALL "-- fovea: [^\n]*without optimisation[^\n]*Release[)]\n" found "${output}")
  list(LENGTH found count)
  if(failed OR NOT count EQUAL lines)
    message(FATAL_ERROR "${FOLDER} with '${ARGN}': ${count} lines instead of ${lines}:\n${output}")
  endif()
endfunction()
expect(${LINES} ${OPTIONS})
if(LINES)
  expect(1 -DCMAKE_CXX_FLAGS=-O0)
  expect(0 -DCMAKE_CXX_FLAGS= -DCMAKE_BUILD_TYPE=Debug)
  expect(0 "-DCMAKE_CXX_FLAGS=-g -O2" -DCMAKE_BUILD_TYPE=)
endif()
