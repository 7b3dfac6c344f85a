// Package e2e holds the tests of the whole system through its public API: a server process of its
// own, real containers, a real Redis, real MCP servers. They need what `make test` installs; in CI
// (CI=true) a missing part is a failure, elsewhere the test says what is missing and is skipped.
package e2e
