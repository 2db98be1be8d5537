# Each kernel body of FOLDER compiles alone: what an editor sees of it has no error.
file(GLOB bodies ${INCLUDE}/fovea/${FOLDER}/*.inl.hpp)
list(FILTER bodies EXCLUDE REGEX "/(bodies|each_level)\\.inl\\.hpp$")
list(LENGTH bodies count)
if(count LESS 3)
  message(FATAL_ERROR "only ${count} bodies in ${FOLDER}")
endif()
foreach(body IN LISTS bodies)
  # Included, not named: compilers warn of a main file that asks to be included once.
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I ${INCLUDE} -include ${body}
                          -x c++ /dev/null
    RESULT_VARIABLE failed ERROR_VARIABLE errors)
  if(failed)
    message(FATAL_ERROR "${body} does not compile alone:\n${errors}")
  endif()
endforeach()
message(STATUS "${count} bodies")
