# LIBRARY must export EXPORTED and nothing of fovea.
cmake_minimum_required(VERSION 3.24)
execute_process(COMMAND ${NM} -D -C --defined-only ${LIBRARY}
  OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES " ${EXPORTED}\n")
  message(FATAL_ERROR "${EXPORTED} was not found, so this test checks nothing\n${symbols}")
elseif(symbols MATCHES "fovea")
  message(FATAL_ERROR "${LIBRARY} exports these symbols of fovea:\n${symbols}")
endif()
