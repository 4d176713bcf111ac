# A thin layer over the CMake presets; ./deepinfer.sh and ./test.sh need nothing of it.
PRESET ?= release
.PHONY: all run check check-all fmt deps
all:
	@./build.sh $(PRESET)
run:
	@./deepinfer.sh
check:
	@./test.sh
check-all:
	@./test.sh --ci
fmt:
	@git ls-files '*.cc' '*.h' | xargs clang-format -i
deps:
	@tools/check_rooms --draw
