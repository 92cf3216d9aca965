# The bundled kernels against references computed on the host. No doctest: it goes on for minutes and reports as it goes.
add_executable(kernel_check kernel_check.cpp kernel_on_gpu.cpp kernel_problems.cpp kernel_references.cpp)
target_link_libraries(kernel_check PRIVATE jitune_settings jitune_all_rooms jitune_cuda_headers)
target_compile_definitions(kernel_check PRIVATE JITUNE_SOURCE_DIR="${JITUNE_TEST_SOURCE_DIR}")
add_dependencies(gpu_tests kernel_check)
add_dependencies(nvrtc_tests kernel_check)
if(TARGET jitune-worker)
  add_dependencies(kernel_check jitune-worker)
endif()

add_test(NAME kernel_check COMMAND kernel_check WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(kernel_check PROPERTIES LABELS gpu TIMEOUT 900 RUN_SERIAL ON)
add_test(NAME kernels_compile COMMAND kernel_check --without-gpu --arch sm_90,sm_80 --sample 1
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
set_tests_properties(kernels_compile PROPERTIES LABELS nvrtc TIMEOUT 300)
set_tests_properties(kernel_check kernels_compile PROPERTIES
  SKIP_REGULAR_EXPRESSION "\\[jitune\\] whole test skipped")

# That it can fail, on the stand-in for the driver.
if(TARGET jitune_fake_cuda)
  jitune_test(kernel_check_notices LABELS nvrtc SOURCES kernel_check_test.cpp)
  add_dependencies(test_kernel_check_notices kernel_check jitune_fake_cuda)
  target_compile_definitions(test_kernel_check_notices PRIVATE JITUNE_KERNEL_CHECK="$<TARGET_FILE:kernel_check>"
    JITUNE_FAKE_CUDA_DIR="$<TARGET_FILE_DIR:jitune_fake_cuda>")
endif()
