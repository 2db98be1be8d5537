# Finds FFTW 3, of which Debian ships no CMake package and upstream a broken one.
#
#   find_package(FFTW3 COMPONENTS double float)      without components: double
#
# Each component becomes upstream's target: FFTW3::fftw3 for double, FFTW3::fftw3f for float. Looks
# at targets that exist, then asks pkg-config, then looks for files. Sets FFTW3_FOUND,
# FFTW3_<component>_FOUND and, if it is known, FFTW3_VERSION.

if(NOT FFTW3_FIND_COMPONENTS)
  set(FFTW3_FIND_COMPONENTS double)
  set(FFTW3_FIND_REQUIRED_double TRUE)
endif()

find_package(PkgConfig QUIET)
foreach(component IN LISTS FFTW3_FIND_COMPONENTS)
  if(component STREQUAL "double")
    set(fftw3_name fftw3)
  elseif(component STREQUAL "float")
    set(fftw3_name fftw3f)
  else()
    continue()  # left not found
  endif()

  if(NOT TARGET FFTW3::${fftw3_name} AND PkgConfig_FOUND)
    pkg_check_modules(FFTW3_PC_${fftw3_name} QUIET IMPORTED_TARGET ${fftw3_name})
    if(FFTW3_PC_${fftw3_name}_FOUND)
      add_library(FFTW3::${fftw3_name} INTERFACE IMPORTED)
      target_link_libraries(FFTW3::${fftw3_name} INTERFACE PkgConfig::FFTW3_PC_${fftw3_name})
      set(FFTW3_VERSION ${FFTW3_PC_${fftw3_name}_VERSION})
    endif()
  endif()

  if(NOT TARGET FFTW3::${fftw3_name})
    find_path(FFTW3_INCLUDE_DIR fftw3.h)
    find_library(FFTW3_${component}_LIBRARY NAMES ${fftw3_name} lib${fftw3_name}-3)
    mark_as_advanced(FFTW3_INCLUDE_DIR FFTW3_${component}_LIBRARY)
    if(FFTW3_INCLUDE_DIR AND FFTW3_${component}_LIBRARY)
      add_library(FFTW3::${fftw3_name} UNKNOWN IMPORTED)
      set_target_properties(FFTW3::${fftw3_name} PROPERTIES
        IMPORTED_LOCATION ${FFTW3_${component}_LIBRARY}
        INTERFACE_INCLUDE_DIRECTORIES ${FFTW3_INCLUDE_DIR})
    endif()
  endif()

  if(TARGET FFTW3::${fftw3_name})
    set(FFTW3_${component}_FOUND TRUE)
  endif()
endforeach()
unset(fftw3_name)

include(FindPackageHandleStandardArgs)
set(FFTW3_TARGETS ${FFTW3_FIND_COMPONENTS})
find_package_handle_standard_args(FFTW3
  REQUIRED_VARS FFTW3_TARGETS
  VERSION_VAR FFTW3_VERSION
  HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "On Debian: apt-get install libfftw3-dev. Elsewhere: put FFTW 3, built for float and for double, on CMAKE_PREFIX_PATH.")
