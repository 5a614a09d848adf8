# What tests of tests/ and lab/ share.
find_package(Python3 COMPONENTS Interpreter)

# The tests run the CPU kernels that a sanitizer looks at. libgomp's barriers are invisible to ThreadSanitizer: there
# kernels must not share work between threads.
set(test_environment "")
if(ISOBAR_SANITIZE)
  set(test_environment ENVIRONMENT ISOBAR_MAX_ISA=${ISOBAR_SANITIZED_ISA})
  if(ISOBAR_SANITIZE MATCHES "thread")  # not a second entry above: catch_discover_tests would lose it
    list(APPEND test_environment ENVIRONMENT_MODIFICATION OMP_NUM_THREADS=set:1)
  endif()
endif()
if(ISOBAR_VIRTUAL_GPU)  # what lives as long as a thread or the program is not freed when a test program ends
  set(test_environment ENVIRONMENT ISOBAR_VIRTUAL_GPU_MAY_LEAK=1)
endif()

# Two gates (docs/testing.md). scripts/test runs what every change has to pass. scripts/test --all runs the long ones
# too: those of the tests' own instruments, of launchers, and those that show again, in another place, what a quicker
# one shows. Programs that only they need are built with the target long_gate.
add_custom_target(long_gate)
function(belongs_to_long_gate)
  set_property(TEST ${ARGV} APPEND PROPERTY LABELS long)
endfunction()
function(built_for_long_gate)
  set_target_properties(${ARGV} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  add_dependencies(long_gate ${ARGV})
endfunction()

# Tests that cannot run here exit with this status. Later versions of Catch2 set one of their own for the tests that
# they find, unless SKIP_IS_FAILURE is given, which earlier ones ignore.
set(skips SKIP_RETURN_CODE 77)
