# deepinfer_cuda(): the kernels of the room `cuda`, if nvcc and the static runtime are here; without them the room says so.
# nvcc is called by itself: kernels share no device code between files, so there is nothing to link, and CMake's own CUDA
# support would hand the flags of the C++ compiler to nvcc. The driver is looked for when the program runs.
option(DEEPINFER_CUDA "Build the CUDA backend where nvcc is found" ON)
set(DEEPINFER_CUDA_ARCHITECTURES "90a;100a" CACHE STRING "GPU architectures to make code for")
set(DEEPINFER_CUDA_FOUND OFF)
if(DEEPINFER_CUDA)
  find_program(NVCC nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  get_filename_component(nvcc_folder "${NVCC}" REALPATH)
  get_filename_component(nvcc_folder "${nvcc_folder}/../.." ABSOLUTE)
  find_path(CUDART_INCLUDE cuda_runtime_api.h PATHS ${nvcc_folder}/include ${nvcc_folder}/targets/x86_64-linux/include)
  find_library(CUDART_LIBRARY cudart_static PATHS ${nvcc_folder}/lib ${nvcc_folder}/lib64 ${nvcc_folder}/targets/x86_64-linux/lib)
  if(NVCC AND CUDART_INCLUDE AND CUDART_LIBRARY)
    # An older nvcc, or one that does not know this compiler, must not fail the build of everything else.
    file(WRITE ${CMAKE_BINARY_DIR}/cuda/probe.cu "#include <string>\n__global__ void kernel() {}\nvoid run() { kernel<<<1, 1>>>(); }\n")
    set(probe -std=c++20 --compress-mode=size -I${CUDART_INCLUDE})
    foreach(architecture ${DEEPINFER_CUDA_ARCHITECTURES})
      list(APPEND probe -gencode arch=compute_${architecture},code=sm_${architecture})
    endforeach()
    execute_process(COMMAND ${NVCC} ${probe} -c ${CMAKE_BINARY_DIR}/cuda/probe.cu -o ${CMAKE_BINARY_DIR}/cuda/probe.o
                    RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(failed)
      message(STATUS "CUDA backend: ${NVCC} cannot compile for ${DEEPINFER_CUDA_ARCHITECTURES} (12.8 or newer is needed): ${output}")
    else()
      set(DEEPINFER_CUDA_FOUND ON)
    endif()
  endif()
endif()
message(STATUS "CUDA backend: ${DEEPINFER_CUDA_FOUND}")

function(deepinfer_cuda)
  set(runtime cuda_device.cc graphs.cc staging.cc)
  set(left_out ${runtime})
  if(DEEPINFER_CUDA_FOUND)
    set(left_out cuda_absent.cc)
  endif()
  list(TRANSFORM left_out PREPEND ${CMAKE_SOURCE_DIR}/src/cuda/)
  set_source_files_properties(${left_out} PROPERTIES HEADER_FILE_ONLY ON)
  if(NOT DEEPINFER_CUDA_FOUND)
    return()
  endif()
  # -fmad=false: fused multiply-add is written out where it is meant, as everywhere. Warnings 20012 and 20014 are about bodies
  # for host and device that take a functor for the device only.
  set(flags -std=c++20 -O3 -fmad=false --extended-lambda --compress-mode=size -DDI_ISA_NS=cuda_isa -diag-suppress 20012,20014 -Werror all-warnings
      -I${CMAKE_SOURCE_DIR}/src -isystem ${CUDART_INCLUDE}
      -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers,-fPIC,-march=x86-64-v3,-ffp-contract=off,-fvisibility=hidden)
  foreach(architecture ${DEEPINFER_CUDA_ARCHITECTURES})
    list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cuda/*.cu)
  foreach(kernel ${kernels})
    get_filename_component(name ${kernel} NAME)
    set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} DEPENDS ${kernel} DEPFILE ${object}.d COMMENT "Building CUDA object ${name}.o"
                       COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
                       COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${NVCC} ${flags} -MD -MF ${object}.d -c ${kernel} -o ${object}
                       VERBATIM COMMAND_EXPAND_LISTS)
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
    target_sources(di_cuda PRIVATE ${object})
  endforeach()
  target_include_directories(di_cuda SYSTEM PRIVATE ${CUDART_INCLUDE})
  target_link_libraries(di_cuda PUBLIC ${CUDART_LIBRARY} ${CMAKE_DL_LIBS} rt)
endfunction()
