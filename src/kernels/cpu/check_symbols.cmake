# Fails if a file that is compiled for a wider instruction set defines a function that other files could share: the linker may pick its
# copy for everybody, and the program then dies on a smaller CPU.
#   cmake -DNM=nm "-DOBJECTS=a.o;b.o" -P check_symbols.cmake
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "/(avx|neon)[^/]*$")
    continue()
  endif()
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL " [TWi] [^\n]+" shared "${symbols}")
  foreach(symbol IN LISTS shared)
    message(SEND_ERROR "${object} defines${symbol}")
  endforeach()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no object of an instruction set among: ${OBJECTS}")
endif()
message(STATUS "${checked} objects define no shared function")
