# The name of the inline namespace must differ wherever flags or macros make other code, and be short,
# since compilers print it in every message.
cmake_minimum_required(VERSION 3.24)
set(builds
  "-march=x86-64" "-mssse3 -msse4.2" "-mavx" "-mavx2" "-mavx2 -mfma" "-mavx2 -mf16c" "-mavx -mfma"
  "-mavx -mf16c" "-march=x86-64-v3" "-mavx512f" "-march=x86-64-v3 -mavx512f" "-march=x86-64-v4"
  "-march=x86-64-v4 -mno-fma" "-march=x86-64-v4 -mno-f16c" "-march=x86-64-v4 -mavx512vnni")
file(WRITE tag.cpp "#include <fovea/core/config.hpp>\nFOVEA_TAG\n")
set(seen "")
foreach(build IN LISTS builds)
  foreach(macros "" "-DFOVEA_NATIVE_ONLY" "-DFOVEA_COMPILED"
          "-DFOVEA_NATIVE_ONLY -DFOVEA_COMPILED")
    separate_arguments(flags UNIX_COMMAND "${build} ${macros}")
    execute_process(COMMAND ${COMPILER} -std=c++20 -I${INCLUDE} ${flags} -E -P tag.cpp
      OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCH "\n(v[0-9]+_[0-9]+[a-z]*)\n*$" match "${text}")
    set(tag "${CMAKE_MATCH_1}")
    string(LENGTH "${tag}" length)
    if(NOT match OR length GREATER 10)
      message(FATAL_ERROR "${build} ${macros}: the name is too long or empty: '${tag}'")
    endif()
    # Flags that imply one another may be one build.
    execute_process(COMMAND ${COMPILER} -std=c++20 ${flags} -E -dM -x c++ /dev/null
      OUTPUT_VARIABLE macros_of COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "__(SSE4_2|AVX[0-9A-Z]*|FMA|F16C)__|FOVEA_[A-Z_]+" of "${macros_of}")
    list(SORT of)
    list(JOIN of " " of)
    if(DEFINED "of_${tag}" AND NOT "${of_${tag}}" STREQUAL "${of}")
      message(FATAL_ERROR "${tag} names two builds:\n${of_${tag}}\n${of}")
    endif()
    set("of_${tag}" "${of}")
    list(APPEND seen ${tag})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES seen)
list(LENGTH seen count)
if(count LESS 40)
  message(FATAL_ERROR "only ${count} names, so this test checks nothing")
endif()
message(STATUS "${count} names, such as ${seen}")
