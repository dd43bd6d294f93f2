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
soak: all
	python3 tests/e2e/serve/soak.py $(BUILD) --minutes $(or $(M),30) --load $(or $(L),0.5)
# The server's checks against PRESET=asan or tsan. Leaks can not be looked for inside the sandbox.
serve-check: $(BUILD)/build.ninja
	cmake --build $(BUILD) --target sluice
	for c in api errors http responses tools; do \
	    SLUICE_SANDBOX=off python3 tests/e2e/serve/check_$$c.py $(BUILD) || exit 1; done
	ASAN_OPTIONS=detect_leaks=0 python3 tests/e2e/serve/check_life.py $(BUILD)
# The serving rows of docs/reliability.md at their full numbers (about 80 minutes), and the
# simulations at theirs (about ten).
rows: all
	for c in rows http tools wire tenants stress; do \
	    python3 tests/e2e/serve/check_$$c.py $(BUILD) --full || exit 1; done
deep: all
	$(BUILD)/sim_sched 1 100000
	$(BUILD)/sim_tenants 1 50
	$(BUILD)/trials $(BUILD)/tests/tiny 1000 2
fuzz: ; scripts/fuzz $(T) $(S)
bench: all
	$(BUILD)/check_kern --bench $(K)
install: all
	cmake --install $(BUILD)
fmt:
	git ls-files '*.c' '*.h' | xargs clang-format -i
clean:
	rm -rf build build-*
.PHONY: all run check check-all soak serve-check rows deep asan tsan debug clang cov simde arm64 \
        fuzz bench install fmt clean
