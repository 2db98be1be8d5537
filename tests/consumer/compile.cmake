# compile(FLAGS result output): the front end's answer to SOURCE, before which HEADERS are included if
# that is set.
cmake_minimum_required(VERSION 3.24)
list(TRANSFORM EIGEN PREPEND -isystem)
if(HEADERS)
  set(first -include ${HEADERS})
endif()
function(compile flags result output)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  execute_process(COMMAND ${COMPILER} ${flags} -fsyntax-only -I${INCLUDE} ${EIGEN} ${first} ${SOURCE}
    RESULT_VARIABLE code OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${result} ${code} PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()
