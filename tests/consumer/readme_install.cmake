# The commands of README.md must install what its find_package() finds, the component compiled too; and
# without the command that builds nothing of the component must be there, not its .pc file either.
# What is compiled is empty: that it can be linked is another test.
cmake_minimum_required(VERSION 3.24)
file(READ ${SOURCE}/README.md readme)
if(NOT readme MATCHES "CMake, installed:\\*\\*\n\n```sh\n([^`]*)\n```")
  message(FATAL_ERROR "README.md has no install commands")
endif()
string(REPLACE "\n" ";" commands "${CMAKE_MATCH_1}")

set(ENV{CXX} ${COMPILER})
set(ENV{Eigen3_DIR} ${EIGEN_DIR})
set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} ${CMAKE_CURRENT_LIST_DIR}/compile_nothing.sh)
# install_by(commands prefix): runs the commands in a separate directory.
function(install_by commands prefix)
  file(REMOVE_RECURSE ${WORK} ${prefix})
  file(MAKE_DIRECTORY ${WORK})
  foreach(command IN LISTS commands)
    string(REPLACE "cmake -B" "cmake -S ${SOURCE} -B" command "${command}")
    string(REPLACE "/some/where" "${prefix}" command "${command}")
    execute_process(COMMAND sh -c "${command}" WORKING_DIRECTORY ${WORK}
      OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endfunction()
# expect(found prefix): whether find_package() finds the component there, and its .pc file is there.
function(expect found prefix)
  set(ENV{CMAKE_CXX_COMPILER_LAUNCHER})
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/compiled -B ${WORK}/user
      -DCMAKE_PREFIX_PATH=${prefix}
    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  file(REMOVE_RECURSE ${WORK}/user)
  file(GLOB_RECURSE pc ${prefix}/*/fovea-compiled.pc)
  if(found AND (failed OR NOT pc))
    message(FATAL_ERROR "the README's commands do not install the compiled form: '${pc}'\n${output}")
  elseif(NOT found AND (NOT failed OR pc OR NOT output MATCHES "is not in this installation"))
    message(FATAL_ERROR "the compiled form is listed but was not built: '${pc}'\n${output}")
  endif()
endfunction()
install_by("${commands}" ${WORK}-prefix)
expect(TRUE ${WORK}-prefix)
list(FILTER commands EXCLUDE REGEX "cmake --build")
install_by("${commands}" ${WORK}-prefix)
expect(FALSE ${WORK}-prefix)
