# The headers must define no macro but FOVEA_*: what <fovea/fovea.hpp> defines is compared with
# what the headers of Eigen and std that it includes define without it.
cmake_minimum_required(VERSION 3.24)
list(TRANSFORM EIGEN PREPEND -isystem)

# macros_after(source list): the names of the macros that are defined after the source.
function(macros_after source list)
  file(WRITE macros.cpp "${source}")
  execute_process(COMMAND ${COMPILER} -std=c++20 -I${INCLUDE} ${EIGEN} -E -dM macros.cpp
    OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "#define [A-Za-z0-9_]+" names "${text}")
  list(TRANSFORM names REPLACE "#define " "")
  set(${list} ${names} PARENT_SCOPE)
endfunction()

set(others "")
file(GLOB_RECURSE headers ${INCLUDE}/*.hpp)
foreach(header IN LISTS headers)
  file(STRINGS ${header} lines REGEX "^#include <")
  list(APPEND others ${lines})
endforeach()
list(REMOVE_DUPLICATES others)
set(reference "")
foreach(line IN LISTS others)
  string(REGEX MATCH "<(.*)>" name "${line}")
  string(APPEND reference "#if __has_include(${name})\n${line}\n#endif\n")
endforeach()
# Not for every user: only the header that asks for them includes these.
string(REGEX REPLACE "#if __has_include\\(<(omp|oneapi|arm_neon|fftw3|nlohmann|mpi)[^\n]*\n[^\n]*\n#endif\n" ""
       reference "${reference}")

macros_after("${reference}" before)
macros_after("#include <fovea/fovea.hpp>\n" after)
list(REMOVE_ITEM after ${before})
list(LENGTH after count)
list(FILTER after EXCLUDE REGEX "^FOVEA_[A-Z0-9_]+$")
if(after)
  message(FATAL_ERROR "macros that leak from fovea: ${after}")
elseif(count LESS 10)
  message(FATAL_ERROR "only ${count} macros of fovea were found, so this test checks nothing")
endif()
