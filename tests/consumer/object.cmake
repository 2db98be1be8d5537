# Compiles SOURCE as users do and looks at the object: it must have at most MOST_KB KB of code (of 1000
# bytes) and MOST_FUNCTIONS functions (empty: any number); with FORWARD no symbol of a pass, family,
# scalar or storage that a forward pass of floats does not call. With PLANTED, a macro, it must be
# found to hold one.
cmake_minimum_required(VERSION 3.24)
separate_arguments(flags UNIX_COMMAND "${FLAGS}")
set(object ${CMAKE_CURRENT_BINARY_DIR}/object_${NAME}.o)
execute_process(COMMAND ${COMPILER} -std=c++20 ${flags} -I ${INCLUDE} -isystem ${EIGEN}
    -c ${SOURCE} -o ${object}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} -C --defined-only ${object}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE ";" "," symbols "${symbols}")
string(REPLACE "\n" ";" symbols "${symbols}")
set(other "softmax_grad|SoftmaxGrad|packed_rows|scaled_rows|sink_grad")   # backward
string(APPEND other "|Decoder|RetainedKeys")  # decoding
string(APPEND other "|linear_|Linear|delta_|Delta|::gather<|Gather|sketch|Sketch|normal_density")
string(APPEND other "|LayerKernels|gelu|normalise")
string(APPEND other "|Storage\\)[12]|bfloat16|float16|(baseline|v3|v4)::.*double")
set(found ${symbols})
list(FILTER found INCLUDE REGEX "fovea::.*(${other})")
if(PLANTED)
  if(NOT found)
    message(FATAL_ERROR "inserted ${PLANTED}, but it was not found in: ${symbols}")
  endif()
  return()
endif()
if(FORWARD AND found)
  list(JOIN found "\n" found)
  message(FATAL_ERROR "a float forward pass contains\n${found}")
endif()
set(kernels ${symbols})
list(FILTER kernels INCLUDE REGEX "fovea::.*softmax_block")
if(FORWARD AND NOT kernels)
  message(FATAL_ERROR "no kernel was found")
endif()
list(FILTER symbols INCLUDE REGEX "^[0-9a-f]+ [TtWu] ")
list(LENGTH symbols functions)
execute_process(COMMAND ${SIZE} ${object} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "\n *([0-9]+)" text "${text}")
math(EXPR kilobytes "(${CMAKE_MATCH_1} + 999) / 1000")
message(STATUS "${kilobytes} KB of code in ${functions} functions")
if(MOST_KB AND kilobytes GREATER MOST_KB)
  message(FATAL_ERROR "${SOURCE} has ${kilobytes} KB of code, more than ${MOST_KB}")
endif()
if(MOST_FUNCTIONS AND functions GREATER MOST_FUNCTIONS)
  message(FATAL_ERROR "${SOURCE} has ${functions} functions, more than ${MOST_FUNCTIONS}")
endif()
