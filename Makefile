# SPDX-License-Identifier: Apache-2.0
# A short front for the CMake presets.
PRESET ?= release
BUILD = $(if $(filter release,$(PRESET)),build,build-$(PRESET))

all: $(BUILD)/build.ninja
	cmake --build $(BUILD)
$(BUILD)/build.ninja:
	cmake --preset $(PRESET)
run: all
	$(BUILD)/sluice run --chat -p "What is the capital of France?"
check: all
	ctest --test-dir $(BUILD) --output-on-failure -LE slow
check-all: all
	ctest --test-dir $(BUILD) --output-on-failure
asan tsan debug clang cov simde arm64:
	$(MAKE) check PRESET=$@
fuzz: ; scripts/fuzz $(T) $(S)
bench: all
	$(BUILD)/check_kern --bench $(K)
install: all
	cmake --install $(BUILD)
fmt:
	git ls-files '*.c' '*.h' | xargs clang-format -i
tidy: all
	scripts/tidy $(BUILD)
clean:
	rm -rf build build-*
.PHONY: all run check check-all asan tsan debug clang cov simde arm64 fuzz bench install fmt tidy clean
