# SOURCE must compile with FLAGS.
include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
compile("${FLAGS}" code text)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${SOURCE} failed with ${FLAGS}:\n${text}")
endif()
