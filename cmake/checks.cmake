# Targets that look at the sources: check_format, header_times, doxygen. clang-tidy runs with the compiler
# where CMAKE_CXX_CLANG_TIDY is set, as the preset `dev` does.
find_program(FOVEA_CLANG_FORMAT NAMES clang-format-14 clang-format)
if(FOVEA_CLANG_FORMAT)
  file(GLOB_RECURSE FOVEA_SOURCES CONFIGURE_DEPENDS
    include/*.hpp tests/*.hpp tests/*.cpp bench/*.hpp bench/*.cpp examples/*.hpp examples/*.cpp)
  add_custom_target(check_format
    COMMAND ${FOVEA_CLANG_FORMAT} --dry-run -Werror ${FOVEA_SOURCES}
    COMMENT "Checking formatting with clang-format" VERBATIM)
endif()

add_custom_target(header_times
  COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/header_times.sh ${CMAKE_CXX_COMPILER}
          ${PROJECT_SOURCE_DIR}/include
          "-isystem$<JOIN:$<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>, -isystem>"
  COMMENT "Measuring the compile time of each header at -O2" USES_TERMINAL VERBATIM)

include(${CMAKE_CURRENT_LIST_DIR}/doxygen.cmake)

# Seconds, memory and code size of small programs, compared with one that uses Eigen.
add_custom_target(compile_times
  COMMAND bash ${PROJECT_SOURCE_DIR}/bench/compile_times/run.sh ${CMAKE_CXX_COMPILER}
          ${PROJECT_SOURCE_DIR}/include
          $<JOIN:$<TARGET_PROPERTY:Eigen3::Eigen,INTERFACE_INCLUDE_DIRECTORIES>,$<SEMICOLON>>
          3 ${PROJECT_BINARY_DIR}/compile_times.json
  COMMENT "Measuring compile times of small programs, alternating with one that uses Eigen" USES_TERMINAL VERBATIM)
