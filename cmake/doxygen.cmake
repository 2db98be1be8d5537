# The target `doxygen`: the API reference in doxygen/html of the build. A warning is an error; they are
# listed in doxygen_warnings.txt of the build.
find_program(FOVEA_DOXYGEN doxygen)
if(FOVEA_DOXYGEN)
  option(FOVEA_DOXYGEN_UNDOCUMENTED "Warn about public names without a comment" ON)
  if(FOVEA_DOXYGEN_UNDOCUMENTED)
    set(FOVEA_DOXYGEN_UNDOCUMENTED YES)
  else()
    set(FOVEA_DOXYGEN_UNDOCUMENTED NO)
  endif()
  file(GLOB pages ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/.github/*.md
    ${PROJECT_SOURCE_DIR}/include/fovea/*.md ${PROJECT_SOURCE_DIR}/include/fovea/*/*.md
    ${PROJECT_SOURCE_DIR}/examples/*.md ${PROJECT_SOURCE_DIR}/examples/*/*.md
    ${PROJECT_SOURCE_DIR}/bench/*.md
    ${PROJECT_SOURCE_DIR}/bench/*/*.md ${PROJECT_SOURCE_DIR}/tests/*.md
    ${PROJECT_SOURCE_DIR}/tests/*/*.md)
  list(TRANSFORM pages REPLACE "(.+)" "\"\\1\"")
  list(JOIN pages " " FOVEA_DOXYGEN_PAGES)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
  add_custom_target(doxygen
    COMMAND ${CMAKE_COMMAND} -E remove -f ${PROJECT_BINARY_DIR}/doxygen_warnings.txt
    COMMAND ${FOVEA_DOXYGEN} ${PROJECT_BINARY_DIR}/Doxyfile
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
    COMMENT "Doxygen; warnings in ${PROJECT_BINARY_DIR}/doxygen_warnings.txt" VERBATIM)
else()
  add_custom_target(doxygen
    COMMAND ${CMAKE_COMMAND} -E echo "doxygen was not found (Debian: apt-get install doxygen)"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
