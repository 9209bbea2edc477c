# One line per target; CONTRIBUTING.md describes the commands.
.PHONY: run check test test-long test-oldest fuzz bench pipeline deb deb-test
run: ; ./run
check: ; ./test checks
test: ; ./test
test-long: ; ./test long
test-oldest: ; ./test oldest
fuzz: ; ./test fuzz
bench: ; ./test bench
pipeline: ; ./test pipeline
deb: ; packaging/build-deb bookworm && packaging/build-deb trixie
deb-test: ; ./test deb
