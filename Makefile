# One line a target, each a command of CONTRIBUTING.md.
.PHONY: run check test test-long test-oldest bench
run: ; ./run
check: ; ./test checks
test: ; ./test
test-long: ; ./test long
test-oldest: ; ./test oldest
bench: ; ./test bench
