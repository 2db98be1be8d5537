# One line for a project that compiles fovea's kernels without optimisation: neither its build type,
# nor its flags, nor the options of its directory ask for any.
function(fovea_say_if_unoptimised)
  get_directory_property(options COMPILE_OPTIONS)
  string(JOIN " " flags ${CMAKE_CXX_FLAGS} ${options})
  if(CMAKE_BUILD_TYPE OR CMAKE_CONFIGURATION_TYPES OR flags MATCHES "(^| )-O([1-9sg]|fast)?( |$)")
    return()
  endif()
  message(STATUS "fovea: no build type is set, so kernels will be compiled without optimisation "
                 "(to optimise them: -DCMAKE_BUILD_TYPE=Release)")
endfunction()
