# The compiled form without CMake: one source includes fovea/compiled.hpp, another one uses it, and a
# third one, which is header-only, is in the same program. A source with other flags does not link.
cmake_minimum_required(VERSION 3.24)
file(MAKE_DIRECTORY ${WORK})
file(WRITE ${WORK}/fovea.cpp "#include <fovea/compiled.hpp>\n")
# object(name source flag...): compiles a source for this machine.
function(object name source)
  execute_process(COMMAND ${COMPILER} -std=c++20 -O0 -march=native ${ARGN}
      -I ${INCLUDE} -isystem ${EIGEN} -c ${source} -o ${WORK}/${name}.o
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()
object(library ${WORK}/fovea.cpp -DFOVEA_NATIVE_ONLY -DFOVEA_COMPILED -DFOVEA_COMPILED_BITS=32)
object(app ${SOURCE}/app.cpp -DFOVEA_NATIVE_ONLY -DFOVEA_COMPILED)
object(header_only ${SOURCE}/object/forward.cpp -DFOVEA_NATIVE_ONLY)
execute_process(COMMAND ${COMPILER} ${WORK}/app.o ${WORK}/header_only.o ${WORK}/library.o
    -pthread -o ${WORK}/app
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${WORK}/app COMMAND_ERROR_IS_FATAL ANY)
object(other_flags ${SOURCE}/app.cpp -DFOVEA_COMPILED)
execute_process(COMMAND ${COMPILER} ${WORK}/other_flags.o ${WORK}/library.o -pthread -o ${WORK}/app
  RESULT_VARIABLE refused ERROR_VARIABLE text)
if(NOT refused OR NOT text MATCHES "undefined reference to .*fovea::v0_1")
  message(FATAL_ERROR "a source with different flags was accepted: ${text}")
endif()
