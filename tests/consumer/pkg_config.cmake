# Compiles SOURCE with the bare compiler and what pkg-config says of PACKAGE, and runs it; with kernels
# for this machine alone unless FLAGS says otherwise.
cmake_minimum_required(VERSION 3.24)
find_program(PKG_CONFIG NAMES pkg-config pkgconf REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${PREFIX}/share/pkgconfig:${PREFIX}/lib/pkgconfig:${PREFIX}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${PKG_CONFIG} --cflags --libs "${PACKAGE} >= 0.1"
  OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
if(NOT DEFINED FLAGS)
  set(FLAGS -DFOVEA_NATIVE_ONLY)
endif()
execute_process(COMMAND ${COMPILER} -std=c++20 ${FLAGS} ${SOURCE} ${flags} -o ${PROGRAM}
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ./${PROGRAM} COMMAND_ERROR_IS_FATAL ANY)
