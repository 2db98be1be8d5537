# What `cmake --install` puts down: the headers, the CMake package and the pkg-config files, all of
# them relocatable and independent of the architecture, hence in share/; and the compiled form,
# if it was built, in lib/.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(FOVEA_CMAKE_DIR ${CMAKE_INSTALL_DATADIR}/cmake/fovea)
set(FOVEA_PKGCONFIG_DIR ${CMAKE_INSTALL_DATADIR}/pkgconfig)

install(TARGETS fovea EXPORT foveaTargets
  FILE_SET HEADERS FILE_SET bodies FILE_SET optional)
install(EXPORT foveaTargets NAMESPACE fovea:: DESTINATION ${FOVEA_CMAKE_DIR})

# By themselves: without the components nothing asks for FFTW, nlohmann_json or MPI.
install(TARGETS fovea_fftw EXPORT foveaFftwTargets)
install(EXPORT foveaFftwTargets NAMESPACE fovea:: DESTINATION ${FOVEA_CMAKE_DIR})
install(FILES cmake/FindFFTW3.cmake DESTINATION ${FOVEA_CMAKE_DIR})
install(TARGETS fovea_io EXPORT foveaIoTargets)
install(EXPORT foveaIoTargets NAMESPACE fovea:: DESTINATION ${FOVEA_CMAKE_DIR})
install(TARGETS fovea_mpi EXPORT foveaMpiTargets)
install(EXPORT foveaMpiTargets NAMESPACE fovea:: DESTINATION ${FOVEA_CMAKE_DIR})

if(FOVEA_INSTALL_COMPILED)
  # Who only wants the headers need not build anything first.
  install(TARGETS fovea_compiled fovea_compiled_32 fovea_compiled_64 EXPORT foveaCompiledTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
  install(EXPORT foveaCompiledTargets NAMESPACE fovea:: DESTINATION ${FOVEA_CMAKE_DIR})
endif()

set(FOVEA_COMPILED_DIR ${CMAKE_INSTALL_LIBDIR})
configure_package_config_file(cmake/foveaConfig.cmake.in foveaConfig.cmake
  INSTALL_DESTINATION ${FOVEA_CMAKE_DIR}
  PATH_VARS FOVEA_COMPILED_DIR
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(foveaConfigVersion.cmake
  COMPATIBILITY SameMinorVersion
  ARCH_INDEPENDENT)
install(FILES cmake/foveaBuildType.cmake
  ${PROJECT_BINARY_DIR}/foveaConfig.cmake ${PROJECT_BINARY_DIR}/foveaConfigVersion.cmake
  DESTINATION ${FOVEA_CMAKE_DIR})

# The way from the .pc file to the prefix, so that the prefix can be moved.
file(RELATIVE_PATH FOVEA_PC_TO_PREFIX /prefix/${FOVEA_PKGCONFIG_DIR} /prefix)
configure_file(cmake/fovea.pc.in fovea.pc @ONLY)
configure_file(cmake/fovea-fftw.pc.in fovea-fftw.pc @ONLY)
configure_file(cmake/fovea-io.pc.in fovea-io.pc @ONLY)
if(FOVEA_INSTALL_COMPILED)
  set(FOVEA_LIB_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH FOVEA_LIB_PC_TO_PREFIX /prefix/${FOVEA_LIB_PKGCONFIG_DIR} /prefix)
  configure_file(cmake/fovea-compiled.pc.in fovea-compiled.pc @ONLY)
  # Only with its libraries, which are OPTIONAL above.
  install(CODE "
    if(EXISTS \"$<TARGET_FILE:fovea_compiled_32>\" AND EXISTS \"$<TARGET_FILE:fovea_compiled_64>\")
      file(INSTALL \"${PROJECT_BINARY_DIR}/fovea-compiled.pc\"
        DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${FOVEA_LIB_PKGCONFIG_DIR}\")
    endif()")
endif()
install(FILES ${PROJECT_BINARY_DIR}/fovea.pc ${PROJECT_BINARY_DIR}/fovea-fftw.pc
  ${PROJECT_BINARY_DIR}/fovea-io.pc DESTINATION ${FOVEA_PKGCONFIG_DIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/fovea)
