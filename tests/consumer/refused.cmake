# SOURCE must fail with FLAGS, saying MESSAGE in at most MOST_LINES, and compile with MENDED; the
# last two if they are set. The kernels' bodies are read only if -UFOVEA_COMPILED is among the
# flags: what is refused is refused before.
include(${CMAKE_CURRENT_LIST_DIR}/compile.cmake)
compile("-DFOVEA_COMPILED ${FLAGS}" code text)
if(code EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiled with ${FLAGS}")
elseif(NOT text MATCHES "${MESSAGE}")
  message(FATAL_ERROR "${SOURCE} failed with ${FLAGS}, but without the message '${MESSAGE}':\n${text}")
endif()
# Clang names the precompiled headers besides the source, which users do not see.
string(REGEX REPLACE "\nIn file included from [^\n]*headers_of_calls.hpp:" "" users "${text}")
string(REGEX MATCHALL "\n" lines "${users}")
list(LENGTH lines lines)
if(MOST_LINES AND lines GREATER MOST_LINES)
  message(FATAL_ERROR "${SOURCE} failed with ${FLAGS} in ${lines} lines:\n${text}")
endif()
if(MENDED)
  compile("-DFOVEA_COMPILED ${MENDED}" code text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${SOURCE} failed with ${MENDED}:\n${text}")
  endif()
endif()
