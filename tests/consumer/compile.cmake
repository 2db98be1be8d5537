# compile(FLAGS result output): the front end's answer to SOURCE.
cmake_minimum_required(VERSION 3.24)
list(TRANSFORM EIGEN PREPEND -isystem)
function(compile flags result output)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  execute_process(COMMAND ${COMPILER} ${flags} -fsyntax-only -I${INCLUDE} ${EIGEN} ${SOURCE}
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${result} ${code} PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()
