# What is built from the rooms: the program, the library, the examples, and the groups of targets the scripts ask for.
file(GLOB app_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/apps/*.cc)
add_executable(deepinfer ${app_sources})
target_include_directories(deepinfer PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(deepinfer PRIVATE di_lab di_server di_cluster CLI11::CLI11)
target_compile_definitions(deepinfer PRIVATE DEEPINFER_VERSION="${PROJECT_VERSION}")
# main.cc says in words that the processor is too old, so it must itself run on any x86-64.
set_source_files_properties(apps/main.cc PROPERTIES COMPILE_OPTIONS "-march=x86-64")
install(TARGETS deepinfer RUNTIME DESTINATION bin)
install(DIRECTORY models/tiny-v41 models/tokenizer models/eval DESTINATION share/deepinfer/models PATTERN training EXCLUDE)

# libdeepinfer: the C API over the room host; only its functions are visible.
target_include_directories(di_host PUBLIC ${CMAKE_SOURCE_DIR}/include)
target_compile_definitions(di_host PRIVATE DEEPINFER_VERSION="${PROJECT_VERSION}")
add_library(libdeepinfer SHARED src/host/c_api.cc)
set_target_properties(libdeepinfer PROPERTIES OUTPUT_NAME deepinfer SOVERSION 0 VERSION ${PROJECT_VERSION})
target_compile_definitions(libdeepinfer PRIVATE DEEPINFER_VERSION="${PROJECT_VERSION}")
target_include_directories(libdeepinfer PUBLIC ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(libdeepinfer PRIVATE di_host)
add_executable(offline_inference examples/offline_inference.cc)
target_link_libraries(offline_inference PRIVATE libdeepinfer)
install(TARGETS libdeepinfer LIBRARY DESTINATION lib)
install(FILES include/deepinfer.h DESTINATION include)

add_custom_target(product)
add_dependencies(product deepinfer libdeepinfer offline_inference)

# The rooms whose tests meet hostile constants (preset tiny), those with threads (preset tsan), and those that read bytes
# from outside or compute (preset dev); tests/ adds its own. `ctest -L tiny` runs what `tiny_tests` builds.
set(tiny_rooms engine kvcache scheduler host)
# Not net: Boost.Asio orders by fences, which GCC's thread sanitizer does not know.
set(tsan_rooms base kvcache engine cpu)
set(dev_rooms base core formats ops cpu policy text grammar model kvcache scheduler engine net recipe api server cluster sim)
# GCC 12 takes members of its own std::regex for uninitialised when the sanitizers are on.
set_source_files_properties(src/grammar/regex_test.cc PROPERTIES COMPILE_OPTIONS -Wno-maybe-uninitialized)
foreach(group tiny tsan dev)
  add_custom_target(${group}_tests)
  foreach(room ${${group}_rooms})
    if(TARGET test_${room})
      add_dependencies(${group}_tests test_${room})
      set_property(TEST ${room} APPEND PROPERTY LABELS ${group})
    endif()
  endforeach()
endforeach()
