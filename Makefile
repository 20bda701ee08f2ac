# The commands of the project. `make run` and `make test` do all their own set-up; see scripts/setup.
#
#   make run            build, and show a durable store losing nothing through a kill; FILE=path for another text
#   make test           every test but the long runs (docs/TESTING.md has those)
#   make bench          the project's own programs, for every figure in the documents
#   make header         rewrite include/iouring_engine.h from the sources
#   make fmt            format the Rust sources
#   make clean          remove what was built

.PHONY: run test bench header fmt clean

run:
	@scripts/setup run
	@scripts/run "$(FILE)"

test:
	@scripts/setup test
	@scripts/test $(ONLY)

bench:
	@scripts/setup run
	@scripts/bench $(ONLY)

header:
	@scripts/setup run
	@scripts/header

fmt:
	cargo fmt

clean:
	cargo clean
	find python -name __pycache__ -type d -prune -exec rm -rf {} +
