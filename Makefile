# Every command of the project. `make` lists them; the text after ## is what it shows.

# A fresh rustup is not always on the PATH of a shell that nobody logged in to.
export PATH := $(PATH):$(HOME)/.cargo/bin

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)

# What `make run` shows, and the file that it moves (empty: the command finds one by itself).
RUN_CMD ?= demo
FILE ?=

# How long `make fuzz` gives each parser.
FUZZ_SECONDS ?= 60

# How long `make soak` goes on (3600: an hour), and what decides about its steps (empty: the clock).
SOAK_SECONDS ?= 600
SOAK_SEED ?=

# Where `make install` puts things, and the folder that stands for / while it does.
PREFIX ?= /usr/local
DESTDIR ?=

# Tests that compare circuits written by hand with models.
RTL_COMPARISONS := falcon fasr irn library shell tonic

.DEFAULT_GOAL := help
.PHONY: help build install uninstall dist run test test-pyverbs test-pyverbs-newest lint check generate book bench bench-timeouts results fuzz fuzz-falcon sanitize soak test-apps test-packages test-interop test-jit test-wasm wheel rtl rtl-test rtl-coverage rtl-report rtl-full rtl-emit long-test fresh fmt clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The libraries first: the command contains them, too, and so works when it is copied alone.
build: ## the rnic command, and the libraries that stand under unmodified programs; with WASM=1, programs as WebAssembly; with JIT=1, as machine code
	@scripts/setup build
	RNIC_WASM=$(WASM) RNIC_JIT=$(JIT) scripts/link-verbs release
	RNIC_EMBED_LIBRARIES=$(abspath $(TARGET_DIR))/release/lib/rnic \
		cargo build --release --package rnic-cli $(if $(WASM),--features wasm) $(if $(JIT),--features jit) --locked

# Under sudo there may be no cargo, and it should not write into the tree: `make build`, then `sudo make install`.
install: $(if $(SUDO_USER),,build) ## command, libraries, plans, manual pages, completions: make install [PREFIX=/usr/local] [DESTDIR=]
	PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) scripts/install install $(TARGET_DIR)/release

uninstall: ## remove what `make install` has installed there
	PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) scripts/install uninstall

dist: ## a tarball and a Debian package, into out/dist
	scripts/dist

run: build ## build, then do the main job on real input: make run [FILE=path]
	$(TARGET_DIR)/release/rnic $(RUN_CMD) $(if $(FILE),--file "$(FILE)")

test: ## everything that must hold: format, lints, every test of the workspace, the Python module
	@scripts/setup test
	@$(MAKE) --no-print-directory lint
	scripts/link-verbs debug
	cargo test --workspace --locked --no-fail-fast
	@# As the tests have built it: for one package cargo chooses other features, and would build half of the tree again.
	$(TARGET_DIR)/debug/rnic-apps --bin $(TARGET_DIR)/debug --quick --under plain
	$(TARGET_DIR)/debug/rnic-apps --bin $(TARGET_DIR)/debug --quick --under plain --transport falcon
	scripts/wheel dev

lint: ## format, clippy and links of the documentation, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --document-private-items --locked --quiet

check: ## the rules of rnic-check alone, one line per finding
	cargo run --quiet --package rnic-check --locked

generate: ## write what is generated: ARCHITECTURE's table of crates, docs/mechanisms.md, docs/memory.md, docs/plans.md, docs/options.md, docs/metrics.md, rtl/gen, the notebook's program
	cargo run --quiet --package rnic-check --locked -- --write
	cargo test --quiet --package rnic-transports --locked -- --ignored write_the_memory_page
	cargo test --quiet --package rnic-fabric --test plans --locked -- --ignored write_the_plans_page
	cargo test --quiet --package rnic-cli --test list --test metrics --locked -- --ignored write_the
	cargo test --quiet --package rnic-rtl --test generated --locked -- --ignored write_the
	cargo test --quiet --package rnic-examples --test notebooks --locked -- --ignored write_the

book: ## the book of docs/, into out/book (needs mdbook)
	mdbook build

bench: ## every benchmark, in release, and a summary beside the floors
	@scripts/setup build
	scripts/bench

bench-timeouts: build ## what timeouts cost: 40 seeds with losses, a full machine, a slow link (root): about 15 minutes
	RNIC=$(TARGET_DIR)/release/rnic scripts/timeouts

results: ## docs/results.md: every figure of the papers at full size; two to three hours; continues after an interruption
	cargo build --release --package rnic-cli --locked
	scripts/results $(TARGET_DIR)/release/rnic

fuzz: ## each parser for FUZZ_SECONDS (needs a nightly toolchain and cargo-fuzz)
	scripts/fuzz $(FUZZ_SECONDS)

fuzz-falcon: ## the semantics fuzz with Falcon: ten million packets in each order, between engines, simulated, on sockets, through memory
	cargo test --release --package rnic-conformance --test long --locked -- --ignored --test-threads=2 falcon

test-pyverbs: ## rdma-core's own tests, each against what a table says of it
	@scripts/setup test
	cargo test --package rnic-verbs --test pyverbs --locked -- --nocapture

