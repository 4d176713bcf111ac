# Files compiled for more than the least machine. They share no inline function with other files (src/ops/portable/isa.h)
# and are entered only after a look at the processor (src/cpu/cpu_device.cc). GCC 12 calls the undefined-register
# intrinsics of its own AVX-512 header uninitialized.
set(avx512 "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mprefer-vector-width=512;-Wno-uninitialized;-Wno-maybe-uninitialized")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/kernels_avx512.cc PROPERTIES COMPILE_OPTIONS "${avx512}")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/kernels_avx512vnni.cc PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vnni")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/kernels_avx512gfni.cc PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vnni;-mgfni")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/rows_avx512.cc PROPERTIES COMPILE_OPTIONS "${avx512}")
# Vectors of 64 bytes inside one file.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/rows_avx2.cc PROPERTIES COMPILE_OPTIONS "-Wno-psabi")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/kernels_avx512amx.cc PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vnni;-mgfni")
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/cpu/kernels_amx.cc ${CMAKE_SOURCE_DIR}/src/cpu/emulated_tiles_test.cc
                            PROPERTIES COMPILE_OPTIONS "${avx512};-mavx512vnni")
