# One line a target, each a command of CONTRIBUTING.md.
.PHONY: run check test test-long test-oldest fuzz bench deb deb-test
run: ; ./run
check: ; ./test checks
test: ; ./test
test-long: ; ./test long
test-oldest: ; ./test oldest
fuzz: ; ./test fuzz
bench: ; ./test bench
deb: ; packaging/build-deb bookworm && packaging/build-deb trixie
deb-test: ; ./test deb
