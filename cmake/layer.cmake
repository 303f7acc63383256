# gapless_layer(NAME SRCS a.cc b.cc [TESTS a_test.cc ...] DEPS lower layers and libraries)
#
# One static library `gapless_NAME` per folder of src/, and one test program `NAME_test` of its *_test.cc files (beside the
# sources). Headers are included from src/, e.g. "base/check.h".
function(gapless_layer name)
  cmake_parse_arguments(ARG "" "" "SRCS;TESTS;DEPS;TEST_DEPS" ${ARGN})
  add_library(gapless_${name} STATIC ${ARG_SRCS})
  target_include_directories(gapless_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(gapless_${name} PUBLIC ${ARG_DEPS})
  if(GAPLESS_BUILD_TESTS AND ARG_TESTS)
    gapless_test(${name}_test SRCS ${ARG_TESTS} DEPS gapless_${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# gapless_test(NAME SRCS ... DEPS ... [ARGS ...] [LABELS quick|full])
function(gapless_test name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest GTest::gtest_main)
  # What is tested keeps the preset's optimisation; a test itself runs once, and -O2 would be a quarter of its compilation.
  target_compile_options(${name} PRIVATE -Og)
  target_compile_definitions(${name} PRIVATE GAPLESS_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS quick)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()
