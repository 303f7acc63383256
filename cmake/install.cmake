# What `cmake --install` copies: the program, the library with its one header, the licences, and what find_package(gapless) reads.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# The layers below the library and itself as one archive: objects, because what is installed should not show how Gapless is divided.
# Whoever links it also needs the Rust archive beside it, fmt and spdlog; the configuration file finds them.
set(layers base device kernels model cache sampling worker scheduler engine library)
list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:gapless_\\1>" OUTPUT_VARIABLE objects)
add_library(gapless_archive STATIC ${objects})
set_target_properties(gapless_archive PROPERTIES
  OUTPUT_NAME gapless EXPORT_NAME gapless LINKER_LANGUAGE CXX)
target_compile_features(gapless_archive INTERFACE cxx_std_20)
target_include_directories(gapless_archive INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(gapless_archive PRIVATE gapless_text_ffi spdlog::spdlog fmt::fmt Threads::Threads)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gapless)
configure_package_config_file(cmake/gaplessConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/gaplessConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/gaplessConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS gapless)
install(TARGETS gapless_archive EXPORT gapless)
get_target_property(rust_archive gapless_text_ffi IMPORTED_LOCATION)
install(FILES ${rust_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/gapless DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT gapless NAMESPACE gapless:: FILE gaplessTargets.cmake DESTINATION ${package_dir})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/gaplessConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/gaplessConfigVersion.cmake
  DESTINATION ${package_dir})
