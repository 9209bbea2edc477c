# One line per target; CONTRIBUTING.md describes the commands.
.PHONY: run check test test-long test-oldest fuzz bench deb
run: ; ./run
check: ; ./test checks
test: ; ./test
test-long: ; ./test long
test-oldest: ; ./test oldest
fuzz: ; ./test fuzz
bench: ; ./test bench
deb: ; packaging/build-deb bookworm && packaging/build-deb trixie
