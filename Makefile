# One line per target; CONTRIBUTING.md describes the commands.
.PHONY: run cluster check test test-long test-oldest fuzz bench pipeline deb deb-test
run: ; ./run
cluster: ; ./run cluster
check: ; ./test checks
test: ; ./test
test-long: ; ./test long
test-oldest: ; ./test oldest
fuzz: ; ./test fuzz
bench: ; ./test bench
pipeline: ; ./test pipeline
deb: ; packaging/build-deb bookworm && packaging/build-deb trixie
deb-test: ; ./test deb