test-pyverbs-newest: ## the same for the newest rdma-core that Debian has, in a root of its own (root, debootstrap)
	scripts/pyverbs-newest

test-apps: build ## every unmodified RDMA program, plain, over a bad network, and confined (root): make test-apps [APPS="--transport falcon"]
	@scripts/setup apps
	cargo run --release --package rnic-conformance --bin rnic-apps --locked -- --bin $(TARGET_DIR)/release $(APPS)

soak: build ## real NICs under losses, busy loops, kills, stops, cuts and attacks (some as root): make soak [SOAK_SECONDS=3600]
	@scripts/setup test
	cargo run --release --package rnic-conformance --bin rnic-soak --locked -- --bin $(TARGET_DIR)/release \
		--seconds $(SOAK_SECONDS) $(if $(SOAK_SEED),--seed $(SOAK_SEED))

sanitize: ## Miri, and the address and thread sanitizers, where there is `unsafe` (needs a nightly toolchain)
	scripts/sanitize

test-interop: build ## Linux's rdma_rxe in a virtual machine, both ways: make test-interop [SUITES="data cm loss"]
	scripts/test-interop release $(SUITES)

test-wasm: ## programs as WebAssembly modules (feature wasm), which other tests leave out
	cargo clippy --package rnic-program --package rnic-transports --package rnic-cli --features rnic-cli/wasm --all-targets --locked -- --deny warnings
	cargo test --package rnic-program --package rnic-transports --features rnic-program/wasm,rnic-transports/wasm --lib --locked

test-jit: ## program files as machine code (feature jit), which other tests leave out
	cargo clippy --package rnic-jit --package rnic-transports --package rnic-cli --features rnic-jit/cranelift,rnic-cli/jit --all-targets --locked -- --deny warnings
	cargo test --package rnic-jit --package rnic-transports --features rnic-jit/cranelift,rnic-transports/jit --lib --locked

# Emitted programs are no part of the tree; the tools in tools/rtl find them here.
rtl-emit:
	cargo run --quiet --package rnic-rtl --bin rnic-circuits --locked -- out/rtl/emitted

wheel: ## the Python module openrnic: build the wheel, test it, execute the notebooks (installs packages of PyPI into out/wheel)
	@scripts/setup wheel
	RNIC_REQUIRE_WHEEL=1 scripts/wheel

rtl: rtl-emit ## circuits: emit programs, lint every module, compare each circuit with its model for a short time
	@scripts/setup test
	tools/rtl/lint.py
	RNIC_LOCKSTEP_EVENTS=$(or $(RNIC_LOCKSTEP_EVENTS),20000) cargo test --package rnic-rtl --locked

rtl-test: rtl-emit ## circuits: every comparison, also what `make test` leaves out, and the proofs; fails when a tool is missing
	tools/rtl/lint.py
	RNIC_REQUIRE_VERILATOR=1 cargo test --package rnic-rtl --locked --no-fail-fast -- --include-ignored --skip write_the

# As many events and cycles as the tests have in `make test`; they are set here because the table says them. Of the
# package's tests, those that compare circuits.
rtl-coverage: export RNIC_LOCKSTEP_EVENTS = 1000000
rtl-coverage: export RNIC_TONIC_CYCLES = 100000
rtl-coverage: ## circuits: lines that the comparisons reach, module by module, into docs/rtl.md; fails below 95 %
	rm -rf out/rtl/coverage && mkdir -p out/rtl/coverage
	RNIC_REQUIRE_VERILATOR=1 RNIC_RTL_COVERAGE=$(CURDIR)/out/rtl/coverage \
		cargo test --package rnic-rtl --locked $(RTL_COMPARISONS:%=--test %)
	tools/rtl/lines.py --write out/rtl/coverage
	tools/rtl/report.py page

rtl-report: rtl-emit ## circuits: synthesise what has changed, and write rtl/report.json and docs/rtl.md
	@scripts/setup rtl
	tools/rtl/report.py run
	tools/rtl/report.py page
	tools/rtl/report.py check

rtl-full: rtl-test rtl-report ## circuits: also both readers, random programs, coverage, verible, cocotb; an hour
	tools/rtl/lint.py --verible
	python3 -m unittest discover --start-directory tools/rtl --pattern '*_test.py'
	tools/rtl/report.py again
	tools/rtl/report.py compare
	tools/rtl/depth.py --place
	tools/rtl/depth.py --check
	tools/rtl/report.py page
	rtl/cocotb/run.py
	@$(MAKE) --no-print-directory rtl-coverage

long-test: ## every test in release, the long ones too
	@scripts/setup test
	cargo test --workspace --release --locked --no-fail-fast -- --include-ignored

fresh: ## both commands of README on a bare Debian, in a root made for it (root, debootstrap)
	scripts/fresh

test-packages: ## what `make dist` has made, on a bare Debian, in a root made for it (root, debootstrap)
	scripts/try-packages

fmt: ## format the Rust sources
	cargo fmt --all

clean: ## remove build output and results
	cargo clean
	rm -rf out
